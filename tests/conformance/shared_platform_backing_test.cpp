// SPDX-License-Identifier: Apache-2.0
// What every platform backing that shares prefixes promises. A new one adds its subject and one line.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "conformance/backing_subjects.hpp"
#include "memstrata/contract/platform_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata::shared_platform_backing_test {
namespace {

template <class Subject>
class SharedPlatformBackingContract : public ::testing::Test {
 protected:
  using Backing = typename Subject::Backing;
  using Reservation = typename Backing::Reservation;

  [[nodiscard]] Subject& subject() { return subject_; }

  [[nodiscard]] Backing& backing() { return subject_.backing(); }

  /// `n` granules.
  [[nodiscard]] Bytes g(std::uint64_t n) { return backing().granularity() * n; }

  [[nodiscard]] ByteRange part(std::uint64_t first, std::uint64_t count) {
    return {.offset = g(first), .size = g(count)};
  }

  [[nodiscard]] Reservation reserve(std::uint64_t granules) {
    auto made = backing().reserve(g(granules));
    return std::move(*made);
  }

  /// The first byte of granule `n`, or nothing where it would fault.
  [[nodiscard]] std::optional<std::uint8_t> read(const Reservation& reservation, std::uint64_t n) {
    return subject_.read(reservation, g(n));
  }

  /// Expects a refusal of one kind.
  template <class Alternative, class T>
  static void expect_refused(const Result<T, VirtualMemoryError>& refused) {
    ASSERT_FALSE(refused.has_value());
    EXPECT_TRUE(std::holds_alternative<Alternative>(refused.error().kind))
        << refused.error().message();
  }

 private:
  Subject subject_;
};

using Backings = ::testing::Types<test::SimSubject,
                                  test::PageSubject,
                                  test::HugePagesSubject,
                                  test::OddPagesSubject,
                                  test::AccountingPagesSubject>;
TYPED_TEST_SUITE(SharedPlatformBackingContract, Backings);

TYPED_TEST(SharedPlatformBackingContract, AMappedPartReadsAsThePrefixAndCannotBeWritten) {
  const auto prefix = this->subject().sealed(3, 10);
  auto reservation = this->reserve(4);

  ASSERT_TRUE(
      this->backing().map_shared(reservation, this->g(1), prefix, this->part(1, 2)).has_value());

  EXPECT_EQ(prefix.size(), this->g(3));
  EXPECT_EQ(this->read(reservation, 0), std::nullopt);
  EXPECT_EQ(this->read(reservation, 1), 11);
  EXPECT_EQ(this->read(reservation, 2), 12);
  EXPECT_FALSE(this->subject().write(reservation, this->g(1), 1));
}

TYPED_TEST(SharedPlatformBackingContract, SharedAndCommittedAreCountedApart) {
  const auto prefix = this->subject().sealed(2, 10);
  auto reservation = this->reserve(4);
  ASSERT_TRUE(this->backing().map_shared(reservation, 0_B, prefix, this->part(0, 2)).has_value());
  ASSERT_TRUE(this->backing().commit(reservation, this->part(2, 1)).has_value());

  EXPECT_EQ(this->backing().shared(reservation), this->g(2));
  EXPECT_EQ(this->backing().committed(reservation), this->g(1));
}

TYPED_TEST(SharedPlatformBackingContract, WhatCannotBeMappedChangesNothing) {
  const auto prefix = this->subject().sealed(2, 10);
  TypeParam other;
  const auto foreign = other.sealed(2, 50);
  auto reservation = this->reserve(4);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(2, 1)).has_value());

  this->template expect_refused<PrefixRefused>(
      this->backing().map_shared(reservation, 0_B, foreign, this->part(0, 1)));
  this->template expect_refused<Misaligned>(
      this->backing().map_shared(reservation, 1_B, prefix, this->part(0, 1)));
  this->template expect_refused<Misaligned>(
      this->backing().map_shared(reservation, 0_B, prefix, {.offset = 0_B, .size = 0_B}));
  this->template expect_refused<OutOfRange>(
      this->backing().map_shared(reservation, 0_B, prefix, this->part(1, 2)));
  this->template expect_refused<OutOfRange>(
      this->backing().map_shared(reservation, this->g(3), prefix, this->part(0, 2)));
  this->template expect_refused<AlreadyMapped>(
      this->backing().map_shared(reservation, this->g(1), prefix, this->part(0, 2)));

  EXPECT_EQ(this->backing().shared(reservation), 0_B);
  EXPECT_EQ(this->read(reservation, 1), std::nullopt);
}

