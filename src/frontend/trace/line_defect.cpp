// SPDX-License-Identifier: Apache-2.0
#include "frontend/trace/line_defect.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"

namespace memstrata::detail {

std::string printable(std::string_view text) {
  constexpr std::size_t longest = 48;
  std::string shown = "'";
  for (const char character : text.substr(0, longest)) {
    if (character >= ' ' && character <= '~') {
      shown.push_back(character);
    } else {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(character));
    }
  }
  shown += text.size() > longest ? "'..." : "'";
  return shown;
}

ErrorText integer_between(std::uint64_t least, std::uint64_t most) {
  return ErrorText::copy(fmt::format("an integer from {} to {}", least, most));
}

BadTraceRecord at_place(LineDefect defect, TracePlace place) noexcept {
  return {.at = std::move(place),
          .defect = defect.defect,
          .field = std::move(defect.field),
          .expected = std::move(defect.expected),
          .found = std::move(defect.found)};
}

std::int64_t nanoseconds_per(TraceTimeUnit unit) noexcept {
  switch (unit) {
    case TraceTimeUnit::milliseconds:
      return 1'000'000;
    case TraceTimeUnit::microseconds:
      return 1'000;
    case TraceTimeUnit::nanoseconds:
      return 1;
  }
  std::unreachable();
}

std::int64_t nanoseconds_of(std::uint64_t ticks, TraceTimeUnit unit) noexcept {
  return static_cast<std::int64_t>(ticks) * nanoseconds_per(unit);
}

std::uint64_t largest_ticks(TraceTimeUnit unit) noexcept {
  return trace_largest_number *
         static_cast<std::uint64_t>(nanoseconds_per(TraceTimeUnit::milliseconds) /
                                    nanoseconds_per(unit));
}

}  // namespace memstrata::detail
