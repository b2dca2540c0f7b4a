// SPDX-License-Identifier: Apache-2.0
// Shared prefixes under a buffer.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/structure/virtual_buffer.hpp"
#include "support/sim_backing.hpp"
#include "support/sim_rig.hpp"

namespace memstrata::virtual_buffer_shared_test {
namespace {

using test::budget_error;
using test::granules;
using test::memory_error;
using test::SimBacking;
using test::SimRig;

constexpr Bytes g = 4_KiB;  // the granule of the rig

TEST(VirtualBufferAttach, RaisesLengthAndSharedBytesButNeitherCommittedNorTheLease) {
  const SimRig rig;
  const auto prefix = rig.prefix(4);
  auto buffer = rig.buffer(1_MiB);

  ASSERT_TRUE(buffer.attach(prefix).has_value());

  EXPECT_EQ(buffer.length(), g * 4);
  EXPECT_EQ(buffer.shared_bytes(), g * 4);
  EXPECT_EQ(buffer.committed(), Bytes{});
  EXPECT_EQ(rig.used(), Bytes{});
  EXPECT_EQ(rig.backing->physical(), g * 4);
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferAttach, MoreSharersCostNoMemory) {
  const SimRig rig;
  const auto prefix = rig.prefix(4);
  auto first = rig.buffer(1_MiB);
  auto second = rig.buffer(1_MiB);

  ASSERT_TRUE(first.attach(prefix).has_value());
  ASSERT_TRUE(second.attach(prefix).has_value());

  EXPECT_EQ(rig.backing->physical(), g * 4);
}

TEST(VirtualBufferAttach, APartOfAPrefixCanBeAttached) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);

  ASSERT_TRUE(buffer.attach(rig.prefix(6), granules(g, 2, 3)).has_value());

  EXPECT_EQ(buffer.length(), g * 3);
  EXPECT_EQ(buffer.shared_bytes(), g * 3);
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferAttach, GrowthGoesOnPrivatelyBehindAPrefixAndAPrefixBehindIt) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);

  ASSERT_TRUE(buffer.attach(rig.prefix(2)).has_value());
  ASSERT_TRUE(buffer.grow_to(g * 3).has_value());
  ASSERT_TRUE(buffer.attach(rig.prefix(2)).has_value());
  ASSERT_TRUE(buffer.grow_to(g * 5 + 1_B).has_value());

  EXPECT_EQ(buffer.shared_bytes(), g * 4);
  EXPECT_EQ(buffer.committed(), g * 2);
  EXPECT_EQ(rig.used(), g * 2);
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferAttach, ALengthInsideAGranuleIsRefused) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(g + 1_B).has_value());

  const auto refused = buffer.attach(rig.prefix(1));

  ASSERT_FALSE(refused.has_value());
  const auto* error = memory_error<Misaligned>(refused.error());
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->value, g + 1_B);
  EXPECT_EQ(error->rounded, g * 2);
  EXPECT_EQ(buffer.length(), g + 1_B);
  EXPECT_EQ(rig.calls("map_shared"), 0U);
}

TEST(VirtualBufferAttach, APartThatIsMisalignedOrBeyondThePrefixIsRefused) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  const auto prefix = rig.prefix(2);

  const auto odd = buffer.attach(prefix, {.offset = 1_B, .size = g});
  const auto empty = buffer.attach(prefix, {.offset = g, .size = {}});
  const auto beyond = buffer.attach(prefix, granules(g, 1, 2));

  ASSERT_FALSE(odd.has_value());
  EXPECT_NE(memory_error<Misaligned>(odd.error()), nullptr);
  ASSERT_FALSE(empty.has_value());
  EXPECT_NE(memory_error<Misaligned>(empty.error()), nullptr);
  ASSERT_FALSE(beyond.has_value());
  ASSERT_NE(memory_error<OutOfRange>(beyond.error()), nullptr);
  EXPECT_EQ(memory_error<OutOfRange>(beyond.error())->overrun, g);
  EXPECT_EQ(rig.calls("map_shared"), 0U);
}

TEST(VirtualBufferAttach, BeyondTheCapacityIsRefused) {
  const SimRig rig;
  auto buffer = rig.buffer(g * 3);
  ASSERT_TRUE(buffer.grow_to(g * 2).has_value());

  const auto refused = buffer.attach(rig.prefix(2));

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<OverCapacity>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->requested, g * 4);
  EXPECT_EQ(error->capacity, g * 3);
}