TYPED_TEST(SharedPlatformBackingContract, SharedGranulesAreNeitherCommittedNorDecommitted) {
  const auto prefix = this->subject().sealed(2, 10);
  auto reservation = this->reserve(2);
  ASSERT_TRUE(this->backing().map_shared(reservation, 0_B, prefix, this->part(0, 2)).has_value());

  this->template expect_refused<AlreadyMapped>(
      this->backing().commit(reservation, this->part(1, 1)));
  this->template expect_refused<NotMapped>(this->backing().decommit(reservation, this->part(1, 1)));
  this->template expect_refused<AlreadyMapped>(
      this->backing().map_shared(reservation, this->g(1), prefix, this->part(0, 1)));

  EXPECT_EQ(this->read(reservation, 1), 11);
}

TYPED_TEST(SharedPlatformBackingContract, ARefusedMapLeavesThePlaceBareAndUsable) {
  const auto prefix = this->subject().sealed(2, 10);
  auto reservation = this->reserve(2);
  this->subject().refuse_next_map();

  this->template expect_refused<Os>(
      this->backing().map_shared(reservation, 0_B, prefix, this->part(0, 2)));

  EXPECT_EQ(this->backing().shared(reservation), 0_B);
  EXPECT_EQ(this->read(reservation, 0), std::nullopt);
  EXPECT_TRUE(this->backing().map_shared(reservation, 0_B, prefix, this->part(0, 2)).has_value());
}

TYPED_TEST(SharedPlatformBackingContract, BreakingOneGranuleMakesItPrivateForThisReservation) {
  const auto prefix = this->subject().sealed(3, 10);
  auto writer = this->reserve(3);
  auto reader = this->reserve(3);
  ASSERT_TRUE(this->backing().map_shared(writer, 0_B, prefix, this->part(0, 3)).has_value());
  ASSERT_TRUE(this->backing().map_shared(reader, 0_B, prefix, this->part(0, 3)).has_value());

  ASSERT_TRUE(this->backing().break_shared(writer, this->part(1, 1)).has_value());

  EXPECT_EQ(this->backing().shared(writer), this->g(2));
  EXPECT_EQ(this->backing().committed(writer), this->g(1));
  EXPECT_EQ(this->read(writer, 1), 11);
  EXPECT_TRUE(this->subject().write(writer, this->g(1), 99));
  EXPECT_EQ(this->read(writer, 1), 99);
  EXPECT_EQ(this->read(reader, 1), 11);
  EXPECT_FALSE(this->subject().write(writer, this->g(2), 99));
}

TYPED_TEST(SharedPlatformBackingContract, ABrokenGranuleIsDecommittedLikeAnyOther) {
  const auto prefix = this->subject().sealed(2, 10);
  auto reservation = this->reserve(2);
  ASSERT_TRUE(this->backing().map_shared(reservation, 0_B, prefix, this->part(0, 2)).has_value());
  ASSERT_TRUE(this->backing().break_shared(reservation, this->part(0, 1)).has_value());

  ASSERT_TRUE(this->backing().decommit(reservation, this->part(0, 1)).has_value());
  EXPECT_EQ(this->read(reservation, 0), std::nullopt);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(0, 1)).has_value());

  EXPECT_EQ(this->read(reservation, 0), 0);
  EXPECT_EQ(this->read(reservation, 1), 11);
}

