// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "real_rig.hpp"

namespace memstrata::test {
namespace {

constexpr std::array real_policies{ReplayPolicy::reserve_max,
                                   ReplayPolicy::realloc,
                                   ReplayPolicy::paged,
                                   ReplayPolicy::virtual_memory};

class RealReplay : public testing::TestWithParam<ReplayPolicy> {
 protected:
  [[nodiscard]] ReplayOptions options() const {
    return real_options(GetParam(), tight_limit(GetParam()));
  }
};

INSTANTIATE_TEST_SUITE_P(Policies,
                         RealReplay,
                         testing::ValuesIn(real_policies),
                         [](const auto& policy) {
                           std::string name(to_string(policy.param));
                           std::erase(name, '-');
                           return name;
                         });

// Every byte of every completed request is read once through its own addresses; nothing is left; the kernel agrees.
TEST_P(RealReplay, ChecksEveryByteAndLeavesNothing) {
  const auto result = replayed(small_trace(), options());

  EXPECT_EQ(result.completed, 6U);
  EXPECT_EQ(result.verify.bytes_checked, tokens(tokens_of(small_trace())));
  EXPECT_EQ(result.verify.mismatches, 0U);
  EXPECT_EQ(result.final_leased, Bytes{});
  EXPECT_EQ(result.violations, 0U) << result.violation_texts.front();
  EXPECT_LE(result.bytes.peak_leased, options().limit);
  EXPECT_GE(result.kernel_samples.size(), 2U);
}

// The engine decides; where the bytes lie changes no counter.
TEST_P(RealReplay, CountsWhatTheSimulationCounts) {
  ReplayOptions simulated = options();
  simulated.backing = ReplayBacking::sim;
  simulated.verify = false;

  const auto real = replayed(small_trace(), options());
  const auto sim = replayed(small_trace(), simulated);

  EXPECT_EQ(real.completed, sim.completed);
  EXPECT_EQ(real.preempted, sim.preempted);
  EXPECT_EQ(real.prefix, sim.prefix);
  EXPECT_EQ(real.wait, sim.wait);
  EXPECT_EQ(real.bytes.peak_committed, sim.bytes.peak_committed);
  EXPECT_EQ(real.bytes.peak_leased, sim.bytes.peak_leased);
  EXPECT_EQ(real.bytes.copied, sim.bytes.copied);
  EXPECT_EQ(real.series, sim.series);
}

// `--corrupt N`: whichever write it is, at least one mismatch names the request, and the place and the bit are right.
TEST_P(RealReplay, FindsTheBitThatWasFlippedInAnyWrite) {
  ReplayOptions damaged = options();
  const std::uint64_t writes = replayed(small_trace(), damaged).verify.writes;
  ASSERT_GT(writes, 100U);
  for (std::uint64_t number = 1; number <= writes; number += number < 20 ? 1 : 41) {
    damaged.corrupt_write = number;
    const auto verify = replayed(small_trace(), damaged).verify;
    ASSERT_GE(verify.mismatches, 1U) << number;
    ASSERT_TRUE(verify.corrupted) << number;
    ASSERT_EQ(verify.first.front().expected ^ verify.first.front().found, 1U) << number;
    ASSERT_LT(verify.first.front().request, 6U);
  }
}

// The second model slides over 300 tokens in one of its two layers; the third keeps everything in sliding layers.
TEST_P(RealReplay, ChecksSlidingLayers) {
  for (const std::uint32_t sliding : {1U, 2U}) {
    ReplayOptions windowed = options();
    windowed.geometry.layers = 2;
    windowed.geometry.sliding_layers = sliding;
    windowed.geometry.window = 300;
    windowed.limit = g * 40;
    std::uint64_t bytes = 0;
    for (const TraceRecord& made : small_trace()) {
      bytes += windowed.geometry.sequence_bytes(made.input_tokens + made.output_tokens).value;
    }

    const auto result = replayed(small_trace(), windowed);

    EXPECT_EQ(result.completed, 6U);
    EXPECT_EQ(result.verify.bytes_checked.value, bytes);
    EXPECT_EQ(result.verify.mismatches, 0U);
    EXPECT_EQ(result.violations, 0U) << result.violation_texts.front();
  }
}

// R4: granules of 48 KiB cut every block; fronts are copied and the granule at the seam is broken.
TEST(RealReplayGranules, NeedNotDivideABlock) {
  ReplayOptions uneven = real_options(ReplayPolicy::virtual_memory, g * 30);
  uneven.granule = Bytes{49'152};

  const auto result = replayed(small_trace(), uneven);

  EXPECT_EQ(result.completed, 6U);
  EXPECT_EQ(result.verify.bytes_checked, tokens(tokens_of(small_trace())));
  EXPECT_EQ(result.verify.mismatches, 0U);
  EXPECT_GT(result.bytes.copied, Bytes{});
  EXPECT_EQ(result.violations, 0U) << result.violation_texts.front();
}

// A damaged block is damaged for everybody who maps it: its id is named, and the offset lies in it.
TEST(RealReplayCorruption, NamesTheBlock) {
  ReplayOptions damaged = real_options(ReplayPolicy::virtual_memory, g * 30);
  damaged.corrupt_write = 1;

  const auto verify = replayed(small_trace(), damaged).verify;

  EXPECT_EQ(verify.mismatches, 4U);
  ASSERT_EQ(verify.first.size(), 4U);
  for (const ReplayMismatch& mismatch : verify.first) {
    EXPECT_EQ(mismatch.block, 1U);
    EXPECT_EQ(mismatch.offset, tokens(256));
    EXPECT_EQ(mismatch.sequence_offset, tokens(256));
  }
}

TEST(RealReplayCorruption, SaysThatTheWriteNeverCame) {
  ReplayOptions damaged = real_options(ReplayPolicy::virtual_memory, g * 30);
  damaged.corrupt_write = 1'000'000;

  const auto verify = replayed(small_trace(), damaged).verify;

  EXPECT_FALSE(verify.corrupted);
  EXPECT_EQ(verify.mismatches, 0U);
}

TEST(RealReplayTimes, CountTheCallsOfEachKind) {
  const auto result = replayed(small_trace(), real_options(ReplayPolicy::virtual_memory, g * 30));

  EXPECT_EQ(result.op_ns.reserve.calls, 6U);
  EXPECT_EQ(result.op_ns.grow.calls, 185U);
  EXPECT_GT(result.op_ns.share.calls, 0U);
  EXPECT_GT(result.op_ns.release.calls, 0U);
  EXPECT_LE(result.op_ns.grow.p50_ns, result.op_ns.grow.p99_ns);
  EXPECT_LE(result.op_ns.grow.p99_ns, result.op_ns.grow.max_ns);
}

}  // namespace
}  // namespace memstrata::test
