// SPDX-License-Identifier: Apache-2.0
// What every allocator with shared mapping promises. A new one adds its subject and one line to `Mappings`.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

#include "conformance/allocator_subjects.hpp"
#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "support/host_bytes.hpp"

namespace memstrata {
namespace {

/// A prefix of nobody, all of whose sizes are zero.
class PrefixOfNobody final : public SharedDevicePrefix {
 public:
  [[nodiscard]] DeviceAddress address() const noexcept override { return {}; }

  [[nodiscard]] Bytes committed_physical_bytes() const noexcept override { return {}; }

  [[nodiscard]] Bytes mapped_bytes() const noexcept override { return {}; }

  [[nodiscard]] Bytes requested_bytes() const noexcept override { return {}; }

  [[nodiscard]] Result<void> seal() override { return {}; }

  [[nodiscard]] bool is_sealed() const noexcept override { return true; }

  [[nodiscard]] const void* type_tag() const noexcept override { return this; }
};

template <class Subject>
class SharedMappingContract : public ::testing::Test {
 protected:
  [[nodiscard]] Subject& subject() { return subject_; }

  [[nodiscard]] DeviceAllocator& allocator() { return subject_.allocator(); }

  [[nodiscard]] VirtualBacking& backing() { return *allocator().virtual_backing(); }

  [[nodiscard]] SharedMapping& mapping() { return *allocator().shared_mapping(); }

  /// `n` granules.
  [[nodiscard]] Bytes g(std::uint64_t n) const { return subject_.granule() * n; }

  [[nodiscard]] ByteRange part(std::uint64_t first, std::uint64_t count) const {
    return {.offset = g(first), .size = g(count)};
  }

  /// An allocation of `granules`, none of which is committed.
  [[nodiscard]] AllocationSpan allocate(std::uint64_t granules) {
    const auto address = backing().allocate_committed(g(granules), 8_B, {});
    if (!address) {
      ADD_FAILURE() << address.error().message();
      return {};
    }
    return {.address = *address, .bytes = g(granules), .alignment = 8_B};
  }

