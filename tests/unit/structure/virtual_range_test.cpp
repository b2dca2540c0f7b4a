// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/virtual_range.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/core/identity.hpp"
#include "support/sim_backing.hpp"
#include "support/sim_rig.hpp"

namespace memstrata {
namespace {

using test::granules;
using test::memory_error;
using test::sim_terms;
using test::SimBacking;
using test::SimRig;

// B-091, B-102
TEST(VirtualRangeReserve, ALargeRangeCostsNothing) {
  const SimRig rig(1_MiB);

  const auto range = rig.range(rig.granule() * 65536);

  EXPECT_EQ(range.size(), rig.granule() * 65536);
  EXPECT_EQ(range.committed(), Bytes{});
  EXPECT_EQ(rig.used(), Bytes{});
}

//
TEST(VirtualRangeReserve, ALengthNearTheMaximumIsTooLarge) {
  const SimRig rig;

  const auto refused =
      VirtualRange<SimBacking>::reserve(rig.backing, Bytes::max() - 1_B, rig.governor, sim_terms);

  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(memory_error<TooLarge>(refused.error()), nullptr);
  EXPECT_EQ(rig.calls("reserve"), 0U);
}

TEST(VirtualRangeReserve, ALengthOfZeroOrOfHalfAGranuleIsMisaligned) {
  const SimRig rig;

  const auto zero =
      VirtualRange<SimBacking>::reserve(rig.backing, Bytes{}, rig.governor, sim_terms);
  const auto half = VirtualRange<SimBacking>::reserve(
      rig.backing, Bytes{rig.granule().value / 2}, rig.governor, sim_terms);

  ASSERT_FALSE(zero.has_value());
  ASSERT_FALSE(half.has_value());
  ASSERT_NE(memory_error<Misaligned>(zero.error()), nullptr);
  EXPECT_EQ(memory_error<Misaligned>(zero.error())->rounded, rig.granule());
  ASSERT_NE(memory_error<Misaligned>(half.error()), nullptr);
  EXPECT_EQ(memory_error<Misaligned>(half.error())->rounded, rig.granule());
}

// B-100
TEST(VirtualRangeReserve, ABackingOfOtherBooksIsRefusedBeforeAnythingIsReserved) {
  const auto other = MemoryAuthorityId::issue(DeviceKey::device(0));
  const SimRig rig(1_MiB, {.accounting = PhysicalMemoryAccounting::backing(other)});

  const auto refused =
      VirtualRange<SimBacking>::reserve(rig.backing, 1_MiB, rig.governor, sim_terms);

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<AuthorityMismatch>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->backing, other);
  EXPECT_EQ(error->governor, rig.governor->authority_id());
  EXPECT_EQ(rig.calls("reserve"), 0U);
}

TEST(VirtualRangeReserve, ARefusalOfTheBackingPassesUnchanged) {
  const SimRig rig;
  rig.backing->faults().fail_next("reserve");

  const auto refused =
      VirtualRange<SimBacking>::reserve(rig.backing, 1_MiB, rig.governor, sim_terms);

  ASSERT_FALSE(refused.has_value());
  const auto* error = memory_error<Os>(refused.error());
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code, SimBacking::scripted_code);
  EXPECT_EQ(rig.backing->live_reservations(), 0U);
}

// B-098
TEST(VirtualRangeCommit, GranulesInAnyOrderAreIndependent) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 5);

  for (const std::uint64_t granule : {3U, 0U, 4U}) {
    ASSERT_TRUE(range.commit(granules(rig.granule(), granule, 1)).has_value());
  }

  EXPECT_EQ(range.committed(), rig.granule() * 3);
  EXPECT_EQ(range.runs(), 2U);
  EXPECT_TRUE(range.is_committed(granules(rig.granule(), 3, 2)));
  EXPECT_FALSE(range.is_committed(granules(rig.granule(), 0, 2)));
  EXPECT_FALSE(range.is_committed(granules(rig.granule(), 4, 2)));
  EXPECT_TRUE(range.validate());
}

TEST(VirtualRangeCommit, ExactlyWhatIsCommittedIsLeased) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 8);

  ASSERT_TRUE(range.commit(granules(rig.granule(), 2, 3)).has_value());

  EXPECT_EQ(rig.used(), rig.granule() * 3);
  EXPECT_EQ(range.leased(), rig.granule() * 3);
  EXPECT_EQ(rig.backing->physical(), rig.granule() * 3);
}

