// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "support/host_rig.hpp"
#include "support/process_view.hpp"
#include "support/resident_bytes.hpp"
#include "support/scripted_governor.hpp"

namespace memstrata::host {
namespace {

using test::HostRig;

// B-089
TEST(PageBackingCommit, PatternAcrossTwoGranulesCommittedSeparatelyReadsBack) {
  HostRig rig(2);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 1)).has_value());
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(1, 1)).has_value());

  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < (rig.g * 2).value; ++i) {
    rig.reservation.data()[i] = static_cast<std::byte>(i % 251);
  }
  for (std::uint64_t i = 0; i < (rig.g * 2).value; ++i) {
    wrong += rig.reservation.data()[i] == static_cast<std::byte>(i % 251) ? 0U : 1U;
  }

  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(rig.backing.committed(rig.reservation), rig.g * 2);
}

TEST(PageBackingCommit, IsResidentAndZeroAtOnce) {
  HostRig rig(4);

  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(1, 2)).has_value());

  EXPECT_EQ(test::resident_bytes(rig.address(1), rig.g * 2), rig.g * 2);
  EXPECT_TRUE(rig.is_filled(1, 2, 0));
}

TEST(PageBackingCommit, WithoutPopulateNothingIsResidentBeforeItIsTouched) {
  PageBackingOptions options = HostRig::small_options();
  options.populate = false;
  HostRig rig(4, options);

  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 4)).has_value());

  EXPECT_EQ(test::resident_bytes(rig.address(0), rig.g * 4), 0_B);
  rig.fill(0, 4, 1);
  EXPECT_TRUE(rig.is_filled(0, 4, 1));
}

TEST(PageBackingCommit, OldKernelsWithoutTheAdviceGetTheirPagesTouched) {
  HostRig rig(4);
  rig.kernel->break_all(SystemCallKind::advise, EINVAL);

  const auto done = rig.backing.commit(rig.reservation, rig.granules(0, 3));

  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(test::resident_bytes(rig.address(0), rig.g * 3), rig.g * 3);
}

// B-092, B-097
TEST(PageBackingCommit, OffsetBetweenGranulesNamesALegalOne) {
  HostRig rig(3);

  const auto refused =
      rig.backing.commit(rig.reservation, ByteRange{.offset = rig.g + 1_B, .size = rig.g});
  const auto first = rig.backing.commit(rig.reservation, ByteRange{.offset = 1_B, .size = rig.g});

  ASSERT_FALSE(first.has_value());
  EXPECT_EQ(std::get<Misaligned>(first.error().kind).value, 1_B);
  EXPECT_EQ(std::get<Misaligned>(first.error().kind).rounded, rig.g);
  ASSERT_FALSE(refused.has_value());
  const Bytes legal = std::get<Misaligned>(refused.error().kind).rounded;
  EXPECT_TRUE(
      rig.backing.commit(rig.reservation, ByteRange{.offset = legal, .size = rig.g}).has_value());
}

// X-032, W-22
TEST(PageBackingCommit, LengthOfZeroIsATypedRefusalThatNeverReachesTheKernel) {
  HostRig rig;
  rig.kernel->forget();

  const auto refused = rig.backing.commit(rig.reservation, rig.granules(1, 0));

  ASSERT_FALSE(refused.has_value());
  const auto& error = std::get<Misaligned>(refused.error().kind);
  EXPECT_STREQ(error.what, "length");
  EXPECT_EQ(error.value, 0_B);
  EXPECT_EQ(error.rounded, rig.g);
  EXPECT_TRUE(rig.kernel->calls().empty());
}

// B-093
TEST(PageBackingCommit, BeyondTheReservationSaysByHowMuch) {
  HostRig rig(1);

  const auto refused = rig.backing.commit(rig.reservation, rig.granules(1, 1));

  ASSERT_FALSE(refused.has_value());
  const auto& error = std::get<OutOfRange>(refused.error().kind);
  EXPECT_EQ(error.overrun, rig.g);
  EXPECT_EQ(error.reserved, rig.g);
}

//
TEST(PageBackingCommit, OffsetsNearTheAddressMaximumDoNotWrap) {
  HostRig rig(1);
  const Bytes last = align_down(Bytes::max(), rig.g);

  const auto far = rig.backing.commit(rig.reservation, ByteRange{.offset = last, .size = rig.g});
  const auto farther =
      rig.backing.commit(rig.reservation, ByteRange{.offset = Bytes::max(), .size = rig.g});

  ASSERT_FALSE(far.has_value());
  EXPECT_TRUE(std::holds_alternative<OutOfRange>(far.error().kind));
  ASSERT_FALSE(farther.has_value());
  EXPECT_EQ(std::get<TooLarge>(farther.error().kind).largest, last);
}