  /// A sealed prefix of `granules`, filled with `value`.
  [[nodiscard]] std::shared_ptr<SharedDevicePrefix> sealed(std::uint64_t granules,
                                                           std::uint8_t value = 0) {
    auto made = mapping().create_shared_prefix(g(granules));
    if (!made) {
      ADD_FAILURE() << made.error().message();
      return nullptr;
    }
    if constexpr (Subject::touchable) {
      test::fill((*made)->address(), g(granules), value);
    }
    EXPECT_TRUE((*made)->seal().has_value());
    return std::move(*made);
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

using Mappings = ::testing::Types<test::FakeSubject,
                                  test::VirtualHostSubject,
                                  test::HugePageSubject,
                                  test::OddGranuleSubject,
                                  test::GovernedHostSubject,
                                  test::LedgerHostSubject>;
TYPED_TEST_SUITE(SharedMappingContract, Mappings);

TYPED_TEST(SharedMappingContract, APrefixHasRoomForWhatWasAskedInWholeGranules) {
  const auto prefix = this->mapping().create_shared_prefix(this->g(1) + 1_B);

  ASSERT_TRUE(prefix.has_value());
  EXPECT_EQ((*prefix)->requested_bytes(), this->g(1) + 1_B);
  EXPECT_EQ((*prefix)->mapped_bytes(), this->g(2));
  EXPECT_EQ((*prefix)->committed_physical_bytes(), this->g(2));
  EXPECT_FALSE((*prefix)->is_sealed());
  EXPECT_FALSE((*prefix)->address().is_null());
}

//
TYPED_TEST(SharedMappingContract, APrefixOfNothingOrOfEverythingIsRefused) {
  EXPECT_FALSE(this->mapping().create_shared_prefix(Bytes::max()).has_value());
  this->expect_invalid(this->mapping().create_shared_prefix(0_B));
}

TYPED_TEST(SharedMappingContract, SealingEndsWritingOnce) {
  const auto prefix = this->sealed(2);

  EXPECT_TRUE(prefix->is_sealed());
  EXPECT_TRUE(prefix->address().is_null());
  this->expect_invalid(prefix->seal());
  EXPECT_TRUE(prefix->is_sealed());
}

TYPED_TEST(SharedMappingContract, ARefusedSealLeavesThePrefixWritable) {
  const auto prefix = this->mapping().create_shared_prefix(this->g(1));
  ASSERT_TRUE(prefix.has_value());
  this->subject().refuse_next_seal();

  EXPECT_FALSE((*prefix)->seal().has_value());

  EXPECT_FALSE((*prefix)->is_sealed());
  ASSERT_FALSE((*prefix)->address().is_null());
  if constexpr (TypeParam::touchable) {
    test::fill((*prefix)->address(), this->g(1), 0x42);
  }
  EXPECT_TRUE((*prefix)->seal().has_value());
}

// B-011
TYPED_TEST(SharedMappingContract, AForeignPrefixIsRefusedBeforeAnyCostIsQuoted) {
  const PrefixOfNobody nobodys;
  TypeParam other;
  const auto others = other.allocator().shared_mapping()->create_shared_prefix(this->g(1));
  ASSERT_TRUE(others.has_value());
  ASSERT_TRUE((*others)->seal().has_value());
  const AllocationSpan span = this->allocate(2);

  this->expect_invalid(this->mapping().incremental_owned_bytes(nobodys));
  this->expect_invalid(this->mapping().incremental_owned_bytes(**others));
  this->expect_invalid(this->mapping().commit_shared_prefix(nobodys, span, 0_B));
  this->expect_invalid(this->mapping().commit_shared_prefix(**others, span, 0_B));
  EXPECT_EQ(this->backing().committed_bytes(span), 0_B);
}

TYPED_TEST(SharedMappingContract, AFurtherMappingOfAnOwnPrefixOwnsNothingMore) {
  const auto prefix = this->sealed(2);
  const AllocationSpan span = this->allocate(4);

  const auto quote = this->mapping().incremental_owned_bytes(*prefix);
  const auto info = this->mapping().commit_shared_prefix(*prefix, span, this->g(1));

  ASSERT_TRUE(quote && info);
  EXPECT_EQ(*quote, 0_B);
  EXPECT_EQ(*info,
            (SharedPrefixCommitInfo{
                .additional_owned_bytes = 0_B, .newly_mapped_bytes = this->g(2), .granules = 2}));
  EXPECT_EQ(this->backing().committed_bytes(span), this->g(2));
}

TYPED_TEST(SharedMappingContract, EveryUserReadsWhatTheCreatorWrote) {
  const auto prefix = this->sealed(2, 0xA7);
  const std::array spans{this->allocate(4), this->allocate(4), this->allocate(2)};
  for (const AllocationSpan& span : spans) {
    const Bytes at = span.bytes == this->g(4) ? this->g(1) : 0_B;
    ASSERT_TRUE(this->mapping().commit_shared_prefix(*prefix, span, at).has_value());
    if constexpr (TypeParam::touchable) {
      EXPECT_TRUE(test::holds_only(span.address + at, this->g(2), 0xA7));
    }
  }

  EXPECT_EQ(this->backing().committed_bytes(spans[2]), this->g(2));
}

TYPED_TEST(SharedMappingContract, OnePrefixMayBeMappedTwiceIntoOneAllocation) {
  const auto prefix = this->sealed(1, 0x31);
  const AllocationSpan span = this->allocate(4);

  ASSERT_TRUE(this->mapping().commit_shared_prefix(*prefix, span, this->g(0)).has_value());
  ASSERT_TRUE(this->mapping().commit_shared_prefix(*prefix, span, this->g(3)).has_value());

  EXPECT_EQ(this->backing().committed_bytes(span), this->g(2));
}

TYPED_TEST(SharedMappingContract, WhatCannotBeMappedLeavesNothingBehind) {
  const auto prefix = this->sealed(2);
  const auto open = this->mapping().create_shared_prefix(this->g(1));
  ASSERT_TRUE(open.has_value());
  const AllocationSpan span = this->allocate(4);
  ASSERT_TRUE(this->backing().commit(span, this->part(2, 1)).has_value());
  AllocationSpan unknown = span;
  unknown.bytes = this->g(3);

  this->expect_invalid(this->mapping().commit_shared_prefix(**open, span, 0_B));
  this->expect_invalid(this->mapping().commit_shared_prefix(*prefix, span, 1_B));
  this->expect_invalid(this->mapping().commit_shared_prefix(*prefix, span, this->g(1)));
  this->expect_invalid(this->mapping().commit_shared_prefix(*prefix, span, this->g(2)));
  this->expect_invalid(this->mapping().commit_shared_prefix(*prefix, span, this->g(3)));
  this->expect_invalid(
      this->mapping().commit_shared_prefix(*prefix, span, align_down(Bytes::max(), this->g(1))));
  this->expect_invalid(this->mapping().commit_shared_prefix(*prefix, unknown, 0_B));

  EXPECT_EQ(this->backing().committed_bytes(span), this->g(1));
}

TYPED_TEST(SharedMappingContract, ARefusedMappingLeavesTheTargetEmptyAndUsable) {
  const auto prefix = this->sealed(2, 0x19);
  const AllocationSpan span = this->allocate(4);
  this->subject().refuse_map(1);

  const auto refused = this->mapping().commit_shared_prefix(*prefix, span, this->g(1));

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<AllocationFailed>(refused.error().kind));
  EXPECT_EQ(this->backing().committed_bytes(span), 0_B);
  EXPECT_TRUE(this->mapping().commit_shared_prefix(*prefix, span, this->g(1)).has_value());
}

TYPED_TEST(SharedMappingContract, UnmappingReturnsZeroWhileSomebodyElseHoldsTheBytes) {
  auto prefix = this->sealed(2);
  const AllocationSpan one = this->allocate(2);
  const AllocationSpan two = this->allocate(2);
  ASSERT_TRUE(this->mapping().commit_shared_prefix(*prefix, one, 0_B).has_value());
  ASSERT_TRUE(this->mapping().commit_shared_prefix(*prefix, two, 0_B).has_value());

  EXPECT_EQ(this->backing().decommit(one, this->part(0, 2)).value_or(1_B), 0_B);
  EXPECT_EQ(this->backing().committed_bytes(one), 0_B);
  prefix = nullptr;

  const auto last = this->backing().decommit(two, this->part(0, 2));
  ASSERT_TRUE(last.has_value());
  EXPECT_GT(*last, 0_B);
  EXPECT_EQ(this->backing().committed_bytes(two), 0_B);
}

TYPED_TEST(SharedMappingContract, UnmappedPlacesCanBeCommittedAndMappedAgain) {
  const auto prefix = this->sealed(2, 0x66);
  const AllocationSpan span = this->allocate(4);
  ASSERT_TRUE(this->mapping().commit_shared_prefix(*prefix, span, 0_B).has_value());

  ASSERT_TRUE(this->backing().decommit(span, this->part(0, 2)).has_value());
  ASSERT_TRUE(this->backing().commit(span, this->part(0, 2)).has_value());
  ASSERT_TRUE(this->mapping().commit_shared_prefix(*prefix, span, this->g(2)).has_value());

  EXPECT_EQ(this->backing().committed_bytes(span), this->g(4));
  if constexpr (TypeParam::touchable) {
    EXPECT_TRUE(test::holds_only(span.address, this->g(2), 0));
    EXPECT_TRUE(test::holds_only(span.address + this->g(2), this->g(2), 0x66));
  }
}

TYPED_TEST(SharedMappingContract, CommittingOverASharedGranuleLeavesItShared) {
  const auto prefix = this->sealed(1, 0x55);
  const AllocationSpan span = this->allocate(3);
  ASSERT_TRUE(this->mapping().commit_shared_prefix(*prefix, span, this->g(1)).has_value());

  ASSERT_TRUE(this->backing().commit(span, this->part(0, 3)).has_value());

  EXPECT_EQ(this->backing().committed_bytes(span), this->g(3));
  if constexpr (TypeParam::touchable) {
    EXPECT_TRUE(test::holds_only(span.address + this->g(1), this->g(1), 0x55));
  }
  EXPECT_EQ(this->mapping().break_shared(span, this->part(0, 3)).value_or(0_B), this->g(1));
}

TYPED_TEST(SharedMappingContract, BreakingMakesAPrivateCopyThatNobodyElseSees) {
  const auto prefix = this->sealed(3, 0x33);
  const AllocationSpan writer = this->allocate(3);
  const AllocationSpan reader = this->allocate(3);
  ASSERT_TRUE(this->mapping().commit_shared_prefix(*prefix, writer, 0_B).has_value());
  ASSERT_TRUE(this->mapping().commit_shared_prefix(*prefix, reader, 0_B).has_value());

  const auto broken =
      this->mapping().break_shared(writer, {.offset = this->g(1) + 1_B, .size = 1_B});

  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(*broken, this->g(1));
  EXPECT_EQ(this->backing().committed_bytes(writer), this->g(3));
  if constexpr (TypeParam::touchable) {
    EXPECT_TRUE(test::holds_only(writer.address, this->g(3), 0x33));
    test::fill(writer.address + this->g(1), this->g(1), 0x44);
    EXPECT_TRUE(test::holds_only(reader.address, this->g(3), 0x33));
  }
}

TYPED_TEST(SharedMappingContract, BreakingWhatIsNotSharedDoesNothing) {
  const AllocationSpan span = this->allocate(2);
  ASSERT_TRUE(this->backing().commit(span, this->part(0, 1)).has_value());

  EXPECT_EQ(this->mapping().break_shared(span, this->part(0, 2)).value_or(1_B), 0_B);

  EXPECT_EQ(this->backing().committed_bytes(span), this->g(1));
}

//
TYPED_TEST(SharedMappingContract, BreakingAMalformedRangeIsRefused) {
  const AllocationSpan span = this->allocate(2);

  this->expect_invalid(this->mapping().break_shared(span, {.offset = 0_B, .size = 0_B}));
  this->expect_invalid(this->mapping().break_shared(span, this->part(1, 2)));
  this->expect_invalid(this->mapping().break_shared(span, {.offset = 1_B, .size = Bytes::max()}));
}

TYPED_TEST(SharedMappingContract, ReleasingAUserLeavesTheOthersReading) {
  auto prefix = this->sealed(2, 0x0F);
  const AllocationSpan one = this->allocate(2);
  const AllocationSpan two = this->allocate(2);
  ASSERT_TRUE(this->mapping().commit_shared_prefix(*prefix, one, 0_B).has_value());
  ASSERT_TRUE(this->mapping().commit_shared_prefix(*prefix, two, 0_B).has_value());
  prefix = nullptr;

  const auto answer = this->allocator().release(one);

  EXPECT_TRUE(answer.is_complete());
  EXPECT_EQ(answer.unmapped_bytes(), 0_B);
  EXPECT_EQ(this->backing().committed_bytes(two), this->g(2));
  if constexpr (TypeParam::touchable) {
    EXPECT_TRUE(test::holds_only(two.address, this->g(2), 0x0F));
  }
}

}  // namespace
}  // namespace memstrata
