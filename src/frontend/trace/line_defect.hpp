// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"

namespace memstrata::detail {

/// What is wrong with a line, before it is known where the line is.
struct LineDefect {
  TraceDefect defect = TraceDefect::malformed;
  ErrorText field;
  ErrorText expected;
  ErrorText found;
};

/// `text` as an error may show it: at most 48 bytes, everything but printable ASCII escaped.
[[nodiscard]] std::string printable(std::string_view text);

/// The error text for a number that is no integer from `least` to `most`.
[[nodiscard]] ErrorText integer_between(std::uint64_t least, std::uint64_t most);

/// The error for `defect` at `place`.
[[nodiscard]] BadTraceRecord at_place(LineDefect defect, TracePlace place) noexcept;

/// `ticks` of `unit` in nanoseconds. `ticks` is at most `largest_ticks(unit)`.
[[nodiscard]] std::int64_t nanoseconds_of(std::uint64_t ticks, TraceTimeUnit unit) noexcept;

/// The largest time stamp of a trace in `unit`: `trace_largest_number` milliseconds.
[[nodiscard]] std::uint64_t largest_ticks(TraceTimeUnit unit) noexcept;

/// Nanoseconds of one `unit`.
[[nodiscard]] std::int64_t nanoseconds_per(TraceTimeUnit unit) noexcept;

}  // namespace memstrata::detail