// B-094
TEST(PageBackingCommit, OverlapEvenInPartIsRefusedAndChangesNothing) {
  HostRig rig(4);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 2)).has_value());
  rig.fill(0, 2, 9);
  const auto before = rig.snapshot();

  const auto second = rig.backing.commit(rig.reservation, rig.granules(1, 1));
  const auto partly = rig.backing.commit(rig.reservation, rig.granules(1, 3));

  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(std::get<AlreadyMapped>(second.error().kind).offset, rig.g);
  ASSERT_FALSE(partly.has_value());
  EXPECT_EQ(std::get<AlreadyMapped>(partly.error().kind).offset, rig.g);
  EXPECT_EQ(rig.snapshot(), before);
}

// B-098
TEST(PageBackingCommit, AnyOrderWithGapsKeepsEachGranulesOwnContent) {
  HostRig rig(5);
  for (const std::uint64_t granule : {3U, 0U, 4U}) {
    ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(granule, 1)).has_value());
    rig.fill(granule, 1, static_cast<std::uint8_t>(granule + 10));
  }

  EXPECT_TRUE(rig.is_filled(3, 1, 13));
  EXPECT_TRUE(rig.is_filled(0, 1, 10));
  EXPECT_TRUE(rig.is_filled(4, 1, 14));
  EXPECT_EQ(rig.backing.committed(rig.reservation), rig.g * 3);
}

//
TEST(PageBackingCommit, WhatIsNotCommittedFaults) {
  HostRig rig(3);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(1, 1)).has_value());

  EXPECT_FALSE(test::is_readable(rig.address(0)));
  EXPECT_TRUE(test::is_readable(rig.address(1)));
  EXPECT_TRUE(test::is_writable(rig.address(1)));
  EXPECT_FALSE(test::is_readable(rig.address(2)));
}

//
TEST(PageBackingCommit, TheGapsBesideIsolatedRunsStillFault) {
  HostRig rig(7);
  for (const std::uint64_t granule : {1U, 3U, 5U}) {
    ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(granule, 1)).has_value());
  }

  EXPECT_EQ(rig.snapshot().access, "-w-w-w-");
  EXPECT_FALSE(test::is_readable(DeviceAddress{rig.address(0).value() - 1}));
  EXPECT_FALSE(test::is_readable(rig.address(7)));
}

TEST(PageBackingCommitBatch, CommitsManyRangesAndTouchingOnesInOneCall) {
  HostRig rig(10);
  rig.kernel->forget();
  const std::array ranges{rig.granules(7, 1), rig.granules(1, 2), rig.granules(3, 1)};

  ASSERT_TRUE(rig.backing.commit(rig.reservation, std::span<const ByteRange>(ranges)).has_value());

  EXPECT_EQ(rig.snapshot().access, "-www---w--");
  std::size_t opened = 0;
  for (const SystemCall& call : rig.kernel->calls()) {
    opened += call.kind == SystemCallKind::protect && call.protection == Protection::read_write &&
                      call.length >= rig.g.value && call.address != rig.address(4).value() &&
                      call.address != rig.address(1).value() - page_size().value
                  ? 1U
                  : 0U;
  }
  EXPECT_EQ(opened, 2U);
}

TEST(PageBackingCommitBatch, RangesThatOverlapEachOtherAreRefused) {
  HostRig rig(6);
  const std::array ranges{rig.granules(2, 2), rig.granules(0, 1), rig.granules(3, 1)};
  const auto before = rig.snapshot();

  const auto refused = rig.backing.commit(rig.reservation, std::span<const ByteRange>(ranges));

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(std::get<AlreadyMapped>(refused.error().kind).offset, rig.g * 3);
  EXPECT_EQ(rig.snapshot(), before);
}

TEST(PageBackingCommitBatch, OneBadRangeRefusesAllBeforeAnyCall) {
  HostRig rig(6);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(5, 1)).has_value());
  rig.kernel->forget();
  const std::array ranges{rig.granules(0, 1), rig.granules(5, 1)};

  const auto refused = rig.backing.commit(rig.reservation, std::span<const ByteRange>(ranges));

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(std::get<AlreadyMapped>(refused.error().kind).offset, rig.g * 5);
  EXPECT_TRUE(rig.kernel->calls().empty());
}

TEST(PageBackingCommitBatch, NoRangesIsSuccessWithoutACall) {
  HostRig rig;
  rig.kernel->forget();

  EXPECT_TRUE(rig.backing.commit(rig.reservation, std::span<const ByteRange>()).has_value());
  EXPECT_TRUE(rig.kernel->calls().empty());
}

// X-030, W-7
TEST(PageBackingDecommit, TheUpperHalfOfOneCommitIsReallyGoneAndCanBeCommittedAgain) {
  HostRig rig(4);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 4)).has_value());
  rig.fill(0, 4, 0xC7);

  ASSERT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(2, 2)).has_value());
  const Bytes resident = test::resident_bytes(rig.address(2), rig.g * 2);
  const bool faults = !test::is_readable(rig.address(2));
  const auto again = rig.backing.commit(rig.reservation, rig.granules(2, 2));

  EXPECT_EQ(resident, 0_B);
  EXPECT_TRUE(faults);
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(rig.is_filled(2, 2, 0));
  EXPECT_TRUE(rig.is_filled(0, 2, 0xC7));
}

