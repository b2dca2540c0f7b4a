// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/meters.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace memstrata::replay_detail {
namespace {

ReplayState holding(std::uint64_t bytes) {
  ReplayState state;
  state.committed = Bytes{bytes};
  state.live = Bytes{bytes / 2};
  return state;
}

TEST(ReplayMetersFinish, DividesHeldByLiveOverTime) {
  ReplayMeters meters;
  ReplayState state = holding(100);
  meters.note(state);
  meters.advance(state, 10);
  state.live = Bytes{100};
  PolicyResult result;

  meters.finish(state, 30, result);

  // 100 x 30 over 50 x 10 + 100 x 20.
  EXPECT_DOUBLE_EQ(result.waste_ratio, 3'000.0 / 2'500.0);
}

TEST(ReplayMetersFinish, LeavesIdleBytesOutOfTheWaste) {
  ReplayMeters meters;
  ReplayState state = holding(100);
  state.cached = Bytes{50};
  PolicyResult result;

  meters.finish(state, 10, result);

  EXPECT_DOUBLE_EQ(result.waste_ratio, 1.0);
}

TEST(ReplayMetersSeries, IsBoundedAndKeepsEveryPeak) {
  ReplayMeters meters;
  ReplayState state;
  PolicyResult result;
  std::int64_t now = 0;
  for (std::uint64_t step = 0; step < 200'000; ++step) {
    now += 1 + static_cast<std::int64_t>(step % 1'000) * 1'000'000;
    meters.advance(state, now);
    state = holding(step == 77'777 ? 1'000'000 : step % 100);
    meters.note(state);
  }

  meters.finish(state, now, result);

  const auto& samples = result.series.samples;
  EXPECT_LE(samples.size(), TimeSeries::most_samples);
  EXPECT_GT(samples.size(), TimeSeries::most_samples / 4);
  EXPECT_TRUE(std::ranges::is_sorted(samples, {}, &TimeSample::end));
  EXPECT_EQ(samples.back().end, std::chrono::nanoseconds(now));
  EXPECT_EQ(std::ranges::max(samples, {}, &TimeSample::committed).committed, Bytes{1'000'000});
  EXPECT_EQ(result.bytes.peak_committed, Bytes{1'000'000});
}

}  // namespace
}  // namespace memstrata::replay_detail
