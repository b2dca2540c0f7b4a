// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/virtual_buffer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/core/identity.hpp"
#include "support/scripted_governor.hpp"
#include "support/sim_backing.hpp"
#include "support/sim_rig.hpp"

namespace memstrata {
namespace {

using test::BooksCall;
using test::budget_error;
using test::memory_error;
using test::sim_terms;
using test::SimBacking;
using test::SimRig;

// B-102
TEST(VirtualBufferCreate, ReservesAddressesOnlyWhateverTheBudget) {
  const SimRig rig(1_MiB);

  const auto buffer = rig.buffer(1_GiB);

  EXPECT_EQ(buffer.capacity(), 1_GiB);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.committed(), Bytes{});
  EXPECT_EQ(rig.available(), 1_MiB);
  EXPECT_EQ(rig.backing->physical(), Bytes{});
}

// B-100
TEST(VirtualBufferCreate, ABackingOfOtherBooksIsRefusedBeforeAnythingIsReserved) {
  const auto other = MemoryAuthorityId::issue(DeviceKey::device(0));
  const SimRig rig(1_MiB, {.accounting = PhysicalMemoryAccounting::backing(other)});

  const auto refused =
      VirtualBuffer<SimBacking>::create(rig.backing, 1_MiB, rig.governor, sim_terms);

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<AuthorityMismatch>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->backing, other);
  EXPECT_EQ(error->governor, rig.governor->authority_id());
  EXPECT_EQ(rig.backing->faults().all_calls(), 0U);
  EXPECT_EQ(rig.used(), Bytes{});
}

//
TEST(VirtualBufferCreate, ACapacityNearTheMaximumIsTooLarge) {
  const SimRig rig;

  const auto refused =
      VirtualBuffer<SimBacking>::create(rig.backing, Bytes::max(), rig.governor, sim_terms);

  ASSERT_FALSE(refused.has_value());
  ASSERT_NE(memory_error<TooLarge>(refused.error()), nullptr);
  EXPECT_EQ(memory_error<TooLarge>(refused.error())->value, Bytes::max());
  EXPECT_EQ(rig.calls("reserve"), 0U);
}

//
TEST(VirtualBufferCreate, ACapacityOfZeroGivesOneGranule) {
  const SimRig rig;

  EXPECT_EQ(rig.buffer(Bytes{}).capacity(), rig.granule());
  EXPECT_EQ(rig.buffer(rig.granule() + 1_B).capacity(), rig.granule() * 2);
}

// B-101
TEST(VirtualBufferGrow, TheBaseNeverChangesAndTheLengthIsWhatWasAsked) {
  const SimRig rig;
  auto buffer = rig.buffer(64_MiB);
  const DeviceAddress base = buffer.base();

  for (const Bytes target : {1_B, 4096_B, 1_MiB, 8_MiB, 32_MiB}) {
    ASSERT_TRUE(buffer.grow_to(target).has_value());

    EXPECT_EQ(buffer.base(), base);
    EXPECT_EQ(buffer.length(), target);
  }
  EXPECT_TRUE(buffer.validate());
}

// B-103
TEST(VirtualBufferGrow, InsideAGranuleNothingIsChargedOrCalled) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(1_B).has_value());
  EXPECT_EQ(buffer.committed(), rig.granule());
  EXPECT_EQ(rig.used(), rig.granule());

  ASSERT_TRUE(buffer.grow_to(2_B).has_value());
  ASSERT_TRUE(buffer.grow_to(rig.granule()).has_value());

  EXPECT_EQ(rig.used(), rig.granule());
  EXPECT_EQ(rig.calls("commit"), 1U);
  EXPECT_EQ(rig.governor->books().count(BooksCall::Kind::claim), 1U);
}

TEST(VirtualBufferGrow, EachStepIsOneLeaseAndOneCallForTheNewGranulesOnly) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(rig.granule() + 1_B).has_value());

  ASSERT_TRUE(buffer.grow_to(rig.granule() * 7).has_value());

  EXPECT_EQ(rig.calls("commit"), 2U);
  EXPECT_EQ(rig.governor->books().calls().back(),
            (BooksCall{
                .kind = BooksCall::Kind::claim, .tier = Tier::device, .bytes = rig.granule() * 5}));
  EXPECT_EQ(buffer.committed(), rig.granule() * 7);
  EXPECT_EQ(buffer.leased(), rig.granule() * 7);
}

