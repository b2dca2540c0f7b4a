// SPDX-License-Identifier: Apache-2.0
#include "units.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "memstrata/core/bytes.hpp"

namespace memstrata::tool {
namespace {

/// `value` with three significant digits, never in exponent form.
std::string three_digits(double value) {
  const double size = std::abs(value);
  if (size >= 99.95) {
    return fmt::format("{:.0f}", value);
  }
  if (size >= 9.995) {
    return fmt::format("{:.1f}", value);
  }
  return fmt::format("{:.2f}", value);
}

}  // namespace

std::string format_bytes(Bytes bytes) {
  constexpr std::array<std::string_view, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes.value < 1024) {
    return fmt::format("{} B", bytes.value);
  }
  auto value = static_cast<double>(bytes.value);
  std::size_t unit = 0;
  // 1023.5 would round to "1024".
  while (value >= 1023.5 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", three_digits(value), units.at(unit));
}

std::string format_count(std::uint64_t count) {
  std::string text = fmt::format("{}", count);
  for (std::size_t at = text.size(); at > 3; at -= 3) {
    text.insert(at - 3, 1, ',');
  }
  return text;
}

std::string format_seconds(double seconds) {
  const double size = std::abs(seconds);
  if (size == 0) {
    return "0 s";
  }
  if (size >= 999.5) {
    return fmt::format("{} s", format_count(static_cast<std::uint64_t>(std::llround(size))));
  }
  if (size >= 0.9995) {
    return three_digits(seconds) + " s";
  }
  if (size >= 0.9995e-3) {
    return three_digits(seconds * 1e3) + " ms";
  }
  if (size >= 0.9995e-6) {
    return three_digits(seconds * 1e6) + " us";
  }
  return three_digits(seconds * 1e9) + " ns";
}

std::string format_nanoseconds(double nanoseconds) {
  return format_seconds(nanoseconds * 1e-9);
}

std::string format_share(double share) {
  return fmt::format("{:.1f} %", share * 100);
}

}  // namespace memstrata::tool
