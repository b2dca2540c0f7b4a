// SPDX-License-Identifier: Apache-2.0
// Failures of backing and governor, one step at a time.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/structure/virtual_buffer.hpp"
#include "support/sim_backing.hpp"
#include "support/sim_rig.hpp"

namespace memstrata {
namespace {

using test::memory_error;
using test::SimBacking;
using test::SimRig;

struct State {
  Bytes length;
  Bytes committed;
  Bytes shared;
  Bytes leased;
  Bytes used;
  Bytes physical;

  friend bool operator==(const State&, const State&) = default;
};

[[nodiscard]] State state_of(const SimRig& rig, const VirtualBuffer<SimBacking>& buffer) {
  return {.length = buffer.length(),
          .committed = buffer.committed(),
          .shared = buffer.shared_bytes(),
          .leased = buffer.leased(),
          .used = rig.used(),
          .physical = rig.backing->physical()};
}

//
TEST(VirtualBufferGrowFault, AFailedCommitRefundsANewAndAnExtendedLease) {
  for (const char* fault : {"commit", "commit_late"}) {
    for (const Bytes before : {Bytes{}, 4_KiB}) {
      SCOPED_TRACE(std::string(fault) + " from " + std::to_string(before.value));
      const SimRig rig;
      auto buffer = rig.buffer(1_MiB);
      ASSERT_TRUE(buffer.grow_to(before).has_value());
      const State old = state_of(rig, buffer);
      rig.backing->faults().fail_next(fault);

      const auto refused = buffer.grow_to(32_KiB);

      ASSERT_FALSE(refused.has_value());
      ASSERT_NE(memory_error<Os>(refused.error()), nullptr);
      EXPECT_EQ(memory_error<Os>(refused.error())->code, SimBacking::scripted_code);
      EXPECT_EQ(state_of(rig, buffer), old);
      EXPECT_TRUE(buffer.validate());
      EXPECT_TRUE(buffer.grow_to(32_KiB).has_value());
    }
  }
}

TEST(VirtualBufferGrowFault, EachClaimInTurnLeavesTheStateAsBefore) {
  for (std::uint64_t step = 1; step <= 4; ++step) {
    SCOPED_TRACE(step);
    const SimRig rig;
    auto buffer = rig.buffer(1_MiB);
    rig.governor->books().faults().fail_nth("claim", step);
    for (std::uint64_t growth = 1; growth < step; ++growth) {
      ASSERT_TRUE(buffer.grow_to(rig.granule() * growth).has_value());
    }
    const State old = state_of(rig, buffer);

    const auto refused = buffer.grow_to(rig.granule() * step);

    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(test::budget_error<TierExhausted>(refused.error()), nullptr);
    EXPECT_EQ(state_of(rig, buffer), old);
    EXPECT_EQ(rig.calls("commit"), step - 1);
    EXPECT_TRUE(buffer.validate());
  }
}

TEST(VirtualBufferGrowFault, AFailedCommitAheadFallsBackToWhatIsNeeded) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB, 64_KiB);
  rig.backing->faults().fail_next("commit");

  ASSERT_TRUE(buffer.grow_to(1_B).has_value());

  EXPECT_EQ(buffer.committed(), rig.granule());
  EXPECT_EQ(rig.used(), rig.granule());
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferGrowFault, WithNothingToCommitAheadAFailedCommitIsNotTriedAgain) {
  const SimRig rig;
  auto buffer = rig.buffer(32_KiB, 64_KiB);
  rig.backing->faults().fail_next("commit");

  EXPECT_FALSE(buffer.grow_to(32_KiB).has_value());

  EXPECT_EQ(rig.calls("commit"), 1U);
  EXPECT_EQ(buffer.committed(), Bytes{});
  EXPECT_EQ(rig.used(), Bytes{});
}

TEST(VirtualBufferGrowFault, WhatABackingCannotUndoIsGivenBackByTheBuffer) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(4_KiB).has_value());
  const State old = state_of(rig, buffer);
  rig.backing->faults().fail_next("commit_stuck");

  EXPECT_FALSE(buffer.grow_to(20_KiB).has_value());

  EXPECT_EQ(state_of(rig, buffer), old);
  EXPECT_TRUE(buffer.validate());
  EXPECT_EQ(rig.backing->take_misuses().size(), 2U);  // probing asks for what is not there
}

TEST(VirtualBufferGrowFault, WhatCannotBeUndoneStaysLeasedUntilTheNextGrowth) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  rig.backing->faults().fail_next("commit_stuck");
  rig.backing->faults().fail_nth("decommit", 4);

  EXPECT_FALSE(buffer.grow_to(16_KiB).has_value());

  EXPECT_EQ(rig.backing->take_misuses().size(), 2U);
  EXPECT_EQ(buffer.length(), Bytes{});
  EXPECT_EQ(buffer.committed(), rig.granule());
  EXPECT_EQ(rig.used(), rig.granule());
  EXPECT_TRUE(buffer.validate());
  EXPECT_TRUE(buffer.grow_to(16_KiB).has_value());
  EXPECT_EQ(buffer.committed(), 16_KiB);
  EXPECT_TRUE(buffer.validate());
}

