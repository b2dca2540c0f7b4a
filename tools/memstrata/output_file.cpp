// SPDX-License-Identifier: Apache-2.0
#include "output_file.hpp"

#include <cerrno>
#include <fstream>
#include <ios>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>

namespace memstrata::tool {
namespace {

std::string sentence(const std::string& path, int error) {
  return "cannot write " + path + ": " + std::generic_category().message(error) +
         "; choose another place";
}

}  // namespace

std::optional<std::string> why_not_writable(const std::string& path) {
  if (is_standard_output(path)) {
    return std::nullopt;
  }
  errno = 0;
  const std::ofstream file(path, std::ios::app);
  return file.is_open() ? std::nullopt : std::optional(sentence(path, errno));
}

std::optional<std::string> write_output(const std::string& path,
                                        std::string_view text,
                                        std::ostream& out) {
  if (is_standard_output(path)) {
    out << text;
    return std::nullopt;  // the end of the tool looks at the state of its standard output
  }
  errno = 0;
  std::ofstream file(path, std::ios::trunc | std::ios::binary);
  file << text;
  file.close();
  return file ? std::nullopt : std::optional(sentence(path, errno));
}

}  // namespace memstrata::tool
