// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iosfwd>

namespace memstrata::tool {

/// What is at the other end of a stream.
struct Terminal {
  bool is_terminal = false;  ///< False for files, pipes and streams in memory.
  std::size_t columns = 0;   ///< Width in characters; 0 if it is no terminal.
};

/// Looks at what standard output or standard error is connected to; any other stream is no terminal.
[[nodiscard]] Terminal terminal_behind(const std::ostream& stream) noexcept;

}  // namespace memstrata::tool