TYPED_TEST(SharedPlatformBackingContract, OnlySharedGranulesCanBeBrokenOrUnmapped) {
  const auto prefix = this->subject().sealed(1, 10);
  auto reservation = this->reserve(3);
  ASSERT_TRUE(this->backing().map_shared(reservation, 0_B, prefix, this->part(0, 1)).has_value());
  ASSERT_TRUE(this->backing().commit(reservation, this->part(1, 1)).has_value());

  this->template expect_refused<NotMapped>(
      this->backing().break_shared(reservation, this->part(0, 2)));
  this->template expect_refused<NotMapped>(
      this->backing().unmap_shared(reservation, this->part(0, 3)));
  this->template expect_refused<OutOfRange>(
      this->backing().break_shared(reservation, this->part(2, 2)));

  EXPECT_EQ(this->backing().shared(reservation), this->g(1));
  EXPECT_EQ(this->backing().committed(reservation), this->g(1));
  EXPECT_FALSE(this->subject().write(reservation, 0_B, 1));
}

TYPED_TEST(SharedPlatformBackingContract, ARefusedBreakLeavesTheGranuleShared) {
  const auto prefix = this->subject().sealed(1, 10);
  auto reservation = this->reserve(1);
  ASSERT_TRUE(this->backing().map_shared(reservation, 0_B, prefix, this->part(0, 1)).has_value());
  this->subject().refuse_next_break();

  this->template expect_refused<Os>(this->backing().break_shared(reservation, this->part(0, 1)));

  EXPECT_EQ(this->backing().shared(reservation), this->g(1));
  EXPECT_EQ(this->backing().committed(reservation), 0_B);
  EXPECT_EQ(this->read(reservation, 0), 10);
  EXPECT_TRUE(this->backing().break_shared(reservation, this->part(0, 1)).has_value());
}

TYPED_TEST(SharedPlatformBackingContract, UnmappingCountsBytesOnlyWithTheLastReference) {
  auto prefix = std::optional(this->subject().sealed(2, 10));
  auto one = this->reserve(2);
  auto two = this->reserve(2);
  ASSERT_TRUE(this->backing().map_shared(one, 0_B, *prefix, this->part(0, 2)).has_value());
  ASSERT_TRUE(this->backing().map_shared(two, 0_B, *prefix, this->part(0, 2)).has_value());

  EXPECT_EQ(this->backing().unmap_shared(one, this->part(0, 2)).value_or(1_B), 0_B);
  EXPECT_EQ(this->read(one, 0), std::nullopt);
  prefix.reset();
  EXPECT_EQ(this->read(two, 1), 11);

  EXPECT_EQ(this->backing().unmap_shared(two, this->part(0, 2)).value_or(0_B), this->g(2));
  EXPECT_EQ(this->backing().shared(two), 0_B);
}

TYPED_TEST(SharedPlatformBackingContract, APartOfAMappingCanBeUnmapped) {
  const auto prefix = this->subject().sealed(4, 10);
  auto reservation = this->reserve(4);
  ASSERT_TRUE(this->backing().map_shared(reservation, 0_B, prefix, this->part(0, 4)).has_value());

  ASSERT_TRUE(this->backing().unmap_shared(reservation, this->part(1, 2)).has_value());

  EXPECT_EQ(this->read(reservation, 0), 10);
  EXPECT_EQ(this->read(reservation, 1), std::nullopt);
  EXPECT_EQ(this->read(reservation, 3), 13);
  EXPECT_EQ(this->backing().shared(reservation), this->g(2));
}

TYPED_TEST(SharedPlatformBackingContract, AReservationKeepsThePrefixAlive) {
  auto reservation = this->reserve(1);
  {
    const auto prefix = this->subject().sealed(1, 77);
    ASSERT_TRUE(this->backing().map_shared(reservation, 0_B, prefix, this->part(0, 1)).has_value());
  }

  EXPECT_EQ(this->read(reservation, 0), 77);
}

}  // namespace
}  // namespace memstrata::shared_platform_backing_test
