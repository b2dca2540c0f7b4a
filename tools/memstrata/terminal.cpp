// SPDX-License-Identifier: Apache-2.0
#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstddef>
#include <iostream>
#include <optional>

namespace memstrata::tool {
namespace {

constexpr std::size_t width_if_unknown = 80;

std::optional<int> descriptor_of(const std::ostream& stream) noexcept {
  if (&stream == &std::cout) {
    return STDOUT_FILENO;
  }
  if (&stream == &std::cerr) {
    return STDERR_FILENO;
  }
  return std::nullopt;
}

}  // namespace

Terminal terminal_behind(const std::ostream& stream) noexcept {
  const std::optional<int> descriptor = descriptor_of(stream);
  if (!descriptor || isatty(*descriptor) == 0) {
    return {};
  }
  winsize size{};
  // NOLINTNEXTLINE(misc-include-cleaner): sys/ioctl.h is the documented header, ioctl_tty(2)
  const bool known = ioctl(*descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col != 0;
  return {.is_terminal = true, .columns = known ? size.ws_col : width_if_unknown};
}

}  // namespace memstrata::tool