TEST(VirtualBufferAttach, APrefixMayFillTheCapacityToItsEnd) {
  const SimRig rig;
  auto buffer = rig.buffer(g * 3);
  ASSERT_TRUE(buffer.grow_to(g).has_value());

  ASSERT_TRUE(buffer.attach(rig.prefix(2)).has_value());

  EXPECT_EQ(buffer.length(), buffer.capacity());
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferAttach, WhatIsCommittedAheadMakesPlace) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB, g * 7);
  ASSERT_TRUE(buffer.grow_to(g).has_value());

  ASSERT_TRUE(buffer.attach(rig.prefix(2)).has_value());

  EXPECT_EQ(buffer.committed(), g);
  EXPECT_EQ(rig.used(), g);
  EXPECT_EQ(buffer.length(), g * 3);
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferAttach, AFailureLeavesLengthAndSharedBytesAsBefore) {
  for (const char* fault : {"map_shared", "map_shared_late"}) {
    SCOPED_TRACE(fault);
    const SimRig rig;
    auto buffer = rig.buffer(1_MiB);
    ASSERT_TRUE(buffer.grow_to(g).has_value());
    const auto prefix = rig.prefix(2);
    rig.backing->faults().fail_next(fault);

    const auto refused = buffer.attach(prefix);

    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(memory_error<Os>(refused.error()), nullptr);
    EXPECT_EQ(buffer.length(), g);
    EXPECT_EQ(buffer.shared_bytes(), Bytes{});
    EXPECT_TRUE(buffer.validate());
    EXPECT_TRUE(buffer.attach(prefix).has_value());
  }
}

TEST(VirtualBufferAttach, AForeignPrefixIsRefusedByTheBacking) {
  const SimRig rig;
  const SimRig other;
  auto buffer = rig.buffer(1_MiB);

  const auto refused = buffer.attach(other.prefix(1));

  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(memory_error<PrefixRefused>(refused.error()), nullptr);
  EXPECT_TRUE(buffer.empty());
}

TEST(VirtualBufferShrinkShared, BelowASharedGranuleUnmapsItAndRefundsNothing) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  {
    const auto prefix = rig.prefix(4);
    ASSERT_TRUE(buffer.attach(prefix).has_value());
  }
  ASSERT_TRUE(buffer.grow_to(g * 6).has_value());

  ASSERT_TRUE(buffer.shrink_to(g).has_value());

  EXPECT_EQ(buffer.shared_bytes(), g);
  EXPECT_EQ(buffer.committed(), Bytes{});
  EXPECT_EQ(rig.governor->books().calls().back().bytes, g * 2);
  EXPECT_EQ(rig.used(), Bytes{});
  EXPECT_EQ(rig.backing->physical(), g);
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferShrinkShared, TheGranuleOfTheLastByteStaysAndCannotBeGrownInto) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.attach(rig.prefix(2)).has_value());
  ASSERT_TRUE(buffer.shrink_to(g + 10_B).has_value());

  const auto inside = buffer.grow_to(g + 11_B);
  const auto beyond = buffer.grow_to(g * 3);

  EXPECT_EQ(buffer.shared_bytes(), g * 2);
  ASSERT_FALSE(inside.has_value());
  EXPECT_NE(memory_error<PrefixRefused>(inside.error()), nullptr);
  EXPECT_NE(inside.error().message().find("break_shared"), std::string::npos);
  ASSERT_FALSE(beyond.has_value());
  EXPECT_NE(memory_error<PrefixRefused>(beyond.error()), nullptr);
  EXPECT_EQ(buffer.length(), g + 10_B);
  EXPECT_TRUE(buffer.grow_to(g).has_value());
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferShrinkShared, AfterABreakTheGranuleOfTheLastByteGrowsAgain) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.attach(rig.prefix(2)).has_value());
  ASSERT_TRUE(buffer.shrink_to(g + 10_B).has_value());

  ASSERT_TRUE(buffer.break_shared({.offset = g, .size = 10_B}).has_value());
  ASSERT_TRUE(buffer.grow_to(g * 3).has_value());

  EXPECT_EQ(buffer.committed(), g * 2);
  EXPECT_EQ(buffer.shared_bytes(), g);
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferShrinkShared, AFailedUnmapLowersTheLengthAndIsTriedAgain) {
  for (const char* fault : {"unmap_shared", "unmap_shared_midway"}) {
    SCOPED_TRACE(fault);
    const SimRig rig;
    auto buffer = rig.buffer(1_MiB);
    ASSERT_TRUE(buffer.attach(rig.prefix(4)).has_value());
    rig.backing->faults().fail_next(fault);

    ASSERT_FALSE(buffer.shrink_to(Bytes{}).has_value());

    EXPECT_EQ(buffer.length(), Bytes{});
    EXPECT_GE(buffer.shared_bytes(), g * 2);
    EXPECT_TRUE(buffer.validate());
    EXPECT_TRUE(buffer.grow_to(g).has_value());
    EXPECT_EQ(buffer.shared_bytes(), Bytes{});
    EXPECT_EQ(buffer.committed(), g);
    EXPECT_TRUE(buffer.validate());
  }
}

