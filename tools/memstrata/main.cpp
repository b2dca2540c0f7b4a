// SPDX-License-Identifier: Apache-2.0
#include <clocale>
#include <cstddef>
#include <iostream>
#include <span>
#include <string_view>
#include <vector>

#include "command.hpp"

int main(int argc, char** argv) {
  // Widths of table cells depend on the character set; nothing else follows the locale.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread yet
  static_cast<void>(std::setlocale(LC_CTYPE, ""));
  const std::span<char*> given(argv, static_cast<std::size_t>(argc));
  const auto own = given.empty() ? given : given.subspan(1);
  const std::vector<std::string_view> arguments(own.begin(), own.end());
  return memstrata::tool::run_tool(arguments, std::cout, std::cerr);
}
