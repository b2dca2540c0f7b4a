// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata {

/// The figure that a condition bounds from above.
enum class LimitMetric : std::uint8_t { wait_p50, wait_p95, wait_p99, preempted, refused };

/// The stable name: `wait_p50`, `wait_p95`, `wait_p99`, `preempted`, `refused`.
[[nodiscard]] std::string_view to_string(LimitMetric metric) noexcept;

/// `metric` is at most `bound`.
struct LimitCondition {
  LimitMetric metric;
  std::uint64_t bound;  ///< Nanoseconds for waits, a count for the others.

  /// Whether a run meets it. A bound on a wait or on preemptions also demands that nothing is refused: a request
  /// that never ran neither waited nor was preempted.
  [[nodiscard]] bool is_met(const PolicyResult& result) const noexcept;

  friend bool operator==(const LimitCondition&, const LimitCondition&) = default;
};

/// Reads `wait_p99<=5s`, `preempted<=0`, `refused<=3`; units of a wait: `ns`, `us`, `ms`, `s`, `min`, with a
/// decimal point; blanks are allowed around `<=`.
/// Errors: BadCondition with the column and what was expected there.
[[nodiscard]] Result<LimitCondition, ReplayError> parse_limit_condition(std::string_view text);

/// The smallest limit of one policy.
struct LimitFound {
  ReplayPolicy policy;
  /// The smallest multiple of `granularity` that meets the condition while one step less does not; nothing if
  /// even an unlimited budget does not meet it.
  std::optional<Bytes> limit;
  Bytes granularity;
  PolicyResult at_limit;   ///< The run at `limit`, or the unlimited run.
  std::uint64_t runs = 0;  ///< Simulations that it took.
};

/// Bisects the budget of each policy in the simulation, whatever `options.backing` and `options.limit` say. The
/// answer is a whole number of `granularity` (a multiple of the granule; a default of 64 MiB keeps it quick).
/// More memory nearly always meets a condition that less memory meets; where the eviction order makes an
/// exception, the answer is a boundary between meeting and missing, not always the lowest one.
/// Errors: those of `run_replay`; BadReplayOption for the granularity.
[[nodiscard]] Result<std::vector<LimitFound>, ReplayError> find_limit(
    std::span<const TraceRecord> records,
    const ReplayOptions& options,
    const LimitCondition& condition,
    Bytes granularity = 64_MiB,
    const ReplayProgress& progress = {});

}  // namespace memstrata
