// SPDX-License-Identifier: Apache-2.0
// What every allocator with virtual backing promises. A new one adds its subject and one line to `Backings`.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "conformance/allocator_subjects.hpp"
#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "support/host_bytes.hpp"

namespace memstrata::virtual_backing_test {
namespace {

template <class Subject>
class VirtualBackingContract : public ::testing::Test {
 protected:
  [[nodiscard]] Subject& subject() { return subject_; }

  [[nodiscard]] DeviceAllocator& allocator() { return subject_.allocator(); }

  [[nodiscard]] VirtualBacking& backing() { return *subject_.allocator().virtual_backing(); }

  /// `n` granules.
  [[nodiscard]] Bytes g(std::uint64_t n) const { return subject_.granule() * n; }

  /// The range of `count` granules from granule `first` on.
  [[nodiscard]] ByteRange part(std::uint64_t first, std::uint64_t count) const {
    return {.offset = g(first), .size = g(count)};
  }

  /// An allocation of `granules` of which only the first `committed` are.
  [[nodiscard]] AllocationSpan allocate(std::uint64_t granules, std::uint64_t committed = 0) {
    const std::array front{part(0, committed)};
    const auto address = backing().allocate_committed(
        g(granules), 8_B, std::span(front).first(committed == 0 ? 0 : 1));
    if (!address) {
      ADD_FAILURE() << address.error().message();
      return {};
    }
    return {.address = *address, .bytes = g(granules), .alignment = 8_B};
  }

  /// Expects an InvalidRequest.
  template <class T>
  static void expect_invalid(const Result<T>& refused) {
    ASSERT_FALSE(refused.has_value());
    EXPECT_TRUE(std::holds_alternative<InvalidRequest>(refused.error().kind))
        << refused.error().message();
  }