// B-092, B-097, X-032
TEST(VirtualRangeCommit, RangesThatAreNotWholeGranulesNeverReachTheBacking) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 3);

  const auto offset = range.commit(ByteRange{.offset = 1_B, .size = rig.granule()});
  const auto empty = range.commit(ByteRange{.offset = rig.granule(), .size = {}});

  ASSERT_FALSE(offset.has_value());
  ASSERT_NE(memory_error<Misaligned>(offset.error()), nullptr);
  EXPECT_EQ(memory_error<Misaligned>(offset.error())->value, 1_B);
  EXPECT_EQ(memory_error<Misaligned>(offset.error())->rounded, rig.granule());
  ASSERT_FALSE(empty.has_value());
  ASSERT_NE(memory_error<Misaligned>(empty.error()), nullptr);
  EXPECT_EQ(memory_error<Misaligned>(empty.error())->value, Bytes{});
  EXPECT_EQ(rig.calls("commit"), 0U);
  EXPECT_EQ(rig.used(), Bytes{});
}

// B-094
TEST(VirtualRangeCommit, AnOverlapNamesTheFirstGranuleInTheWayAndLeasesNothing) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 4);
  ASSERT_TRUE(range.commit(granules(rig.granule(), 1, 2)).has_value());

  const auto refused = range.commit(granules(rig.granule(), 0, 4));

  ASSERT_FALSE(refused.has_value());
  const auto* error = memory_error<AlreadyMapped>(refused.error());
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->offset, rig.granule());
  EXPECT_EQ(rig.used(), rig.granule() * 2);
  EXPECT_EQ(rig.governor->books().count(test::BooksCall::Kind::claim), 1U);
  EXPECT_TRUE(range.validate());
}

TEST(VirtualRangeCommit, ABatchIsOneLeaseAndOneCall) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 8);
  const std::array ranges{granules(rig.granule(), 6, 1), granules(rig.granule(), 1, 2)};

  ASSERT_TRUE(range.commit(ranges).has_value());

  EXPECT_EQ(range.committed(), rig.granule() * 3);
  EXPECT_EQ(rig.calls("commit_batch"), 1U);
  EXPECT_EQ(rig.governor->books().count(test::BooksCall::Kind::claim), 1U);
}

TEST(VirtualRangeCommit, ABatchThatOverlapsItselfChangesNothing) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 8);
  const std::array ranges{granules(rig.granule(), 1, 2), granules(rig.granule(), 2, 1)};

  const auto refused = range.commit(ranges);

  ASSERT_FALSE(refused.has_value());
  ASSERT_NE(memory_error<AlreadyMapped>(refused.error()), nullptr);
  EXPECT_EQ(memory_error<AlreadyMapped>(refused.error())->offset, rig.granule() * 2);
  EXPECT_EQ(range.committed(), Bytes{});
  EXPECT_EQ(rig.calls("commit_batch"), 0U);
  EXPECT_TRUE(range.validate());
}

TEST(VirtualRangeCommit, AnEmptyBatchSucceedsWithoutACall) {
  const SimRig rig;
  auto range = rig.range(rig.granule());

  EXPECT_TRUE(range.commit(std::vector<ByteRange>{}).has_value());

  EXPECT_EQ(rig.calls("commit_batch"), 0U);
}

TEST(VirtualRangeCommit, ARefusedLeaseNeverReachesTheBacking) {
  const SimRig rig(4_KiB);
  auto range = rig.range(rig.granule() * 4);

  const auto refused = range.commit(granules(rig.granule(), 0, 2));

  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(test::budget_error<TierExhausted>(refused.error()), nullptr);
  EXPECT_EQ(rig.calls("commit"), 0U);
  EXPECT_EQ(range.committed(), Bytes{});
  EXPECT_TRUE(range.validate());
}

// W-13, X-034
TEST(VirtualRangeCommit, AFailedBatchLeavesMemoryBooksAndLeaseAsBefore) {
  for (const char* fault : {"commit_batch", "commit_batch_late"}) {
    SCOPED_TRACE(fault);
    const SimRig rig;
    auto range = rig.range(rig.granule() * 8);
    ASSERT_TRUE(range.commit(granules(rig.granule(), 7, 1)).has_value());
    const std::array ranges{granules(rig.granule(), 0, 2), granules(rig.granule(), 4, 1)};
    rig.backing->faults().fail_next(fault);

    const auto refused = range.commit(ranges);

    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(memory_error<Os>(refused.error()), nullptr);
    EXPECT_EQ(range.committed(), rig.granule());
    EXPECT_EQ(rig.used(), rig.granule());
    EXPECT_TRUE(range.validate());
    EXPECT_TRUE(range.commit(ranges).has_value());
  }
}