TEST(VirtualBufferGrow, AGranuleThatIsNoPowerOfTwoServesAsWell) {
  const SimRig rig(256_MiB, {.granule = 12_KiB});
  auto buffer = rig.buffer(100_KiB, 1_B);
  EXPECT_EQ(buffer.capacity(), 108_KiB);

  ASSERT_TRUE(buffer.grow_to(30_KiB).has_value());
  EXPECT_EQ(buffer.committed(), 48_KiB);
  ASSERT_TRUE(buffer.shrink_to(13_KiB).has_value());

  EXPECT_EQ(buffer.committed(), 24_KiB);
  EXPECT_TRUE(buffer.validate());
}

// B-107
TEST(VirtualBufferGrow, BeyondTheCapacityIsRefusedWithTheRemedy) {
  const SimRig rig;
  auto buffer = rig.buffer(64_KiB);

  const auto refused = buffer.grow_to(64_KiB + 1_B);

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<OverCapacity>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->requested, 64_KiB + 1_B);
  EXPECT_EQ(error->capacity, 64_KiB);
  EXPECT_NE(refused.error().message().find("larger capacity"), std::string::npos);
  EXPECT_EQ(buffer.length(), Bytes{});
  EXPECT_EQ(rig.used(), Bytes{});
}

//
TEST(VirtualBufferGrow, TheLargestNumberIsOverCapacityAndWrapsNothing) {
  const SimRig rig;
  auto buffer = rig.buffer(64_KiB);

  const auto refused = buffer.grow_to(Bytes::max());

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<OverCapacity>(refused.error().kind));
}

// B-108
TEST(VirtualBufferGrow, ARefusedLeaseLeavesWhatIsCommittedUsable) {
  const SimRig rig(4_KiB);
  auto buffer = rig.buffer(64_MiB);
  ASSERT_TRUE(buffer.grow_to(1_B).has_value());

  const auto refused = buffer.grow_to(32_MiB);

  ASSERT_FALSE(refused.has_value());
  const auto* error = budget_error<TierExhausted>(refused.error());
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->requested, 32_MiB - 4_KiB);
  EXPECT_EQ(error->used, 4_KiB);
  EXPECT_EQ(error->limit, 4_KiB);
  EXPECT_EQ(error->available, Bytes{});
  EXPECT_EQ(error->role, MemoryRole::kv_cache);
  EXPECT_EQ(buffer.committed(), 4_KiB);
  EXPECT_EQ(buffer.length(), 1_B);
  EXPECT_EQ(rig.available(), Bytes{});
  EXPECT_TRUE(buffer.grow_to(4_KiB).has_value());
  EXPECT_TRUE(buffer.validate());
}

// B-099
TEST(VirtualBufferAccounting, ABackingOfTheSameBooksPaysForItself) {
  const auto governor = test::ScriptedGovernor::with_limit(1_MiB);
  const auto backing = std::make_shared<SimBacking>(
      test::SimOptions{.accounting = PhysicalMemoryAccounting::backing(governor->authority_id())});
  auto buffer = VirtualBuffer<SimBacking>::create(backing, 1_MiB, governor, sim_terms).value();

  ASSERT_TRUE(buffer.grow_to(backing->granularity()).has_value());

  EXPECT_EQ(backing->faults().calls("commit"), 1U);
  EXPECT_EQ(governor->usage(Tier::device).used, Bytes{});
  EXPECT_EQ(buffer.committed(), backing->granularity());
  EXPECT_TRUE(buffer.validate());
  ASSERT_TRUE(buffer.shrink_to(Bytes{}).has_value());
  EXPECT_TRUE(governor->books().calls().empty());
}

// B-105
TEST(VirtualBufferShrink, ToNothingGivesTheWholeBudgetBack) {
  const SimRig rig(8_MiB);
  auto buffer = rig.buffer(64_MiB);
  ASSERT_TRUE(buffer.grow_to(4_MiB).has_value());

  ASSERT_TRUE(buffer.shrink_to(Bytes{}).has_value());

  EXPECT_EQ(buffer.committed(), Bytes{});
  EXPECT_EQ(buffer.length(), Bytes{});
  EXPECT_EQ(rig.available(), 8_MiB);
  EXPECT_EQ(rig.backing->physical(), Bytes{});
}

