// SPDX-License-Identifier: Apache-2.0
// What every platform backing promises. A new one adds its subject and one line to `Backings`.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "conformance/backing_subjects.hpp"
#include "memstrata/contract/platform_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {
namespace {

template <class Subject>
class PlatformBackingContract : public ::testing::Test {
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

  /// The refusal as one alternative; fails the test and is null if it is none.
  template <class Alternative, class T>
  static const Alternative* refusal(const Result<T, VirtualMemoryError>& refused) {
    if (refused.has_value()) {
      ADD_FAILURE() << "it was not refused";
      return nullptr;
    }
    const auto* found = std::get_if<Alternative>(&refused.error().kind);
    if (found == nullptr) {
      ADD_FAILURE() << "another refusal: " << refused.error().message();
    }
    return found;
  }

 private:
  Subject subject_;
};

using Backings = ::testing::Types<test::SimSubject,
                                  test::PageSubject,
                                  test::HugePagesSubject,
                                  test::OddPagesSubject,
                                  test::AccountingPagesSubject>;
TYPED_TEST_SUITE(PlatformBackingContract, Backings);

// B-096
TYPED_TEST(PlatformBackingContract, TheGranuleIsAboveZeroConstantAndEnough) {
  EXPECT_GT(this->backing().granularity(), 0_B);
  EXPECT_EQ(this->backing().granularity(), this->backing().granularity());

  auto reservation = this->reserve(1);
  EXPECT_TRUE(this->backing().commit(reservation, this->part(0, 1)).has_value());
}

TYPED_TEST(PlatformBackingContract, WhoPaysNeverChanges) {
  EXPECT_EQ(this->backing().physical_memory_accounting(),
            this->backing().physical_memory_accounting());
}

// B-091
TYPED_TEST(PlatformBackingContract, ReservingCommitsNothing) {
  const auto reservation = this->reserve(65536);

  EXPECT_EQ(reservation.size(), this->g(65536));
  EXPECT_EQ(this->backing().committed(reservation), 0_B);
  EXPECT_FALSE(reservation.base().is_null());
}

//
TYPED_TEST(PlatformBackingContract, AReservationOfNothingIsRefusedWithOneGranule) {
  const auto refused = this->backing().reserve(0_B);

  const auto* misaligned = this->template refusal<Misaligned>(refused);
  ASSERT_NE(misaligned, nullptr);
  EXPECT_EQ(misaligned->value, 0_B);
  EXPECT_EQ(misaligned->rounded, this->g(1));
}

// B-092, B-097
TYPED_TEST(PlatformBackingContract, AMisalignedNumberIsRefusedWithTheNextLegalOne) {
  auto reservation = this->reserve(3);

  const auto length = this->backing().reserve(this->g(2) + 1_B);
  const auto offset =
      this->backing().commit(reservation, {.offset = this->g(1) + 1_B, .size = this->g(1)});

  const auto* bad_length = this->template refusal<Misaligned>(length);
  const auto* bad_offset = this->template refusal<Misaligned>(offset);
  ASSERT_TRUE(bad_length != nullptr && bad_offset != nullptr);
  EXPECT_EQ(bad_length->rounded, this->g(3));
  EXPECT_EQ(bad_offset->value, this->g(1) + 1_B);
  EXPECT_EQ(bad_offset->rounded, this->g(2));
  EXPECT_TRUE(this->backing()
                  .commit(reservation, {.offset = bad_offset->rounded, .size = this->g(1)})
                  .has_value());
}

//
TYPED_TEST(PlatformBackingContract, NumbersNearTheMaximumAreTypedRefusals) {
  auto reservation = this->reserve(2);
  const Bytes last = align_down(Bytes::max(), this->g(1));

  EXPECT_FALSE(this->backing().reserve(Bytes::max()).has_value());
  EXPECT_FALSE(this->backing().reserve(last).has_value());
  const auto range = this->backing().commit(reservation, {.offset = last, .size = this->g(1)});

  EXPECT_NE(this->template refusal<OutOfRange>(range), nullptr);
  EXPECT_EQ(this->backing().committed(reservation), 0_B);
}

//
TYPED_TEST(PlatformBackingContract, ARangeOfNothingIsRefusedByCommitAndDecommit) {
  auto reservation = this->reserve(2);
  const ByteRange nothing{.offset = this->g(1), .size = 0_B};

  const auto* commit =
      this->template refusal<Misaligned>(this->backing().commit(reservation, nothing));
  const auto* decommit =
      this->template refusal<Misaligned>(this->backing().decommit(reservation, nothing));

  ASSERT_TRUE(commit != nullptr && decommit != nullptr);
  EXPECT_EQ(commit->rounded, this->g(1));
}

// B-093
TYPED_TEST(PlatformBackingContract, ARangeBeyondTheReservationNamesItsOverrun) {
  auto reservation = this->reserve(1);

  const auto refused = this->backing().commit(reservation, this->part(1, 1));

  const auto* outside = this->template refusal<OutOfRange>(refused);
  ASSERT_NE(outside, nullptr);
  EXPECT_EQ(outside->overrun, this->g(1));
  EXPECT_EQ(outside->reserved, this->g(1));
}

// B-088, B-090
TYPED_TEST(PlatformBackingContract, CommittedGranulesAreZeroAndKeepWhatIsWritten) {
  auto reservation = this->reserve(2);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(0, 1)).has_value());
  ASSERT_TRUE(this->backing().commit(reservation, this->part(1, 1)).has_value());

  EXPECT_EQ(this->read(reservation, 0), 0);
  EXPECT_TRUE(this->subject().write(reservation, this->g(0), 11));
  EXPECT_TRUE(this->subject().write(reservation, this->g(1), 22));

  EXPECT_EQ(this->read(reservation, 0), 11);
  ASSERT_TRUE(this->backing().decommit(reservation, this->part(1, 1)).has_value());
  EXPECT_EQ(this->read(reservation, 0), 11);
  EXPECT_EQ(this->backing().committed(reservation), this->g(1));
}

