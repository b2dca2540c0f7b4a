// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

namespace memstrata::tool {

/// Whether `path` means standard output.
[[nodiscard]] constexpr bool is_standard_output(std::string_view path) noexcept {
  return path == "-";
}

/// Why `path` cannot be written, or nothing if it can. Asked before a long run; creates the file if there is none
/// and leaves its contents alone.
[[nodiscard]] std::optional<std::string> why_not_writable(const std::string& path);

/// Replaces the contents of `path` by `text`, or writes it to `out` for "-". Returns why it failed, if it did.
[[nodiscard]] std::optional<std::string> write_output(const std::string& path,
                                                      std::string_view text,
                                                      std::ostream& out);

}  // namespace memstrata::tool
