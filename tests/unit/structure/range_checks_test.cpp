// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/range_checks.hpp"

#include <gtest/gtest.h>

#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"

namespace memstrata {
namespace {

constexpr Bytes granule = 64_KiB;

// B-092, B-097
TEST(RangeChecks, AMisalignedOffsetNamesTheNextLegalOne) {
  const auto refused =
      check_granule_range({.offset = granule + 1_B, .size = granule}, granule, granule * 3);

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<Misaligned>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_STREQ(error->what, "offset");
  EXPECT_EQ(error->value, granule + 1_B);
  EXPECT_EQ(error->granularity, granule);
  EXPECT_EQ(error->rounded, granule * 2);
  EXPECT_TRUE(check_granule_range({.offset = error->rounded, .size = granule}, granule, granule * 3)
                  .has_value());
}

TEST(RangeChecks, TheOffsetIsCheckedBeforeTheLengthAndTheLengthBeforeTheEnd) {
  const auto offset_first = check_granule_range({.offset = 1_B, .size = 3_B}, granule, Bytes{});
  const auto length_next = check_granule_range({.offset = granule, .size = 3_B}, granule, Bytes{});

  ASSERT_FALSE(offset_first.has_value());
  ASSERT_FALSE(length_next.has_value());
  EXPECT_STREQ(std::get<Misaligned>(offset_first.error().kind).what, "offset");
  EXPECT_STREQ(std::get<Misaligned>(length_next.error().kind).what, "length");
}

//
TEST(RangeChecks, ALengthOfZeroIsATypedRefusalThatNamesOneGranule) {
  const auto refused = check_granule_range({.offset = granule, .size = {}}, granule, granule * 3);

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<Misaligned>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_STREQ(error->what, "length");
  EXPECT_EQ(error->value, Bytes{});
  EXPECT_EQ(error->rounded, granule);
}

// B-093
TEST(RangeChecks, ARangeBeyondTheEndNamesTheExcess) {
  const auto refused = check_granule_range({.offset = granule, .size = granule}, granule, granule);

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<OutOfRange>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->offset, granule);
  EXPECT_EQ(error->length, granule);
  EXPECT_EQ(error->reserved, granule);
  EXPECT_EQ(error->overrun, granule);
}

//
TEST(RangeChecks, AnEndThatWrapsIsOutOfRange) {
  const Bytes last = align_down(Bytes::max(), granule);

  const auto refused =
      check_granule_range({.offset = last, .size = granule * 2}, granule, granule * 3);

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<OutOfRange>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->overrun, Bytes::max() - granule * 3);
}

//
TEST(RangeChecks, AnOffsetThatCannotBeRoundedIsTooLarge) {
  const auto refused =
      check_granule_range({.offset = Bytes::max(), .size = granule}, granule, granule * 3);

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<TooLarge>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_STREQ(error->what, "offset");
  EXPECT_EQ(error->value, Bytes::max());
  EXPECT_EQ(error->largest, align_down(Bytes::max(), granule));
}

//
TEST(RangeChecks, AReservationThatCannotBeRoundedIsTooLarge) {
  const auto refused = check_reservation_length(Bytes::max() - 1_B, granule);

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<TooLarge>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_TRUE(check_reservation_length(error->largest, granule).has_value());
}

TEST(RangeChecks, AReservationIsAWholeNumberOfGranulesAboveZero) {
  const auto zero = check_reservation_length(Bytes{}, granule);
  const auto odd = check_reservation_length(granule + 1_B, granule);

  ASSERT_FALSE(zero.has_value());
  ASSERT_FALSE(odd.has_value());
  EXPECT_EQ(std::get<Misaligned>(zero.error().kind).rounded, granule);
  EXPECT_EQ(std::get<Misaligned>(odd.error().kind).rounded, granule * 2);
  EXPECT_TRUE(check_reservation_length(granule * 2, granule).has_value());
}

//
TEST(RangeChecks, ACapacityIsRoundedUpAndNeverWraps) {
  const auto refused = rounded_capacity(Bytes::max(), granule);

  EXPECT_EQ(rounded_capacity(Bytes{}, granule).value(), granule);
  EXPECT_EQ(rounded_capacity(Bytes{}, 1_B).value(), 1_B);
  EXPECT_EQ(rounded_capacity(granule, granule).value(), granule);
  EXPECT_EQ(rounded_capacity(granule + 1_B, granule).value(), granule * 2);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(std::get<TooLarge>(refused.error().kind).value, Bytes::max());
}

TEST(RangeChecks, AnUnalignedRangeInsideIsInside) {
  EXPECT_TRUE(check_inside({.offset = 1_B, .size = 2_B}, 3_B).has_value());
  EXPECT_FALSE(check_inside({.offset = 1_B, .size = 3_B}, 3_B).has_value());
  EXPECT_FALSE(check_inside({.offset = Bytes::max(), .size = 3_B}, 3_B).has_value());
}

TEST(RangeChecks, GranulesNeedNotBePowersOfTwo) {
  EXPECT_TRUE(is_whole_granules(36_KiB, 12_KiB));
  EXPECT_FALSE(is_whole_granules(32_KiB, 12_KiB));
  EXPECT_TRUE(is_whole_granules(32_KiB, 16_KiB));
  EXPECT_FALSE(is_whole_granules(36_KiB, 16_KiB));
  EXPECT_EQ(whole_granules(25_KiB, 12_KiB), 36_KiB);
  EXPECT_EQ(whole_granules(25_KiB, 16_KiB), 32_KiB);
  EXPECT_EQ(whole_granules(48_KiB, 16_KiB), 48_KiB);
  EXPECT_EQ(whole_granules(Bytes{}, 16_KiB), Bytes{});
}

}  // namespace
}  // namespace memstrata
