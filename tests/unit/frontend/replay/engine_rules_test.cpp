// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <variant>
#include <vector>

#include "replay_rig.hpp"

namespace memstrata::test {
namespace {

using std::chrono::seconds;

/// Requests that share prefixes, in no particular pattern.
std::vector<TraceRecord> random_trace(std::uint32_t seed, std::size_t requests) {
  std::mt19937 random(seed);
  const auto below = [&random](std::uint64_t most) { return random() % most; };
  std::vector<TraceRecord> records;
  nanoseconds now{0};
  for (std::size_t index = 0; index < requests; ++index) {
    now += milliseconds(below(400));
    const std::uint64_t input = 1 + below(3'000);
    std::vector<std::uint64_t> blocks;
    std::uint64_t parent = 0;
    for (std::uint64_t depth = 0; depth < (input + 511) / 512; ++depth) {
      const bool full = (depth + 1) * 512 <= input;
      parent = full ? parent * 4 + 1 + below(3) : 1'000'000 + index;
      blocks.push_back(parent);
    }
    records.push_back(record(now, input, below(40), blocks));
  }
  return records;
}

ReplayOptions busy_options(ReplayPolicy policy, Bytes limit) {
  ReplayOptions options = toy_options(policy, limit);
  options.prefill_tps = 1'000;
  options.decode_tps = 20;
  return options;
}

bool is_same(const PolicyResult& a, const PolicyResult& b) {
  return a.completed == b.completed && a.preempted == b.preempted && a.wait == b.wait &&
         a.bytes == b.bytes && a.prefix == b.prefix && a.waste_ratio == b.waste_ratio &&
         a.series == b.series && a.end == b.end && a.refusals == b.refusals;
}

// R17: everything but wall times is the same in every run.
TEST(ReplayEngine, GivesTheSameAnswerTwice) {
  const auto records = random_trace(5, 300);
  for (const ReplayPolicy policy : all_replay_policies) {
    const auto options = busy_options(policy, g * 60);
    EXPECT_TRUE(is_same(replayed(records, options), replayed(records, options)))
        << to_string(policy);
  }
}

TEST(ReplayEngine, KeepsItsPromisesOnRandomTraces) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const auto records = random_trace(seed, 120);
    for (const ReplayPolicy policy : all_replay_policies) {
      const Bytes limit = g * (14 + seed * 3);
      const auto result = replayed(records, busy_options(policy, limit));
      EXPECT_EQ(result.completed + result.refused, records.size()) << seed;
      EXPECT_LE(result.bytes.peak_committed, limit) << seed;
      EXPECT_GE(result.waste_ratio, 1.0) << seed;
      EXPECT_EQ(result.violations, 0U) << seed;
      EXPECT_LE(result.preempted_requests, result.preempted) << seed;
    }
  }
}

// Without a limit nothing waits and nothing is evicted, so hits depend on the trace alone.
TEST(ReplayEngine, HitsWhatTheTraceRepeatsIfNothingIsEvicted) {
  const std::vector<TraceRecord> records{record(seconds(0), 1'100, 0, {1, 2, 3}),
                                         record(seconds(1), 1'536, 0, {1, 2, 4}),
                                         record(seconds(2), 1'536, 0, {1, 2, 4}),
                                         record(seconds(3), 512, 0, {5})};
  auto options = toy_options(ReplayPolicy::virtual_memory, g);
  options.limit.reset();

  const auto result = replayed(records, options);

  EXPECT_EQ(result.prefix.hit_blocks, 5U);
  EXPECT_EQ(result.prefix.block_refs, 10U);
  EXPECT_DOUBLE_EQ(result.prefix.hit_ratio_blocks, 0.5);
}

// R6: idle blocks above the number go at once, the oldest and deepest first.
TEST(ReplayEngine, KeepsNoMoreIdleBlocksThanItIsTold) {
  const std::vector<TraceRecord> records{record(seconds(0), 1'536, 1, {1, 2, 3}),
                                         record(seconds(5), 1'536, 1, {1, 2, 3})};
  auto options = toy_options(ReplayPolicy::virtual_memory, g * 100);
  options.cache_blocks = 2;

  const auto result = replayed(records, options);

  EXPECT_EQ(result.prefix.hit_blocks, 2U);
  EXPECT_EQ(result.bytes.peak_cached, g * 4);
}

// R2: the second request needs no prefill of its own but is not ready before the block that the first one makes:
// its token exists at 3 s.
TEST(ReplayEngine, WaitsForASharedBlockInTheMaking) {
  const std::vector<TraceRecord> records{record(seconds(0), 1'024, 0, {1, 2}),
                                         record(milliseconds(500), 1'024, 1, {1, 2})};
  auto options = toy_options(ReplayPolicy::virtual_memory, g * 100);
  options.prefill_tps = 512;

  EXPECT_EQ(replayed(records, options).end, seconds(3));
}

// R3: a trace without ids has no hits, and the report says so.
TEST(ReplayEngine, SaysThatATraceHasNoIds) {
  const auto result = replayed({record(seconds(0), 1'024, 1, {}), record(seconds(1), 1'024, 1, {})},
                               toy_options(ReplayPolicy::virtual_memory, g * 100));

  EXPECT_FALSE(result.prefix.has_ids);
  EXPECT_EQ(result.prefix.hit_blocks, 0U);
  EXPECT_EQ(result.bytes.peak_cached, Bytes{});
}

// R16: sliding layers are private and never cached: what stays of a block of two layers is one layer's.
TEST(ReplayEngine, ReportsHitsOfModelsWithWindowsAsPartial) {
  auto options = toy_options(ReplayPolicy::virtual_memory, g * 100);
  options.geometry.layers = 2;
  options.geometry.sliding_layers = 1;
  options.geometry.window = 100;

  const auto result =
      replayed({record(seconds(0), 512, 1, {1}), record(seconds(5), 512, 1, {1})}, options);

  EXPECT_TRUE(result.prefix.partial);
  EXPECT_EQ(result.prefix.hit_blocks, 1U);
  EXPECT_EQ(result.bytes.peak_cached, g * 2);
  EXPECT_EQ(result.bytes.peak_live, tokens(513) + tokens(100));
}

// R4 with granules of 48 KiB: of two hit blocks of 128 KiB five granules are mapped, 16 KiB are copied.
TEST(ReplayEngine, CopiesWhatAGranuleCutsOffARunOfHits) {
  auto options = toy_options(ReplayPolicy::virtual_memory, g * 100);
  options.granule = Bytes{49'152};

  const auto result = replayed(
      {record(seconds(0), 1'024, 1, {1, 2}), record(seconds(5), 1'100, 1, {1, 2, 3})}, options);

  EXPECT_EQ(result.prefix.hit_blocks, 2U);
  EXPECT_EQ(result.prefix.mapped_blocks, 1U);
  EXPECT_EQ(result.bytes.copied, tokens(1'024) - options.granule * 5);
}

// Limit 8 g, which R1 alone needs 6 g of (512 tokens, then 1,024). R0 takes 4 g when it doubles past 512 tokens, so that
// R1 goes with 256 tokens generated. It comes back with 768 tokens, 3 g, and its next token asks for 6 g: alone it goes
// again, and then comes back with the room that doubling would have given it.
TEST(ReplayEngine, BringsARoomThatOutgrewTheBudgetAloneBackAtItsDoubledSize) {
  auto options = toy_options(ReplayPolicy::realloc, g * 8);
  options.decode_tps = 256;

  const auto result =
      replayed({record(seconds(0), 256, 300, {1}), record(seconds(0), 512, 500, {2})}, options);

  EXPECT_EQ(result.completed, 2U);
  EXPECT_EQ(result.preempted, 2U);
  EXPECT_EQ(result.preempted_requests, 1U);
}

// 2^32 tokens at one per second are 136 years each; the third one ends beyond what 63 bits of nanoseconds hold.
TEST(ReplayEngine, RefusesSpeedsAtWhichTimeEnds) {
  auto options = toy_options(ReplayPolicy::reserve_max, g);
  options.limit.reset();
  options.geometry.scale = 4;
  options.prefill_tps = 1;
  std::vector<TraceRecord> records;
  records.push_back(record(nanoseconds(9'200'000'000'000'000'000), std::uint64_t{1} << 31U, 0, {}));

  const auto report = run_replay(records, options);

  ASSERT_FALSE(report.has_value());
  const auto* bad = std::get_if<BadReplayOption>(&report.error().kind);
  ASSERT_NE(bad, nullptr);
  EXPECT_STREQ(bad->option, "decode-tps");
}

TEST(ReplayProgress, EndsWithAllRequests) {
  const auto records = random_trace(3, 1'000);
  std::vector<std::uint64_t> seen;

  const auto report = run_replay(
      records,
      busy_options(ReplayPolicy::virtual_memory, g * 100),
      [&seen](ReplayPolicy, std::uint64_t finished, std::uint64_t) { seen.push_back(finished); });

  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(seen.back(), 1'000U);
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  EXPECT_LE(seen.size(), 220U);
}

}  // namespace
}  // namespace memstrata::test
