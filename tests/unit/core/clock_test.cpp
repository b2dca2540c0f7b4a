// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/clock.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace memstrata {
namespace {

using std::chrono::nanoseconds;

TEST(ManualClock, StandsStillUntilItIsTold) {
  ManualClock clock;

  EXPECT_EQ(clock.now(), nanoseconds{0});
  clock.advance(nanoseconds{5});
  clock.advance(nanoseconds{7});

  EXPECT_EQ(clock.now(), nanoseconds{12});
}

TEST(SteadyClock, NeverGoesBackAndIsOneObject) {
  const Clock& clock = steady_clock();
  const nanoseconds before = clock.now();

  EXPECT_GE(clock.now(), before);
  EXPECT_EQ(&steady_clock(), &clock);
}

}  // namespace
}  // namespace memstrata
