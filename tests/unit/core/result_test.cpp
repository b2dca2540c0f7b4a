// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/result.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"

namespace memstrata {
namespace {

[[nodiscard]] Result<std::unique_ptr<int>, VirtualMemoryError> make(bool works) {
  if (!works) {
    return fail(AlreadyMapped{.offset = 9_B});
  }
  return std::make_unique<int>(5);
}

[[nodiscard]] Result<void, VirtualMemoryError> check(bool works) {
  if (!works) {
    return fail(NotMapped{.offset = 3_B});
  }
  return {};
}

[[nodiscard]] Result<int, VirtualBufferError> twice(bool first, bool second, int& steps) {
  MEMSTRATA_TRY(const auto a, make(first));
  ++steps;
  MEMSTRATA_TRY(const auto b, make(second));
  ++steps;
  return *a + *b;
}

[[nodiscard]] Result<void, VirtualBufferError> checked(bool first, bool second, int& steps) {
  MEMSTRATA_TRY_VOID(check(first));
  ++steps;
  MEMSTRATA_TRY_VOID(check(second));
  ++steps;
  return {};
}

TEST(ResultTry, HandsOutMoveOnlyValues) {
  int steps = 0;

  const auto sum = twice(true, true, steps);

  ASSERT_TRUE(sum.has_value());
  EXPECT_EQ(*sum, 10);
  EXPECT_EQ(steps, 2);
}

TEST(ResultTry, StopsAtTheFirstErrorAndConvertsItToTheLayerAbove) {
  int steps = 0;

  const auto failed = twice(true, false, steps);

  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(steps, 1);
  const auto* below = std::get_if<VirtualMemoryError>(&failed.error().kind);
  ASSERT_NE(below, nullptr);
  EXPECT_EQ(std::get<AlreadyMapped>(below->kind).offset, 9_B);
}

TEST(ResultTryVoid, GoesOnAfterSuccessAndStopsAtTheFirstError) {
  int steps = 0;

  const auto done = checked(true, true, steps);
  const auto failed = checked(false, true, steps);

  EXPECT_TRUE(done.has_value());
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(steps, 2);
}

TEST(ResultFail, KeepsTheAlternativeItWasGiven) {
  const Result<int> failed =
      fail(InvalidRequest{.tier = Tier::host, .requested = 8_B, .reason = "odd"});

  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(std::get<InvalidRequest>(failed.error().kind).requested, 8_B);
}

}  // namespace
}  // namespace memstrata
