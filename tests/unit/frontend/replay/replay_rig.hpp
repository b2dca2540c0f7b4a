// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/frontend/replay/geometry.hpp"
#include "memstrata/frontend/replay/replay.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata::test {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// The model of the hand-written traces: one layer, one head of 64 elements of 2 bytes for K and for V.
/// A token is 256 bytes, a granule of 64 KiB ("g") is 256 tokens, a block of 512 tokens is 2 g, and a page of
/// 16 tokens ("p") is 4 KiB, 16 of which are a granule.
inline KvGeometry toy_geometry() {
  KvGeometry geometry;
  geometry.name = "toy";
  geometry.layers = 1;
  geometry.kv_heads = 1;
  geometry.head_dim = 64;
  return geometry;
}

inline constexpr Bytes g{65'536};
inline constexpr Bytes p{4'096};

/// Bytes of this many tokens of the toy model.
constexpr Bytes tokens(std::uint64_t count) {
  return Bytes{256} * count;
}

inline TraceRecord record(nanoseconds arrival,
                          std::uint64_t input,
                          std::uint64_t output,
                          std::vector<std::uint64_t> blocks) {
  TraceRecord made;
  made.arrival = arrival;
  made.input_tokens = input;
  made.output_tokens = output;
  made.blocks = std::move(blocks);
  return made;
}

inline ReplayOptions toy_options(ReplayPolicy policy, Bytes limit) {
  ReplayOptions options;
  options.geometry = toy_geometry();
  options.policies = {policy};
  options.limit = limit;
  options.decode_tps = 1;
  options.prefill_tps.reset();
  return options;
}

/// The only policy's result; a failure of the run is a failure of the test.
inline PolicyResult replayed(const std::vector<TraceRecord>& records,
                             const ReplayOptions& options) {
  auto report = run_replay(records, options);
  if (!report) {
    ADD_FAILURE() << report.error().message();
    return {};
  }
  return report->policies.front();
}

/// Every counter of a run in the simulation.
struct Expected {
  std::uint64_t completed = 0;
  std::uint64_t refused = 0;
  std::uint64_t preempted = 0;
  std::uint64_t preempted_requests = 0;
  std::uint64_t peak_concurrent = 0;
  std::uint64_t peak_live_tokens = 0;
  ReplayWait wait{};
  Bytes peak_reserved{};
  Bytes peak_committed{};
  Bytes peak_live{};
  Bytes peak_cached{};
  Bytes copied{};
  Bytes shared_saved{};
  std::uint64_t hit_blocks = 0;
  std::uint64_t hit_tokens = 0;
  std::uint64_t mapped_blocks = 0;
  std::uint64_t block_refs = 0;
  double waste_ratio = 1;
  nanoseconds end{0};
};

inline void expect_counters(const PolicyResult& result, const Expected& expected) {
  EXPECT_EQ(result.completed, expected.completed);
  EXPECT_EQ(result.refused, expected.refused);
  EXPECT_EQ(result.preempted, expected.preempted);
  EXPECT_EQ(result.preempted_requests, expected.preempted_requests);
  EXPECT_EQ(result.peak_concurrent, expected.peak_concurrent);
  EXPECT_EQ(result.peak_live_tokens, expected.peak_live_tokens);
  EXPECT_EQ(result.wait.p50, expected.wait.p50);
  EXPECT_EQ(result.wait.p95, expected.wait.p95);
  EXPECT_EQ(result.wait.p99, expected.wait.p99);
  EXPECT_EQ(result.bytes.peak_reserved.value, expected.peak_reserved.value);
  EXPECT_EQ(result.bytes.peak_leased.value, expected.peak_committed.value);
  EXPECT_EQ(result.bytes.peak_committed.value, expected.peak_committed.value);
  EXPECT_EQ(result.bytes.peak_live.value, expected.peak_live.value);
  EXPECT_EQ(result.bytes.peak_cached.value, expected.peak_cached.value);
  EXPECT_EQ(result.bytes.copied.value, expected.copied.value);
  EXPECT_EQ(result.bytes.shared_saved.value, expected.shared_saved.value);
  EXPECT_EQ(result.prefix.hit_blocks, expected.hit_blocks);
  EXPECT_EQ(result.prefix.hit_tokens, expected.hit_tokens);
  EXPECT_EQ(result.prefix.mapped_blocks, expected.mapped_blocks);
  EXPECT_EQ(result.prefix.block_refs, expected.block_refs);
  EXPECT_DOUBLE_EQ(result.waste_ratio, expected.waste_ratio);
  EXPECT_EQ(result.end, expected.end);
  EXPECT_EQ(result.violations, 0U);
  EXPECT_EQ(result.final_leased, Bytes{});
}

}  // namespace memstrata::test
