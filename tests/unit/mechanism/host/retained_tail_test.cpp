// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "support/host_rig.hpp"
#include "support/resident_bytes.hpp"
#include "support/scripted_governor.hpp"

namespace memstrata::host {
namespace {

using test::HostRig;
using test::ScriptedGovernor;

/// A rig whose backing keeps up to three granules behind a decommitted tail.
struct TailRig : HostRig {
  TailRig() : HostRig(12, with_tail()) {}

  [[nodiscard]] static PageBackingOptions with_tail() {
    PageBackingOptions options = small_options();
    options.retained_tail = options.granule * 3;
    options.governor = ScriptedGovernor::with_limit(options.granule * 8);
    return options;
  }

  [[nodiscard]] Bytes leased() const { return backing.options().governor->usage(Tier::host).used; }

  void commit(std::uint64_t first, std::uint64_t count) {
    ASSERT_TRUE(backing.commit(reservation, granules(first, count)).has_value());
  }

  void decommit(std::uint64_t first, std::uint64_t count) {
    ASSERT_TRUE(backing.decommit(reservation, granules(first, count)).has_value());
  }
};

TEST(PageBackingRetainedTail, StaysResidentFaultsAndIsStillLeased) {
  TailRig rig;
  rig.commit(0, 4);
  rig.fill(0, 4, 6);

  rig.decommit(2, 2);

  EXPECT_EQ(rig.backing.committed(rig.reservation), rig.g * 2);
  EXPECT_EQ(rig.backing.retained(rig.reservation), rig.g * 2);
  EXPECT_EQ(test::resident_bytes(rig.address(2), rig.g * 2), rig.g * 2);
  EXPECT_FALSE(test::is_readable(rig.address(2)));
  EXPECT_EQ(rig.leased(), rig.g * 4);
}

//
TEST(PageBackingRetainedTail, ReadsZeroWhenItIsCommittedAgainAndCostsNoNewLease) {
  TailRig rig;
  rig.commit(0, 4);
  rig.fill(0, 4, 6);
  rig.decommit(1, 3);

  rig.commit(1, 2);

  EXPECT_TRUE(rig.is_filled(1, 2, 0));
  EXPECT_TRUE(rig.is_filled(0, 1, 6));
  EXPECT_EQ(rig.backing.retained(rig.reservation), rig.g);
  EXPECT_EQ(rig.leased(), rig.g * 4);
}

TEST(PageBackingRetainedTail, IsBoundedAndKeepsTheLowestPart) {
  TailRig rig;
  rig.commit(0, 8);

  rig.decommit(2, 6);

  EXPECT_EQ(rig.backing.retained(rig.reservation), rig.g * 3);
  EXPECT_EQ(test::resident_bytes(rig.address(2), rig.g * 6), rig.g * 3);
  EXPECT_EQ(test::resident_bytes(rig.address(2), rig.g * 3), rig.g * 3);
  EXPECT_EQ(rig.leased(), rig.g * 5);
}

TEST(PageBackingRetainedTail, ShrinkingStepByStepMovesItDown) {
  TailRig rig;
  rig.commit(0, 6);

  for (std::uint64_t last = 6; last > 1; --last) {
    rig.decommit(last - 1, 1);
  }

  EXPECT_EQ(rig.backing.retained(rig.reservation), rig.g * 3);
  EXPECT_EQ(test::resident_bytes(rig.address(1), rig.g * 3), rig.g * 3);
  EXPECT_EQ(test::resident_bytes(rig.address(4), rig.g * 2), 0_B);
  EXPECT_EQ(rig.leased(), rig.g * 4);
}

TEST(PageBackingRetainedTail, AHoleInTheMiddleIsNotATail) {
  TailRig rig;
  rig.commit(0, 6);

  rig.decommit(2, 2);

  EXPECT_EQ(rig.backing.retained(rig.reservation), 0_B);
  EXPECT_EQ(test::resident_bytes(rig.address(2), rig.g * 2), 0_B);
  EXPECT_EQ(rig.leased(), rig.g * 4);
}

TEST(PageBackingRetainedTail, AnotherTailReplacesIt) {
  TailRig rig;
  rig.commit(0, 2);
  rig.commit(6, 2);
  rig.decommit(7, 1);

  rig.decommit(1, 1);

  EXPECT_EQ(rig.backing.retained(rig.reservation), rig.g);
  EXPECT_EQ(test::resident_bytes(rig.address(7), rig.g), 0_B);
  EXPECT_EQ(test::resident_bytes(rig.address(1), rig.g), rig.g);
  EXPECT_EQ(rig.leased(), rig.g * 3);
}

TEST(PageBackingRetainedTail, ACommitThatDoesNotContinueItGivesItBack) {
  TailRig rig;
  rig.commit(0, 4);
  rig.fill(0, 4, 6);
  rig.decommit(1, 3);

  rig.commit(2, 1);

  EXPECT_EQ(rig.backing.retained(rig.reservation), 0_B);
  EXPECT_TRUE(rig.is_filled(2, 1, 0));
  EXPECT_EQ(test::resident_bytes(rig.address(1), rig.g), 0_B);
  EXPECT_EQ(rig.leased(), rig.g * 2);
}

TEST(PageBackingRetainedTail, ALongerCommitReusesItAndLeasesTheRest) {
  TailRig rig;
  rig.commit(0, 3);
  rig.fill(0, 3, 6);
  rig.decommit(1, 2);

  rig.commit(1, 5);

  EXPECT_TRUE(rig.is_filled(1, 5, 0));
  EXPECT_EQ(rig.backing.retained(rig.reservation), 0_B);
  EXPECT_EQ(rig.leased(), rig.g * 6);
}

TEST(PageBackingRetainedTail, TrimGivesItBackAndSaysHowMuch) {
  TailRig rig;
  rig.commit(0, 4);
  rig.decommit(2, 2);

  const auto trimmed = rig.backing.trim_retained(rig.reservation);

  ASSERT_TRUE(trimmed.has_value());
  EXPECT_EQ(*trimmed, rig.g * 2);
  EXPECT_EQ(rig.backing.retained(rig.reservation), 0_B);
  EXPECT_EQ(test::resident_bytes(rig.address(2), rig.g * 2), 0_B);
  EXPECT_EQ(rig.leased(), rig.g * 2);
}

TEST(PageBackingRetainedTail, ATrimThatTheKernelRefusesKeepsIt) {
  TailRig rig;
  rig.commit(0, 4);
  rig.decommit(2, 2);
  rig.kernel->break_nth(1, test::Breakage::before);

  const auto refused = rig.backing.trim_retained(rig.reservation);

  ASSERT_FALSE(refused.has_value());
  EXPECT_STREQ(std::get<Os>(refused.error().kind).operation, "madvise");
  EXPECT_EQ(rig.backing.retained(rig.reservation), rig.g * 2);
  EXPECT_EQ(rig.leased(), rig.g * 4);
}

TEST(PageBackingRetainedTail, GoesWithItsReservation) {
  const auto governor = ScriptedGovernor::with_limit(1_GiB);
  PageBackingOptions options = HostRig::small_options();
  options.retained_tail = options.granule * 3;
  options.governor = governor;
  {
    HostRig rig(4, options);
    ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 4)).has_value());
    ASSERT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(1, 3)).has_value());
  }

  EXPECT_EQ(governor->usage(Tier::host).used, 0_B);
  EXPECT_FALSE(governor->books().over_released());
}

TEST(PageBackingRetainedTail, MakesWayForASharedPrefix) {
  TailRig rig;
  const auto prefix = rig.prefix(1, 40);
  rig.commit(0, 3);
  rig.decommit(1, 2);

  const auto mapped = rig.backing.map_shared(rig.reservation, rig.g, prefix, rig.granules(0, 1));

  ASSERT_TRUE(mapped.has_value());
  EXPECT_EQ(rig.backing.retained(rig.reservation), 0_B);
  EXPECT_TRUE(rig.is_filled(1, 1, 40));
  EXPECT_EQ(rig.leased(), rig.g * 2) << "one committed, one behind the prefix";
}

}  // namespace
}  // namespace memstrata::host