TEST(VirtualRangeCommit, WhatABackingCannotUndoIsGivenBackByTheRange) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 8);
  rig.backing->faults().fail_next("commit_stuck");

  const auto refused = range.commit(granules(rig.granule(), 0, 4));

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(range.committed(), Bytes{});
  EXPECT_EQ(rig.used(), Bytes{});
  EXPECT_EQ(rig.backing->physical(), Bytes{});
  EXPECT_TRUE(range.validate());
  // Probing what is left asks for granules that are not there.
  EXPECT_EQ(rig.backing->take_misuses().size(), 2U);
}

TEST(VirtualRangeCommit, WhatCannotBeUndoneAtAllStaysLeasedAndVisible) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 8);
  rig.backing->faults().fail_next("commit_stuck");
  rig.backing->faults().fail_nth("decommit", 4);

  const auto refused = range.commit(granules(rig.granule(), 0, 4));

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(range.committed(), rig.granule());
  EXPECT_TRUE(range.is_committed(granules(rig.granule(), 3, 1)));
  EXPECT_EQ(rig.used(), rig.granule());
  EXPECT_TRUE(range.validate());
  EXPECT_EQ(rig.backing->take_misuses().size(), 2U);
}

// B-095
TEST(VirtualRangeDecommit, WhatIsNotCommittedSucceedsWithoutEffect) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 4);

  EXPECT_EQ(range.decommit(granules(rig.granule(), 0, 4)).value(), Bytes{});

  EXPECT_EQ(rig.calls("decommit"), 0U);
}

// W-7, B-090
TEST(VirtualRangeDecommit, AnySubRangeOfOneCommitIsReturnedAndTheRestStays) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 8);
  ASSERT_TRUE(range.commit(granules(rig.granule(), 0, 8)).has_value());

  EXPECT_EQ(range.decommit(granules(rig.granule(), 3, 2)).value(), rig.granule() * 2);

  EXPECT_EQ(range.committed(), rig.granule() * 6);
  EXPECT_EQ(rig.backing->physical(), rig.granule() * 6);
  EXPECT_EQ(rig.used(), rig.granule() * 6);
  EXPECT_EQ(range.runs(), 2U);
  EXPECT_TRUE(range.commit(granules(rig.granule(), 3, 2)).has_value());
  EXPECT_TRUE(range.validate());
}

TEST(VirtualRangeDecommit, ARangeWithHolesGivesBackEachRunWithOneCall) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 8);
  const std::array ranges{granules(rig.granule(), 0, 2), granules(rig.granule(), 4, 3)};
  ASSERT_TRUE(range.commit(ranges).has_value());

  EXPECT_EQ(range.decommit(granules(rig.granule(), 1, 7)).value(), rig.granule() * 4);

  EXPECT_EQ(rig.calls("decommit"), 2U);
  EXPECT_EQ(range.committed(), rig.granule());
  EXPECT_TRUE(range.validate());
}

TEST(VirtualRangeDecommit, MisalignedAndOutOfRangeAreTypedRefusals) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 2);
  ASSERT_TRUE(range.commit(granules(rig.granule(), 0, 2)).has_value());

  const auto odd = range.decommit({.offset = {}, .size = 1_B});
  const auto beyond = range.decommit(granules(rig.granule(), 1, 2));

  ASSERT_FALSE(odd.has_value());
  EXPECT_NE(memory_error<Misaligned>(odd.error()), nullptr);
  ASSERT_FALSE(beyond.has_value());
  ASSERT_NE(memory_error<OutOfRange>(beyond.error()), nullptr);
  EXPECT_EQ(memory_error<OutOfRange>(beyond.error())->overrun, rig.granule());
  EXPECT_EQ(range.committed(), rig.granule() * 2);
}

TEST(VirtualRangeDecommit, AFailureMidwayKeepsExactlyWhatIsStillThere) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 8);
  const std::array ranges{granules(rig.granule(), 0, 1), granules(rig.granule(), 2, 6)};
  ASSERT_TRUE(range.commit(ranges).has_value());
  rig.backing->faults().fail_nth("decommit_midway", 2);

  const auto refused = range.decommit(granules(rig.granule(), 0, 8));

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(range.committed(), rig.granule() * 3);
  EXPECT_TRUE(range.is_committed(granules(rig.granule(), 5, 3)));
  EXPECT_EQ(rig.used(), rig.granule() * 3);
  EXPECT_TRUE(range.validate());
  EXPECT_TRUE(range.decommit(granules(rig.granule(), 0, 8)).has_value());
  EXPECT_EQ(rig.used(), Bytes{});
}