//
TYPED_TEST(PlatformBackingContract, WhatIsNotCommittedFaults) {
  auto reservation = this->reserve(3);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(1, 1)).has_value());

  EXPECT_EQ(this->read(reservation, 0), std::nullopt);
  EXPECT_NE(this->read(reservation, 1), std::nullopt);
  EXPECT_EQ(this->read(reservation, 2), std::nullopt);
  EXPECT_FALSE(this->subject().write(reservation, this->g(2), 1));
}

// B-098
TYPED_TEST(PlatformBackingContract, GranulesMayBeCommittedInAnyOrderWithGaps) {
  auto reservation = this->reserve(5);
  for (const std::uint64_t n : {3U, 0U, 4U}) {
    ASSERT_TRUE(this->backing().commit(reservation, this->part(n, 1)).has_value());
    ASSERT_TRUE(this->subject().write(reservation, this->g(n), static_cast<std::uint8_t>(n + 40)));
  }

  EXPECT_EQ(this->backing().committed(reservation), this->g(3));
  for (const std::uint64_t n : {0U, 3U, 4U}) {
    EXPECT_EQ(this->read(reservation, n), n + 40);
  }
}

// B-094
TYPED_TEST(PlatformBackingContract, AnOverlapIsRefusedAtItsFirstGranuleAndChangesNothing) {
  auto reservation = this->reserve(4);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(1, 2)).has_value());
  ASSERT_TRUE(this->subject().write(reservation, this->g(2), 9));

  const auto refused = this->backing().commit(reservation, this->part(0, 4));

  const auto* mapped = this->template refusal<AlreadyMapped>(refused);
  ASSERT_NE(mapped, nullptr);
  EXPECT_EQ(mapped->offset, this->g(1));
  EXPECT_EQ(this->backing().committed(reservation), this->g(2));
  EXPECT_EQ(this->read(reservation, 2), 9);
  EXPECT_EQ(this->read(reservation, 0), std::nullopt);
}

//
TYPED_TEST(PlatformBackingContract, AnyPartOfALargerCommitGoesAndReadsZeroWhenItIsBack) {
  auto reservation = this->reserve(6);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(0, 6)).has_value());
  for (std::uint64_t n = 0; n < 6; ++n) {
    ASSERT_TRUE(this->subject().write(reservation, this->g(n), 77));
  }

  ASSERT_TRUE(this->backing().decommit(reservation, this->part(2, 2)).has_value());

  EXPECT_EQ(this->backing().committed(reservation), this->g(4));
  EXPECT_EQ(this->read(reservation, 2), std::nullopt);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(2, 2)).has_value());
  EXPECT_EQ(this->read(reservation, 1), 77);
  EXPECT_EQ(this->read(reservation, 2), 0);
  EXPECT_EQ(this->read(reservation, 3), 0);
  EXPECT_EQ(this->read(reservation, 4), 77);
}

//
TYPED_TEST(PlatformBackingContract, ATailThatComesBackReadsZero) {
  auto reservation = this->reserve(6);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(0, 6)).has_value());
  for (std::uint64_t n = 0; n < 6; ++n) {
    ASSERT_TRUE(this->subject().write(reservation, this->g(n), 78));
  }

  ASSERT_TRUE(this->backing().decommit(reservation, this->part(3, 3)).has_value());
  EXPECT_EQ(this->read(reservation, 3), std::nullopt);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(3, 3)).has_value());

  EXPECT_EQ(this->read(reservation, 2), 78);
  for (std::uint64_t n = 3; n < 6; ++n) {
    EXPECT_EQ(this->read(reservation, n), 0);
  }
}