// W-7
TEST(PageBackingDecommit, ARangeAcrossSeveralCommitsAndInsideOneGoesInOneCall) {
  HostRig rig(8);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 3)).has_value());
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(3, 5)).has_value());
  rig.kernel->forget();

  ASSERT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(2, 4)).has_value());

  EXPECT_EQ(rig.kernel->calls().size(), 2U);
  EXPECT_EQ(rig.snapshot().access, "ww----ww");
  EXPECT_EQ(rig.backing.committed(rig.reservation), rig.g * 4);
}

// B-090
TEST(PageBackingDecommit, LeavesTheNeighbourAlone) {
  HostRig rig(2);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 2)).has_value());
  rig.fill(0, 1, 1);
  rig.fill(1, 1, 2);

  ASSERT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(1, 1)).has_value());

  EXPECT_TRUE(rig.is_filled(0, 1, 1));
  EXPECT_EQ(rig.backing.committed(rig.reservation), rig.g);
}

//
TEST(PageBackingDecommit, TheSameGranuleReadsZeroWhenItIsCommittedAgain) {
  HostRig rig(1);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 1)).has_value());
  rig.fill(0, 1, 0x55);

  ASSERT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(0, 1)).has_value());
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 1)).has_value());

  EXPECT_TRUE(rig.is_filled(0, 1, 0));
}

TEST(PageBackingDecommit, WhatIsNotCommittedIsRefusedByItsFirstGranule) {
  HostRig rig(4);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 2)).has_value());
  const auto before = rig.snapshot();

  const auto refused = rig.backing.decommit(rig.reservation, rig.granules(1, 2));
  const auto empty = rig.backing.decommit(rig.reservation, rig.granules(1, 0));

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(std::get<NotMapped>(refused.error().kind).offset, rig.g * 2);
  ASSERT_FALSE(empty.has_value());
  EXPECT_TRUE(std::holds_alternative<Misaligned>(empty.error().kind));
  EXPECT_EQ(rig.snapshot(), before);
}

TEST(PageBackingDecommit, DiscardsBeforeItProtectsSoThatTheMemoryGoesEvenAtTheLimit) {
  HostRig rig(2);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 2)).has_value());
  rig.fill(0, 2, 3);
  rig.kernel->forget();
  rig.kernel->break_nth(2, test::Breakage::before, ENOMEM);

  const auto refused = rig.backing.decommit(rig.reservation, rig.granules(0, 2));

  ASSERT_FALSE(refused.has_value());
  EXPECT_STREQ(std::get<Os>(refused.error().kind).operation, "mprotect");
  EXPECT_EQ(rig.backing.committed(rig.reservation), rig.g * 2);
  EXPECT_EQ(test::resident_bytes(rig.address(0), rig.g * 2), 0_B);
  EXPECT_TRUE(rig.is_filled(0, 2, 0)) << "what counts as committed is usable";
}

TEST(PageBackingRuns, ListCommittedAndVacantRangesInsideAWindow) {
  HostRig rig(8);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(1, 2)).has_value());
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(5, 1)).has_value());
  ASSERT_TRUE(
      rig.backing.map_shared(rig.reservation, rig.g * 6, rig.prefix(1, 1), rig.granules(0, 1))
          .has_value());

  const auto committed = rig.backing.committed_runs(rig.reservation, rig.granules(2, 6));
  const auto vacant = rig.backing.vacant_runs(rig.reservation, rig.granules(0, 8));

  EXPECT_EQ(committed, (std::vector<ByteRange>{rig.granules(2, 1), rig.granules(5, 1)}));
  EXPECT_EQ(vacant,
            (std::vector<ByteRange>{rig.granules(0, 1), rig.granules(3, 2), rig.granules(7, 1)}));
  EXPECT_EQ(rig.backing.committed_in(rig.reservation, rig.granules(0, 6)), rig.g * 3);
  EXPECT_EQ(rig.backing.shared_in(rig.reservation, rig.granules(0, 8)), rig.g);
  EXPECT_EQ(rig.backing.shared_in(rig.reservation, rig.granules(0, 6)), 0_B);
}

TEST(PageBackingHugePages, GranulesOfTwoMegabytesWorkOnWhateverPagesTheSystemHas) {
  PageBackingOptions options;
  options.granule = 2_MiB;
  options.huge_pages = true;
  HostRig rig(2, options);

  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 2)).has_value());
  rig.fill(0, 2, 4);
  ASSERT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(1, 1)).has_value());

  EXPECT_TRUE(rig.is_filled(0, 1, 4));
  EXPECT_EQ(test::resident_bytes(rig.address(1), rig.g), 0_B);
}

}  // namespace
}  // namespace memstrata::host