// W-8, X-031
TEST(VirtualBufferShrinkFault, AFailureMidwayLowersTheLengthAndCountsWhatIsLeft) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(rig.granule() * 8).has_value());
  rig.backing->faults().fail_next("decommit_midway");

  const auto refused = buffer.shrink_to(rig.granule() * 2);

  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(memory_error<Os>(refused.error()), nullptr);
  EXPECT_EQ(buffer.length(), rig.granule() * 2);
  EXPECT_LE(buffer.length(), buffer.committed());
  EXPECT_EQ(buffer.committed(), rig.granule() * 5);
  EXPECT_EQ(buffer.leased(), rig.granule() * 5);
  EXPECT_EQ(rig.used(), rig.granule() * 5);
  EXPECT_EQ(rig.backing->physical(), rig.granule() * 5);
  EXPECT_TRUE(buffer.validate());
}

// W-8, X-031
TEST(VirtualBufferShrinkFault, TheSecondReleaseFailingKeepsLengthBelowCommitted) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(rig.granule() * 4).has_value());
  ASSERT_TRUE(buffer.shrink_to(rig.granule() * 3).has_value());
  rig.backing->faults().fail_next("decommit");

  const auto refused = buffer.shrink_to(rig.granule());

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(buffer.length(), rig.granule());
  EXPECT_EQ(buffer.committed(), rig.granule() * 3);
  EXPECT_EQ(buffer.leased(), rig.granule() * 3);
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferShrinkFault, TheNextGrowthFirstReturnsWhatWasLeftSoThatItStartsFresh) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(rig.granule() * 8).has_value());
  rig.backing->faults().fail_next("decommit_midway");
  ASSERT_FALSE(buffer.shrink_to(rig.granule() * 2).has_value());

  ASSERT_TRUE(buffer.grow_to(rig.granule() * 3).has_value());

  EXPECT_EQ(buffer.committed(), rig.granule() * 3);
  EXPECT_EQ(rig.used(), rig.granule() * 3);
  EXPECT_FALSE(buffer.segments().has_stranded());
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferShrinkFault, AGrowthThatCannotReturnWhatWasLeftSaysSoAndChangesNothing) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(rig.granule() * 8).has_value());
  rig.backing->faults().fail_next("decommit");
  ASSERT_FALSE(buffer.shrink_to(rig.granule()).has_value());
  const State old = state_of(rig, buffer);
  rig.backing->faults().fail_next("decommit");

  const auto refused = buffer.grow_to(rig.granule() * 4);

  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(memory_error<Os>(refused.error()), nullptr);
  EXPECT_EQ(state_of(rig, buffer), old);
  EXPECT_TRUE(buffer.trim().has_value());
  EXPECT_EQ(rig.used(), rig.granule());
}

TEST(VirtualBufferShrinkFault, ManyFailuresInARowKeepTheBooksRight) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(rig.granule() * 64).has_value());

  for (std::uint64_t kept = 60; kept > 0; kept -= 4) {
    rig.backing->faults().fail_next("decommit_midway");
    ASSERT_FALSE(buffer.shrink_to(rig.granule() * kept).has_value());
    ASSERT_EQ(buffer.length(), rig.granule() * kept);
    ASSERT_TRUE(buffer.validate());
  }

  ASSERT_TRUE(buffer.shrink_to(Bytes{}).has_value());
  EXPECT_EQ(rig.used(), Bytes{});
  EXPECT_EQ(rig.backing->physical(), Bytes{});
}

TEST(VirtualBufferShrinkFault, ADestroyedBufferReturnsWhatWasLeft) {
  const SimRig rig;
  {
    auto buffer = rig.buffer(1_MiB);
    ASSERT_TRUE(buffer.grow_to(rig.granule() * 8).has_value());
    rig.backing->faults().fail_next("decommit_midway");
    ASSERT_FALSE(buffer.shrink_to(Bytes{}).has_value());
  }

  EXPECT_EQ(rig.used(), Bytes{});
  EXPECT_EQ(rig.backing->physical(), Bytes{});
}

TEST(VirtualBufferPrintFault, SaysWhatIsNotYetReturned) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(rig.granule() * 4).has_value());
  rig.backing->faults().fail_next("decommit_midway");
  ASSERT_FALSE(buffer.shrink_to(rig.granule() * 2).has_value());

  EXPECT_NE(to_string(buffer).find("not yet returned: private [12288, 16384)"), std::string::npos)
      << to_string(buffer);
}

}  // namespace
}  // namespace memstrata
