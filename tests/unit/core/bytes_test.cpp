// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/bytes.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace memstrata {
namespace {

TEST(BytesArithmetic, CheckedSumsAndProductsAnswerWithNothingInsteadOfWrapping) {
  EXPECT_EQ(checked_add(Bytes::max() - 1_B, 1_B), Bytes::max());
  EXPECT_EQ(checked_add(Bytes::max(), 1_B), std::nullopt);
  EXPECT_EQ(checked_mul(1_TiB, 1U << 23U), Bytes{1ULL << 63U});
  EXPECT_EQ(checked_mul(1_TiB, 1U << 24U), std::nullopt);
}

TEST(BytesArithmetic, SaturatingOperationsStopAtTheEnds) {
  EXPECT_EQ(saturating_add(Bytes::max(), 7_B), Bytes::max());
  EXPECT_EQ(saturating_add(3_B, 4_B), 7_B);
  EXPECT_EQ(saturating_mul(Bytes::max(), 2), Bytes::max());
  EXPECT_EQ(saturating_mul(3_B, 4), 12_B);
  EXPECT_EQ(saturating_sub(3_B, 4_B), Bytes{});
  EXPECT_EQ(saturating_sub(4_B, 3_B), 1_B);
}

TEST(BytesArithmetic, OrderAndLiteralsAreThoseOfNumbers) {
  EXPECT_LT(1023_B, 1_KiB);
  EXPECT_EQ(1_MiB, 1024_KiB);
  EXPECT_EQ(1_GiB, 1024_MiB);
  EXPECT_EQ(1_TiB, 1024_GiB);
  EXPECT_EQ(5_KiB - 1_KiB + 2_KiB, 6_KiB);
}

TEST(BytesArithmeticDeathTest, AWrapStopsTheProgramWithBothValues) {
  EXPECT_DEATH(static_cast<void>(Bytes::max() + 5_B),
               "sum of bytes wraps.*18446744073709551615 and 5");
  EXPECT_DEATH(static_cast<void>(3_B - 4_B), "difference of bytes is negative.*3 and 4");
  EXPECT_DEATH(static_cast<void>(1_TiB * (1U << 24U)), "product of bytes wraps.*16777216");
}

//
TEST(BytesAlign, RoundingUpNearTheMaximumAnswersWithNothing) {
  const Bytes last = align_down(Bytes::max(), 4_KiB);

  EXPECT_EQ(align_up(last, 4_KiB), last);
  EXPECT_EQ(align_up(last + 1_B, 4_KiB), std::nullopt);
  EXPECT_EQ(align_up(Bytes::max(), 4_KiB), std::nullopt);
  EXPECT_EQ(align_up(last - 1_B, 4_KiB), last);
}

TEST(BytesAlign, RoundsToAnyUnitAndLeavesMultiplesAlone) {
  EXPECT_EQ(align_up(Bytes{}, 4_KiB), Bytes{});
  EXPECT_EQ(align_up(1_B, 4_KiB), 4_KiB);
  EXPECT_EQ(align_up(4_KiB, 4_KiB), 4_KiB);
  EXPECT_EQ(align_up(7_B, 3_B), 9_B);
  EXPECT_EQ(align_down(8_B, 3_B), 6_B);
  EXPECT_EQ(align_down(9_B, 3_B), 9_B);
}

TEST(BytesAlign, MultiplesAndPowersOfTwoAreRecognised) {
  EXPECT_TRUE(is_multiple(8_KiB, 4_KiB));
  EXPECT_TRUE(is_multiple(Bytes{}, 4_KiB));
  EXPECT_FALSE(is_multiple(6_KiB, 4_KiB));
  EXPECT_FALSE(is_multiple(6_KiB, Bytes{}));
  EXPECT_TRUE(is_power_of_two(1));
  EXPECT_TRUE(is_power_of_two(1ULL << 63U));
  EXPECT_FALSE(is_power_of_two(0));
  EXPECT_FALSE(is_power_of_two(12));
}

TEST(ByteRangeEnd, IsCheckedOnRequest) {
  constexpr ByteRange wrapping{.offset = Bytes::max(), .size = 1_B};

  EXPECT_EQ(wrapping.checked_end(), std::nullopt);
  EXPECT_EQ((ByteRange{.offset = 3_B, .size = 4_B}).checked_end(), 7_B);
  EXPECT_EQ((ByteRange{.offset = 3_B, .size = 4_B}).end(), 7_B);
}

TEST(ByteRangeEndDeathTest, AnEndThatWrapsStopsTheProgram) {
  constexpr ByteRange wrapping{.offset = Bytes::max(), .size = 1_B};

  EXPECT_DEATH(static_cast<void>(wrapping.end()), "sum of bytes wraps");
}

TEST(ByteRangeOverlap, TouchingOrEmptyRangesDoNotOverlap) {
  constexpr ByteRange low{.offset = {}, .size = 4_B};
  constexpr ByteRange high{.offset = 4_B, .size = 4_B};
  constexpr ByteRange middle{.offset = 3_B, .size = 2_B};
  constexpr ByteRange nothing{.offset = 3_B, .size = {}};

  EXPECT_FALSE(low.overlaps(high));
  EXPECT_TRUE(low.overlaps(middle));
  EXPECT_TRUE(middle.overlaps(high));
  EXPECT_FALSE(low.overlaps(nothing));
  EXPECT_FALSE(nothing.overlaps(low));
  EXPECT_TRUE(nothing.empty());
}

TEST(ByteRangeContains, WholeRangesOnly) {
  constexpr ByteRange outer{.offset = 2_B, .size = 4_B};

  EXPECT_TRUE(outer.contains(outer));
  EXPECT_TRUE(outer.contains({.offset = 3_B, .size = 3_B}));
  EXPECT_FALSE(outer.contains({.offset = 1_B, .size = 2_B}));
  EXPECT_FALSE(outer.contains({.offset = 3_B, .size = 4_B}));
}

}  // namespace
}  // namespace memstrata