// B-106
TEST(VirtualBufferShrink, InsideTheLastGranuleNothingIsGivenBack) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(rig.granule()).has_value());

  ASSERT_TRUE(buffer.shrink_to(rig.granule() - 1_B).has_value());

  EXPECT_EQ(buffer.committed(), rig.granule());
  EXPECT_EQ(buffer.length(), rig.granule() - 1_B);
  EXPECT_EQ(rig.calls("decommit"), 0U);
}

// W-7, X-030
TEST(VirtualBufferShrink, PartOfOneCommitIsReallyReturnedAndCanBeGrownAgain) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(rig.granule() * 4).has_value());

  ASSERT_TRUE(buffer.shrink_to(rig.granule() * 2).has_value());

  EXPECT_EQ(rig.backing->physical(), rig.granule() * 2);
  EXPECT_EQ(rig.used(), rig.granule() * 2);
  EXPECT_TRUE(buffer.validate());
  EXPECT_TRUE(buffer.grow_to(rig.granule() * 4).has_value());
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferShrink, OneGibibyteGrownInManyStepsIsOneCall) {
  const SimRig rig(2_GiB, {.granule = 2_MiB});
  auto buffer = rig.buffer(1_GiB);
  for (std::uint64_t step = 1; step <= 512; ++step) {
    ASSERT_TRUE(buffer.grow_to(2_MiB * step).has_value());
  }

  ASSERT_TRUE(buffer.shrink_to(Bytes{}).has_value());

  EXPECT_EQ(rig.calls("decommit"), 1U);
  EXPECT_EQ(rig.used(), Bytes{});
}

//
TEST(VirtualBufferShrink, ToALargerLengthAndGrowthToASmallerOneAreNoOps) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(10000_B).has_value());
  const auto calls = rig.backing->faults().all_calls();

  EXPECT_TRUE(buffer.shrink_to(20000_B).has_value());
  EXPECT_TRUE(buffer.shrink_to(10000_B).has_value());
  EXPECT_TRUE(buffer.grow_to(5000_B).has_value());
  EXPECT_TRUE(buffer.grow_to(Bytes{}).has_value());

  EXPECT_EQ(buffer.length(), 10000_B);
  EXPECT_EQ(rig.backing->faults().all_calls(), calls);
}

//
TEST(VirtualBufferShrink, ToTheSameLengthKeepsWhatIsCommittedAhead) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB, rig.granule() * 3);
  ASSERT_TRUE(buffer.grow_to(1_B).has_value());

  ASSERT_TRUE(buffer.shrink_to(1_B).has_value());

  EXPECT_EQ(buffer.committed(), rig.granule() * 4);
  EXPECT_EQ(rig.calls("decommit"), 0U);
}

// B-109, X-037
TEST(VirtualBufferDestroy, TheMemoryGoesBackBeforeTheLease) {
  const SimRig rig;
  Bytes leased_when_memory_went;
  rig.backing->on_destroy([&] { leased_when_memory_went = rig.used(); });
  {
    auto buffer = rig.buffer(1_MiB);
    ASSERT_TRUE(buffer.grow_to(rig.granule() * 3).has_value());
  }

  EXPECT_EQ(leased_when_memory_went, rig.granule() * 3);
  EXPECT_EQ(rig.used(), Bytes{});
  EXPECT_EQ(rig.backing->physical(), Bytes{});
  EXPECT_EQ(rig.backing->live_reservations(), 0U);
}

//
TEST(VirtualBufferMove, AssignmentReturnsTheOldMemoryBeforeTheOldLease) {
  const SimRig rig;
  auto target = rig.buffer(1_MiB);
  ASSERT_TRUE(target.grow_to(rig.granule()).has_value());
  auto source = rig.buffer(1_MiB);
  ASSERT_TRUE(source.grow_to(rig.granule() * 2).has_value());
  Bytes leased_when_memory_went;
  rig.backing->on_destroy([&] { leased_when_memory_went = rig.used(); });

  target = std::move(source);

  EXPECT_EQ(leased_when_memory_went, rig.granule() * 3);
  EXPECT_EQ(rig.used(), rig.granule() * 2);
  EXPECT_EQ(target.length(), rig.granule() * 2);
  EXPECT_TRUE(target.validate());
  rig.backing->on_destroy({});
}