TEST(VirtualRangeDecommit, ARefusalAtTheStartChangesNothing) {
  const SimRig rig;
  auto range = rig.range(rig.granule() * 8);
  ASSERT_TRUE(range.commit(granules(rig.granule(), 2, 4)).has_value());
  rig.backing->faults().fail_next("decommit");

  EXPECT_FALSE(range.decommit(granules(rig.granule(), 0, 8)).has_value());

  EXPECT_EQ(range.committed(), rig.granule() * 4);
  EXPECT_EQ(rig.used(), rig.granule() * 4);
  EXPECT_TRUE(range.validate());
}

// B-109, X-037
TEST(VirtualRangeDestroy, TheMemoryGoesBackBeforeTheLease) {
  const SimRig rig;
  Bytes leased_when_memory_went;
  rig.backing->on_destroy([&] { leased_when_memory_went = rig.used(); });
  {
    auto range = rig.range(rig.granule() * 4);
    ASSERT_TRUE(range.commit(granules(rig.granule(), 0, 3)).has_value());
  }

  EXPECT_EQ(leased_when_memory_went, rig.granule() * 3);
  EXPECT_EQ(rig.used(), Bytes{});
  EXPECT_EQ(rig.backing->physical(), Bytes{});
}

TEST(VirtualRangeMove, TheMovedRangeKeepsMemoryLeaseAndAddress) {
  const SimRig rig;
  auto first = rig.range(rig.granule() * 4);
  ASSERT_TRUE(first.commit(granules(rig.granule(), 1, 2)).has_value());
  const DeviceAddress base = first.base();

  auto second = std::move(first);

  EXPECT_EQ(second.base(), base);
  EXPECT_EQ(second.committed(), rig.granule() * 2);
  EXPECT_TRUE(second.validate());
  EXPECT_EQ(rig.used(), rig.granule() * 2);
}

//
TEST(VirtualRangeMove, AssignmentReturnsTheOldMemoryBeforeTheOldLease) {
  const SimRig rig;
  auto target = rig.range(rig.granule() * 4);
  ASSERT_TRUE(target.commit(granules(rig.granule(), 0, 1)).has_value());
  auto source = rig.range(rig.granule() * 4);
  ASSERT_TRUE(source.commit(granules(rig.granule(), 0, 2)).has_value());
  Bytes leased_when_memory_went;
  rig.backing->on_destroy([&] { leased_when_memory_went = rig.used(); });

  target = std::move(source);

  EXPECT_EQ(leased_when_memory_went, rig.granule() * 3);
  EXPECT_EQ(rig.used(), rig.granule() * 2);
  EXPECT_EQ(target.committed(), rig.granule() * 2);
  EXPECT_TRUE(target.validate());
  rig.backing->on_destroy({});
}

TEST(VirtualRangeAccounting, ABackingThatPaysIsNotChargedTwice) {
  const auto governor = test::ScriptedGovernor::with_limit(1_MiB);
  const auto backing = std::make_shared<SimBacking>(
      test::SimOptions{.accounting = PhysicalMemoryAccounting::backing(governor->authority_id())});
  auto range =
      VirtualRange<SimBacking>::reserve(backing, backing->granularity() * 4, governor, sim_terms)
          .value();

  ASSERT_TRUE(range.commit(granules(backing->granularity(), 0, 2)).has_value());
  ASSERT_TRUE(range.decommit(granules(backing->granularity(), 0, 1)).has_value());

  EXPECT_EQ(range.committed(), backing->granularity());
  EXPECT_TRUE(governor->books().calls().empty());
  EXPECT_TRUE(range.validate());
}

TEST(VirtualRangePrint, NamesRangesAndTotals) {
  const SimRig rig;
  auto range = rig.range(16_KiB);
  ASSERT_TRUE(range.commit(ByteRange{.offset = 4_KiB, .size = 8_KiB}).has_value());

  const std::string text = to_string(range);

  EXPECT_NE(text.find("16384 bytes in granules of 4096"), std::string::npos) << text;
  EXPECT_NE(text.find("8192 committed, 8192 leased"), std::string::npos) << text;
  EXPECT_NE(text.find("[4096, 12288)"), std::string::npos) << text;
}

}  // namespace
}  // namespace memstrata
