// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "memstrata/core/bytes.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"

namespace memstrata::replay_detail {

/// What is held at one instant.
struct ReplayState {
  Bytes reserved;
  Bytes committed;
  Bytes cached;
  Bytes live;
  Bytes saved;
  std::uint64_t live_tokens = 0;
  std::uint64_t queued = 0;
  std::uint64_t running = 0;
  std::uint64_t hit_blocks = 0;
  std::uint64_t block_refs = 0;
};

/// Peaks, time integrals and the bounded time series of one run. Single-threaded; O(1) per call.
class ReplayMeters {
 public:
  /// Raises the peaks to `state`; called after every change.
  void note(const ReplayState& state) noexcept;

  /// The state as it is now holds until `now_ns`.
  void advance(const ReplayState& state, std::int64_t now_ns);

  /// Writes peaks, waste ratio and series; the last interval ends at `end_ns`.
  void finish(const ReplayState& state, std::int64_t end_ns, PolicyResult& result);

 private:
  void close_interval(const ReplayState& state);
  void halve();

  ReplayState peak_;
  TimeSample open_;
  TimeSeries series_;
  std::int64_t now_ns_ = 0;
  std::int64_t interval_ns_ = 1;
  std::int64_t interval_end_ns_ = 1;
  long double held_integral_ =
      0;  // 64 bits of mantissa: exact for small traces, and the same in every run
  long double live_integral_ = 0;
};

}  // namespace memstrata::replay_detail
