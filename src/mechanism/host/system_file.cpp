// SPDX-License-Identifier: Apache-2.0
#include "mechanism/host/system_file.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/mechanism/host/host_limits.hpp"

namespace memstrata::host::detail {
namespace {

/// Version 1 writes "no limit" as the largest signed number, rounded down to a page of up to 64 KiB.
constexpr std::uint64_t unlimited_from = (1ULL << 63U) - (1ULL << 16U);

}  // namespace

SystemFile read_system_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (!file) {
    return {.text = std::nullopt,
            .reason = std::generic_category().message(errno != 0 ? errno : ENOENT)};
  }
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) {
    return {.text = std::nullopt, .reason = "reading failed"};
  }
  return {.text = std::move(text), .reason = {}};
}

std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t\n";
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  text.remove_suffix(text.size() - (text.find_last_not_of(blanks) + 1));
  return text;
}

std::optional<std::uint64_t> whole_number(std::string_view text) noexcept {
  std::uint64_t value = 0;
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): the size is in the second pointer
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

std::optional<std::uint64_t> kilobytes_of(std::string_view text, std::string_view key) noexcept {
  constexpr std::string_view unit = " kB";
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(key) || line.substr(key.size(), 1) != ":") {
      continue;
    }
    line = trimmed(line.substr(key.size() + 1));
    if (!line.ends_with(unit)) {
      return std::nullopt;
    }
    line.remove_suffix(unit.size());
    const auto kilobytes = whole_number(line);
    const auto bytes = kilobytes ? checked_mul(Bytes{*kilobytes}, 1024) : std::nullopt;
    return bytes ? std::optional(bytes->value) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> group_limit(std::string_view text, bool& unlimited) noexcept {
  const std::string_view word = trimmed(text);
  const auto value = whole_number(word);
  unlimited = word == "max" || (value && *value >= unlimited_from);
  return unlimited ? std::nullopt : value;
}

Figure number_in(const std::string& path) {
  const SystemFile file = read_system_file(path);
  if (!file.text) {
    return Figure::unknown(path, file.reason);
  }
  const auto value = whole_number(trimmed(*file.text));
  return value ? Figure::known(*value, path) : Figure::unknown(path, "it does not hold a number");
}

}  // namespace memstrata::host::detail