TYPED_TEST(PlatformBackingContract, DecommittingWhatIsNotCommittedIsRefusedAndChangesNothing) {
  auto reservation = this->reserve(4);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(0, 2)).has_value());
  ASSERT_TRUE(this->subject().write(reservation, this->g(1), 5));

  const auto refused = this->backing().decommit(reservation, this->part(1, 2));

  const auto* missing = this->template refusal<NotMapped>(refused);
  ASSERT_NE(missing, nullptr);
  EXPECT_EQ(missing->offset, this->g(2));
  EXPECT_EQ(this->backing().committed(reservation), this->g(2));
  EXPECT_EQ(this->read(reservation, 1), 5);
}

TYPED_TEST(PlatformBackingContract, ABatchIsCommittedTogether) {
  auto reservation = this->reserve(8);
  const std::array ranges{this->part(6, 1), this->part(0, 2), this->part(2, 1)};

  ASSERT_TRUE(this->backing().commit(reservation, std::span<const ByteRange>(ranges)).has_value());

  EXPECT_EQ(this->backing().committed(reservation), this->g(4));
  EXPECT_EQ(this->read(reservation, 6), 0);
  EXPECT_EQ(this->read(reservation, 5), std::nullopt);
}

TYPED_TEST(PlatformBackingContract, ABatchWithOneBadRangeCommitsNothing) {
  auto reservation = this->reserve(8);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(7, 1)).has_value());
  for (const ByteRange& bad : {this->part(7, 1),
                               this->part(8, 1),
                               this->part(1, 2),
                               ByteRange{.offset = this->g(4), .size = 0_B},
                               ByteRange{.offset = 1_B, .size = this->g(1)}}) {
    const std::array ranges{this->part(0, 2), this->part(3, 1), bad};

    EXPECT_FALSE(
        this->backing().commit(reservation, std::span<const ByteRange>(ranges)).has_value());

    EXPECT_EQ(this->backing().committed(reservation), this->g(1));
    EXPECT_EQ(this->read(reservation, 0), std::nullopt);
  }
}

//
TYPED_TEST(PlatformBackingContract, ARefusedCommitChangesNothingAndCanBeRepeated) {
  auto reservation = this->reserve(4);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(0, 1)).has_value());
  ASSERT_TRUE(this->subject().write(reservation, 0_B, 3));
  this->subject().refuse_next_commit();

  const auto refused = this->backing().commit(reservation, this->part(1, 2));

  const auto* os = this->template refusal<Os>(refused);
  ASSERT_NE(os, nullptr);
  EXPECT_NE(os->code, 0);
  EXPECT_EQ(this->backing().committed(reservation), this->g(1));
  EXPECT_EQ(this->read(reservation, 0), 3);
  EXPECT_EQ(this->read(reservation, 1), std::nullopt);
  EXPECT_TRUE(this->backing().commit(reservation, this->part(1, 2)).has_value());
}

//
TYPED_TEST(PlatformBackingContract, ARefusedDecommitStillCountsTheRangeAndCanBeRepeated) {
  auto reservation = this->reserve(4);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(0, 4)).has_value());
  this->subject().refuse_next_decommit();

  const auto refused = this->backing().decommit(reservation, this->part(0, 4));

  EXPECT_NE(this->template refusal<Os>(refused), nullptr);
  EXPECT_EQ(this->backing().committed(reservation), this->g(4));
  EXPECT_TRUE(this->backing().decommit(reservation, this->part(0, 4)).has_value());
  EXPECT_EQ(this->backing().committed(reservation), 0_B);
}

TYPED_TEST(PlatformBackingContract, AReservationIsTheSameAfterAMove) {
  auto reservation = this->reserve(2);
  ASSERT_TRUE(this->backing().commit(reservation, this->part(1, 1)).has_value());
  ASSERT_TRUE(this->subject().write(reservation, this->g(1), 66));
  const DeviceAddress base = reservation.base();

  auto moved = std::move(reservation);
  auto other = this->reserve(1);
  other = std::move(moved);

  EXPECT_EQ(other.base(), base);
  EXPECT_EQ(other.size(), this->g(2));
  EXPECT_EQ(this->read(other, 1), 66);
  EXPECT_EQ(this->backing().committed(other), this->g(1));
}

TYPED_TEST(PlatformBackingContract, ReservationsAreIndependent) {
  auto one = this->reserve(2);
  auto two = this->reserve(2);
  ASSERT_TRUE(this->backing().commit(one, this->part(0, 2)).has_value());
  ASSERT_TRUE(this->backing().commit(two, this->part(0, 1)).has_value());
  ASSERT_TRUE(this->subject().write(one, 0_B, 1));
  ASSERT_TRUE(this->subject().write(two, 0_B, 2));

  ASSERT_TRUE(this->backing().decommit(two, this->part(0, 1)).has_value());

  EXPECT_EQ(this->read(one, 0), 1);
  EXPECT_EQ(this->backing().committed(one), this->g(2));
  EXPECT_EQ(this->backing().committed(two), 0_B);
}

}  // namespace
}  // namespace memstrata
