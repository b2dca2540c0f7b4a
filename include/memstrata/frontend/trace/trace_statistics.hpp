// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata {

/// Hits of one least-recently-used cache of `blocks` blocks.
struct TraceHitPoint {
  std::uint64_t blocks = 0;
  std::uint64_t hits = 0;

  [[nodiscard]] friend bool operator==(const TraceHitPoint&, const TraceHitPoint&) = default;
};

/// Distribution of a number over the requests; percentiles are nearest-rank.
struct TraceLengths {
  std::uint64_t p50 = 0;
  std::uint64_t p90 = 0;
  std::uint64_t p99 = 0;
  std::uint64_t max = 0;
  double mean = 0;
};

/// What a trace holds, without any model of serving.
struct TraceStatistics {
  std::uint64_t requests = 0;
  std::uint64_t input_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t largest_request_tokens = 0;  ///< Largest input + output of one request.
  std::uint64_t block_refs = 0;
  std::uint64_t unique_blocks = 0;
  /// Hits of a cache that never evicts: `block_refs` - `unique_blocks`.
  std::uint64_t unlimited_hits = 0;
  /// Those of them that are full blocks, the only ones that a replay shares.
  std::uint64_t unlimited_full_hits = 0;
  std::uint64_t blocks_used_once = 0;
  std::uint64_t distinct_arrivals = 0;  ///< Different time stamps.
  std::uint64_t tenants = 0;            ///< Different tenants, not counting "not said".
  std::uint64_t sessions = 0;           ///< Different sessions, not counting "not said".
  std::chrono::nanoseconds span{0};     ///< First to last arrival.
  TraceLengths input;
  TraceLengths output;
  std::chrono::milliseconds reuse_gap_p50{0};  ///< Time between two references of one block.
  std::chrono::milliseconds reuse_gap_p90{0};
  std::vector<TraceHitPoint> hit_curve;  ///< In the order of the sizes that were asked for.
};

/// The sizes of `trace.hit_curve` where nobody chooses others.
[[nodiscard]] std::span<const std::uint64_t> default_hit_curve_sizes() noexcept;

/// Collects the statistics of a trace in one pass, the hits of a cache of every size included: one
/// least-recently-used cache over the block references in file order, every reference touches.
///
/// Method: the number of different blocks since a block's last use (its stack distance) is counted with a Fenwick
/// tree; a cache of N blocks hits whatever has a distance below N.
/// Cost: O(log unique blocks) per reference; about 40 bytes per different block and 8 per request and hit.
/// Source: R. Mattson and others, Evaluation techniques for storage hierarchies, IBM Systems Journal 9(2), 1970.
/// Single-threaded; const calls in parallel.
class TraceAnalyzer {
 public:
  TraceAnalyzer();
  TraceAnalyzer(TraceAnalyzer&& other) noexcept;
  TraceAnalyzer& operator=(TraceAnalyzer&& other) noexcept;
  TraceAnalyzer(const TraceAnalyzer&) = delete;
  TraceAnalyzer& operator=(const TraceAnalyzer&) = delete;
  ~TraceAnalyzer();

  /// Takes the next record, in order of arrival. After an error the figures are those of a part of the trace.
  /// Errors: TraceTooLarge if there is no memory for what must be remembered.
  [[nodiscard]] Result<void, TraceError> add(const TraceRecord& record);

  /// Hits of a least-recently-used cache of `blocks` blocks over the records so far. Cost: O(`blocks`) at most.
  [[nodiscard]] std::uint64_t hits(std::uint64_t blocks) const;

  /// Everything about the records so far, with one hit point per size, in the order given.
  [[nodiscard]] TraceStatistics statistics(
      std::span<const std::uint64_t> sizes = default_hit_curve_sizes()) const;

 private:
  class State;

  std::unique_ptr<State> state_;
};

}  // namespace memstrata
