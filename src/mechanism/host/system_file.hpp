// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "memstrata/mechanism/host/host_limits.hpp"

namespace memstrata::host::detail {

/// The text of a file of `/proc` or `/sys`, or why it cannot be read.
struct SystemFile {
  std::optional<std::string> text;
  std::string reason;
};

[[nodiscard]] SystemFile read_system_file(const std::string& path);

/// `text` without blanks and line ends around it.
[[nodiscard]] std::string_view trimmed(std::string_view text) noexcept;

/// `text` as a number and nothing else.
[[nodiscard]] std::optional<std::uint64_t> whole_number(std::string_view text) noexcept;

/// The number of kilobytes on the line `key: N kB`, in bytes.
[[nodiscard]] std::optional<std::uint64_t> kilobytes_of(std::string_view text,
                                                        std::string_view key) noexcept;

/// A memory limit of a control group: bytes, `max`, or the largest number of version 1, which means no limit.
/// Nothing if it is neither. `unlimited` is set if there is no limit.
[[nodiscard]] std::optional<std::uint64_t> group_limit(std::string_view text,
                                                       bool& unlimited) noexcept;

/// A file that holds one number.
[[nodiscard]] Figure number_in(const std::string& path);

}  // namespace memstrata::host::detail
