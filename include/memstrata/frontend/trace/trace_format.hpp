// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace memstrata {

/// The formats that a trace can have.
enum class TraceFormat : std::uint8_t {
  mooncake,   ///< JSON lines with `timestamp`, `input_length`, `output_length`, `hash_ids`.
  azure,      ///< Rows of `TIMESTAMP,ContextTokens,GeneratedTokens`; no ids.
  memstrata,  ///< Ours: a first line that describes the trace, then Mooncake's fields and more.
};

/// `mooncake`, `azure` or `memstrata`: the name in reports.
[[nodiscard]] std::string_view to_string(TraceFormat format) noexcept;

/// Numbers in a trace above this are absurd and make a record bad. Times may reach this many milliseconds.
inline constexpr std::uint64_t trace_largest_number = 1ULL << 31;

/// The version of our own format that is written, and the only one that is read.
inline constexpr std::uint64_t trace_version = 1;

/// Unit of `timestamp` in our own format.
enum class TraceTimeUnit : std::uint8_t { milliseconds, microseconds, nanoseconds };

/// `ms`, `us` or `ns`.
[[nodiscard]] std::string_view to_string(TraceTimeUnit unit) noexcept;

/// What the first line of our own format says about the trace.
struct TraceHeader {
  TraceTimeUnit unit = TraceTimeUnit::milliseconds;
  bool synthetic = false;  ///< Made by a generator, not recorded.
  std::string made_by;     ///< How the trace was made, e.g. the command; empty if not said.
};

}  // namespace memstrata