TEST(VirtualBufferBreak, MakesTheTouchedGranulesPrivateAndLeasesThem) {
  const SimRig rig;
  const auto prefix = rig.prefix(4);
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.attach(prefix).has_value());

  const auto broken = buffer.break_shared({.offset = g + 100_B, .size = g});

  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(*broken, g * 2);
  EXPECT_EQ(buffer.committed(), g * 2);
  EXPECT_EQ(buffer.shared_bytes(), g * 2);
  EXPECT_EQ(rig.used(), g * 2);
  EXPECT_EQ(rig.backing->physical(), g * 6);
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferBreak, OverSeveralPrefixesAndPrivateMemoryTakesOnlyTheShared) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.attach(rig.prefix(2)).has_value());
  ASSERT_TRUE(buffer.grow_to(g * 4).has_value());
  ASSERT_TRUE(buffer.attach(rig.prefix(2)).has_value());

  EXPECT_EQ(buffer.break_shared(granules(g, 1, 4)).value(), g * 2);

  EXPECT_EQ(buffer.committed(), g * 4);
  EXPECT_EQ(buffer.shared_bytes(), g * 2);
  EXPECT_TRUE(buffer.validate());
  EXPECT_EQ(buffer.break_shared(granules(g, 1, 4)).value(), Bytes{});
}

TEST(VirtualBufferBreak, NothingOrBeyondTheLengthNeedsNoCall) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.attach(rig.prefix(2)).has_value());

  const auto nothing = buffer.break_shared({.offset = g, .size = {}});
  const auto beyond = buffer.break_shared({.offset = g, .size = g + 1_B});

  ASSERT_TRUE(nothing.has_value());
  EXPECT_EQ(*nothing, Bytes{});
  ASSERT_FALSE(beyond.has_value());
  ASSERT_NE(memory_error<OutOfRange>(beyond.error()), nullptr);
  EXPECT_EQ(memory_error<OutOfRange>(beyond.error())->overrun, 1_B);
  EXPECT_EQ(rig.calls("break_shared"), 0U);
}

TEST(VirtualBufferBreak, WithoutBudgetNothingChanges) {
  const SimRig rig(g);
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.attach(rig.prefix(4)).has_value());

  const auto refused = buffer.break_shared(granules(g, 0, 2));

  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(budget_error<TierExhausted>(refused.error()), nullptr);
  EXPECT_EQ(rig.calls("break_shared"), 0U);
  EXPECT_EQ(buffer.shared_bytes(), g * 4);
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferBreak, AFailureOfTheBackingRefundsAndChangesNothing) {
  for (const char* fault : {"break_shared", "break_shared_late"}) {
    SCOPED_TRACE(fault);
    const SimRig rig;
    auto buffer = rig.buffer(1_MiB);
    ASSERT_TRUE(buffer.attach(rig.prefix(4)).has_value());
    rig.backing->faults().fail_next(fault);

    ASSERT_FALSE(buffer.break_shared(granules(g, 1, 2)).has_value());

    EXPECT_EQ(buffer.length(), g * 4);
    EXPECT_EQ(buffer.shared_bytes(), g * 4);
    EXPECT_EQ(rig.used(), Bytes{});
    EXPECT_TRUE(buffer.validate());
  }
}

TEST(VirtualBufferBreak, AFailureAtTheSecondPrefixKeepsWhatTheFirstBecame) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.attach(rig.prefix(2)).has_value());
  ASSERT_TRUE(buffer.attach(rig.prefix(2)).has_value());
  rig.backing->faults().fail_nth("break_shared", 2);

  ASSERT_FALSE(buffer.break_shared(granules(g, 0, 4)).has_value());

  EXPECT_EQ(buffer.committed(), g * 2);
  EXPECT_EQ(buffer.shared_bytes(), g * 2);
  EXPECT_EQ(rig.used(), g * 2);
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferBreak, ABackingThatLosesGranulesCutsTheLengthBelowThem) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.attach(rig.prefix(6)).has_value());
  ASSERT_TRUE(buffer.grow_to(g * 8).has_value());
  rig.backing->faults().fail_next("break_shared_lost");

  const auto refused = buffer.break_shared(granules(g, 2, 2));

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(buffer.length(), g * 2);
  EXPECT_EQ(buffer.shared_bytes(), g * 2);
  EXPECT_EQ(buffer.committed(), Bytes{});
  EXPECT_EQ(rig.used(), Bytes{});
  EXPECT_FALSE(buffer.segments().has_stranded());
  EXPECT_TRUE(buffer.validate());
  EXPECT_FALSE(rig.backing->take_misuses().empty());  // looking for what is left asks for the lost
}

TEST(VirtualBufferShared, LeavesThePrefixToOthersWhenItIsDestroyed) {
  const SimRig rig;
  const auto prefix = rig.prefix(2);
  auto other = rig.buffer(1_MiB);
  ASSERT_TRUE(other.attach(prefix).has_value());
  {
    auto buffer = rig.buffer(1_MiB);
    ASSERT_TRUE(buffer.attach(prefix).has_value());
    ASSERT_TRUE(buffer.break_shared(granules(g, 0, 1)).has_value());
  }

  EXPECT_EQ(rig.backing->physical(), g * 2);
  EXPECT_EQ(other.shared_bytes(), g * 2);
  EXPECT_EQ(rig.used(), Bytes{});
}

}  // namespace
}  // namespace memstrata::virtual_buffer_shared_test