 private:
  Subject subject_;
};

using Backings = ::testing::Types<test::FakeSubject,
                                  test::VirtualHostSubject,
                                  test::HugePageSubject,
                                  test::OddGranuleSubject,
                                  test::GovernedHostSubject,
                                  test::LedgerHostSubject>;
TYPED_TEST_SUITE(VirtualBackingContract, Backings);

// B-008, B-013
TYPED_TEST(VirtualBackingContract, AnAllocationCommitsOnlyTheRangesItNames) {
  const std::array ranges{this->part(0, 1), this->part(4, 2)};

  const auto address = this->backing().allocate_committed(this->g(8), 16_B, ranges);

  ASSERT_TRUE(address.has_value());
  const AllocationSpan span{.address = *address, .bytes = this->g(8), .alignment = 16_B};
  EXPECT_EQ(this->backing().committed_bytes(span), this->g(3));
  EXPECT_TRUE(this->allocator().release(span).is_complete());
}

TYPED_TEST(VirtualBackingContract, RangesThatOverlapOrShareAGranuleAreCommittedOnce) {
  const std::array ranges{ByteRange{.offset = 1_B, .size = 2_B},
                          ByteRange{.offset = 4_B, .size = this->g(1)},
                          this->part(0, 2)};

  const auto address = this->backing().allocate_committed(this->g(4), 8_B, ranges);

  ASSERT_TRUE(address.has_value());
  const AllocationSpan span{.address = *address, .bytes = this->g(4), .alignment = 8_B};
  EXPECT_EQ(this->backing().committed_bytes(span), this->g(2));
}

//
TYPED_TEST(VirtualBackingContract, MalformedRangesAreRefusedByEveryCall) {
  const AllocationSpan span = this->allocate(4, 1);
  for (const ByteRange& bad : {ByteRange{.offset = 0_B, .size = 0_B},
                               this->part(4, 1),
                               this->part(3, 2),
                               ByteRange{.offset = Bytes::max(), .size = 2_B},
                               ByteRange{.offset = 1_B, .size = Bytes::max()}}) {
    const std::array allocation_ranges{bad};
    const std::array batch{AllocationCommitRange{.allocation = span, .range = this->part(1, 1)},
                           AllocationCommitRange{.allocation = span, .range = bad}};
    this->expect_invalid(this->backing().allocate_committed(this->g(4), 8_B, allocation_ranges));
    this->expect_invalid(this->backing().commit(span, bad));
    this->expect_invalid(this->backing().decommit(span, bad));
    this->expect_invalid(this->backing().mapped_bytes(batch));
  }

  EXPECT_EQ(this->backing().committed_bytes(span), this->g(1));
}

TYPED_TEST(VirtualBackingContract, CommittingRoundsOutwardsToGranules) {
  const AllocationSpan span = this->allocate(4);

  ASSERT_TRUE(this->backing().commit(span, {.offset = this->g(1) - 1_B, .size = 2_B}).has_value());

  EXPECT_EQ(this->backing().committed_bytes(span), this->g(2));
}

TYPED_TEST(VirtualBackingContract, CommittingWhatIsCommittedKeepsItAsItIs) {
  const AllocationSpan span = this->allocate(4, 2);
  if constexpr (TypeParam::touchable) {
    test::fill(span.address, this->g(2), 0x5A);
  }

  ASSERT_TRUE(this->backing().commit(span, this->part(1, 3)).has_value());
  ASSERT_TRUE(this->backing().commit(span, this->part(0, 4)).has_value());

  EXPECT_EQ(this->backing().committed_bytes(span), this->g(4));
  if constexpr (TypeParam::touchable) {
    EXPECT_TRUE(test::holds_only(span.address, this->g(2), 0x5A));
    EXPECT_TRUE(test::holds_only(span.address + this->g(2), this->g(2), 0));
  }
}

//
TYPED_TEST(VirtualBackingContract, ARefusedCommitLeavesTheRangeAsItWas) {
  const AllocationSpan span = this->allocate(8, 2);
  this->subject().refuse_next_commit();

  const auto refused = this->backing().commit(span, this->part(1, 4));

  ASSERT_FALSE(refused.has_value());
  const auto* failed = std::get_if<AllocationFailed>(&refused.error().kind);
  ASSERT_NE(failed, nullptr);
  EXPECT_FALSE(failed->reason.empty());
  EXPECT_EQ(this->backing().committed_bytes(span), this->g(2));
  EXPECT_TRUE(this->backing().commit(span, this->part(1, 4)).has_value());
  EXPECT_EQ(this->backing().committed_bytes(span), this->g(5));
}

TYPED_TEST(VirtualBackingContract, ABatchCommitsRangesOfSeveralAllocations) {
  const AllocationSpan one = this->allocate(4);
  const AllocationSpan two = this->allocate(4, 1);
  const std::array batch{AllocationCommitRange{.allocation = one, .range = this->part(0, 2)},
                         AllocationCommitRange{.allocation = two, .range = this->part(0, 3)},
                         AllocationCommitRange{.allocation = one, .range = this->part(1, 2)}};

  ASSERT_TRUE(this->backing().commit_all(batch).has_value());

  EXPECT_EQ(this->backing().committed_bytes(one), this->g(3));
  EXPECT_EQ(this->backing().committed_bytes(two), this->g(3));
}

//
TYPED_TEST(VirtualBackingContract, AFailedBatchSaysExactlyWhatTookEffect) {
  const AllocationSpan span = this->allocate(8);
  const std::array batch{AllocationCommitRange{.allocation = span, .range = this->part(0, 1)},
                         AllocationCommitRange{.allocation = span, .range = this->part(2, 1)}};
  this->subject().refuse_next_commit();

  const auto failed = this->backing().commit_all(batch);

  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(this->backing().committed_bytes(span), this->g(failed.error().committed_ranges));
}

TYPED_TEST(VirtualBackingContract, ABatchEstimateIsNeverBelowWhatIsThenMapped) {
  const AllocationSpan one = this->allocate(8);
  const AllocationSpan two = this->allocate(8);
  const std::vector<AllocationCommitRange> batch{
      {.allocation = one, .range = {.offset = 1_B, .size = 1_B}},
      {.allocation = one, .range = {.offset = this->g(1) - 1_B, .size = 2_B}},
      {.allocation = two, .range = {.offset = this->g(3), .size = 1_B}},
      {.allocation = two, .range = {.offset = this->g(3) + 1_B, .size = 1_B}}};

  const auto estimate = this->backing().mapped_bytes(batch);

  ASSERT_TRUE(estimate.has_value());
  ASSERT_TRUE(this->backing().commit_all(batch).has_value());
  const Bytes mapped = this->backing().committed_bytes(one) + this->backing().committed_bytes(two);
  EXPECT_EQ(mapped, this->g(3));
  EXPECT_EQ(*estimate, mapped);
}

TYPED_TEST(VirtualBackingContract, AnAllocationEstimateIsNeverBelowWhatIsThenMapped) {
  for (const Bytes bytes : {0_B, 1_B, this->g(1), this->g(1) + 1_B, this->g(5) - 1_B}) {
    const auto estimate = this->backing().mapped_bytes(bytes, 64_B);
    ASSERT_TRUE(estimate.has_value());
    const auto address = this->allocator().allocate(bytes, 64_B);
    ASSERT_TRUE(address.has_value());

    const AllocationSpan span{.address = *address, .bytes = bytes, .alignment = 64_B};
    EXPECT_GE(*estimate, this->backing().committed_bytes(span));
    EXPECT_GE(*estimate, bytes);
  }
}

//
TYPED_TEST(VirtualBackingContract, AnEstimateThatCannotBeRepresentedIsRefused) {
  this->expect_invalid(this->backing().mapped_bytes(Bytes::max(), 64_B));
  this->expect_invalid(this->backing().mapped_bytes(64_B, 3_B));
}

// B-008, X-030
TYPED_TEST(VirtualBackingContract, AnyPartOfALargerCommitCanBeDecommitted) {
  const AllocationSpan span = this->allocate(8, 8);

  const auto gone = this->backing().decommit(span, this->part(2, 3));

  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(*gone, this->g(3));
  EXPECT_EQ(this->backing().committed_bytes(span), this->g(5));
}

//
TYPED_TEST(VirtualBackingContract, WhatIsCommittedAgainReadsZeroAndItsNeighboursKeepTheirBytes) {
  const AllocationSpan span = this->allocate(4, 4);
  if constexpr (TypeParam::touchable) {
    test::fill(span.address, this->g(4), 0x77);
  }

  ASSERT_TRUE(this->backing().decommit(span, this->part(1, 2)).has_value());
  ASSERT_TRUE(this->backing().commit(span, this->part(0, 4)).has_value());

  EXPECT_EQ(this->backing().committed_bytes(span), this->g(4));
  if constexpr (TypeParam::touchable) {
    EXPECT_TRUE(test::holds_only(span.address, this->g(1), 0x77));
    EXPECT_TRUE(test::holds_only(span.address + this->g(1), this->g(2), 0));
    EXPECT_TRUE(test::holds_only(span.address + this->g(3), this->g(1), 0x77));
  }
}

TYPED_TEST(VirtualBackingContract, OnlyGranulesWhollyInsideTheRangeGo) {
  const AllocationSpan span = this->allocate(4, 4);

  const auto nothing = this->backing().decommit(span, {.offset = 1_B, .size = this->g(2) - 2_B});
  const auto one = this->backing().decommit(span, {.offset = 1_B, .size = this->g(2)});

  ASSERT_TRUE(nothing && one);
  EXPECT_EQ(*nothing, 0_B);
  EXPECT_EQ(*one, this->g(1));
  EXPECT_EQ(this->backing().committed_bytes(span), this->g(3));
}

TYPED_TEST(VirtualBackingContract, ARangeThatEndsWithTheAllocationReachesItsLastGranule) {
  const Bytes bytes = this->g(2) + 1_B;
  const auto address = this->allocator().allocate(bytes, 8_B);
  ASSERT_TRUE(address.has_value());
  const AllocationSpan span{.address = *address, .bytes = bytes, .alignment = 8_B};

  const auto gone =
      this->backing().decommit(span, {.offset = this->g(1), .size = this->g(1) + 1_B});

  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(*gone, this->g(2));
  EXPECT_EQ(this->backing().committed_bytes(span), this->g(1));
}

// B-095
TYPED_TEST(VirtualBackingContract, DecommittingWhatIsNotCommittedReturnsZero) {
  const AllocationSpan span = this->allocate(4, 1);

  const auto gone = this->backing().decommit(span, this->part(1, 3));

  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(*gone, 0_B);
  EXPECT_EQ(this->backing().committed_bytes(span), this->g(1));
}

TYPED_TEST(VirtualBackingContract, AnUnknownAllocationIsRefusedByEveryCall) {
  const AllocationSpan span = this->allocate(2, 1);
  AllocationSpan other = span;
  other.bytes = this->g(1);
  const std::array batch{AllocationCommitRange{.allocation = other, .range = this->part(0, 1)}};

  this->expect_invalid(this->backing().commit(other, this->part(0, 1)));
  this->expect_invalid(this->backing().decommit(other, this->part(0, 1)));
  this->expect_invalid(this->backing().mapped_bytes(batch));
  const auto refused = this->backing().commit_all(batch);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().committed_ranges, 0U);
  EXPECT_EQ(this->backing().committed_bytes(other), 0_B);
  EXPECT_EQ(this->backing().committed_bytes(span), this->g(1));
}

// B-009
TYPED_TEST(VirtualBackingContract, ReleaseGoesThroughTheAllocatorAndCountsWhatWasBacked) {
  const AllocationSpan span = this->allocate(8, 3);

  const auto answer = this->allocator().release(span);

  EXPECT_TRUE(answer.is_complete());
  EXPECT_EQ(answer.unmapped_bytes(), this->g(3));
  EXPECT_EQ(this->backing().committed_bytes(span), 0_B);
  this->expect_invalid(this->backing().commit(span, this->part(0, 1)));
}

}  // namespace
}  // namespace memstrata::virtual_backing_test