TEST(VirtualBufferMove, AssignmentBringsGranuleCapacityAndCommitAheadAlong) {
  const SimRig fine;
  const SimRig coarse(256_MiB, {.granule = 64_KiB});
  auto target = fine.buffer(1_MiB);
  ASSERT_TRUE(target.grow_to(1_B).has_value());

  target = coarse.buffer(4_MiB, 128_KiB);
  ASSERT_TRUE(target.grow_to(1_B).has_value());

  EXPECT_EQ(target.granularity(), 64_KiB);
  EXPECT_EQ(target.capacity(), 4_MiB);
  EXPECT_EQ(target.committed(), 192_KiB);
  EXPECT_EQ(coarse.used(), 192_KiB);
  EXPECT_EQ(fine.used(), Bytes{});
  EXPECT_TRUE(target.validate());
  EXPECT_TRUE(target.shrink_to(Bytes{}).has_value());
  EXPECT_EQ(coarse.used(), Bytes{});
}

TEST(VirtualBufferMove, TheMovedBufferGoesOnWhereTheOtherStopped) {
  const SimRig rig;
  auto first = rig.buffer(1_MiB, rig.granule());
  ASSERT_TRUE(first.grow_to(1_B).has_value());
  const DeviceAddress base = first.base();

  auto second = std::move(first);

  EXPECT_EQ(second.base(), base);
  EXPECT_EQ(second.length(), 1_B);
  ASSERT_TRUE(second.grow_to(rig.granule() * 3).has_value());
  EXPECT_TRUE(second.validate());
}

TEST(VirtualBufferCommitAhead, TheNextGrowthsNeedNoCall) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB, rig.granule() * 3);

  for (std::uint64_t step = 1; step <= 8; ++step) {
    ASSERT_TRUE(buffer.grow_to(rig.granule() * step).has_value());
  }

  EXPECT_EQ(rig.calls("commit"), 2U);
  EXPECT_EQ(buffer.committed(), rig.granule() * 8);
  EXPECT_EQ(rig.used(), rig.granule() * 8);
}

TEST(VirtualBufferCommitAhead, StopsAtTheCapacityAndRoundsToGranules) {
  const SimRig rig;
  auto near_end = rig.buffer(rig.granule() * 3, 1_GiB);
  auto odd = rig.buffer(1_MiB, 1_B);

  ASSERT_TRUE(near_end.grow_to(1_B).has_value());
  ASSERT_TRUE(odd.grow_to(1_B).has_value());

  EXPECT_EQ(near_end.committed(), rig.granule() * 3);
  EXPECT_EQ(odd.committed(), rig.granule() * 2);
}

TEST(VirtualBufferCommitAhead, WithoutBudgetForItOnlyTheNeededIsTaken) {
  const SimRig rig(4_KiB * 2);
  auto buffer = rig.buffer(1_MiB, rig.granule() * 3);

  ASSERT_TRUE(buffer.grow_to(rig.granule() + 1_B).has_value());

  EXPECT_EQ(buffer.committed(), rig.granule() * 2);
  EXPECT_EQ(rig.available(), Bytes{});
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferCommitAhead, WithoutMemoryForItOnlyTheNeededIsTaken) {
  const SimRig rig(1_MiB, {.capacity = 4_KiB * 2});
  auto buffer = rig.buffer(1_MiB, rig.granule() * 3);

  ASSERT_TRUE(buffer.grow_to(rig.granule() + 1_B).has_value());

  EXPECT_EQ(buffer.committed(), rig.granule() * 2);
  EXPECT_EQ(rig.used(), rig.granule() * 2);
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferTrim, GivesBackWhatIsCommittedAhead) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB, rig.granule() * 3);
  ASSERT_TRUE(buffer.grow_to(1_B).has_value());

  ASSERT_TRUE(buffer.trim().has_value());

  EXPECT_EQ(buffer.committed(), rig.granule());
  EXPECT_EQ(buffer.length(), 1_B);
  EXPECT_EQ(rig.used(), rig.granule());
  EXPECT_TRUE(buffer.validate());
}

TEST(VirtualBufferPrint, NamesRangesAndTotals) {
  const SimRig rig;
  auto buffer = rig.buffer(16_KiB);
  ASSERT_TRUE(buffer.attach(rig.prefix(1)).has_value());
  ASSERT_TRUE(buffer.grow_to(10000_B).has_value());

  const std::string text = to_string(buffer);

  EXPECT_NE(text.find("length 10000 of 16384 bytes in granules of 4096"), std::string::npos)
      << text;
  EXPECT_NE(text.find("8192 committed, 4096 shared, 8192 leased"), std::string::npos) << text;
  EXPECT_NE(text.find("shared [0, 4096), private [4096, 12288)"), std::string::npos) << text;
}

}  // namespace
}  // namespace memstrata
