// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/check.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace memstrata {
namespace {

void report_and_exit(const CheckFailure& failure) noexcept {
  std::fprintf(stderr,
               "handler got %s: %s, %llu and %llu, line %s\n",
               failure.expression,
               failure.message,
               static_cast<unsigned long long>(failure.first),
               static_cast<unsigned long long>(failure.second),
               failure.line > 0 ? "known" : "unknown");
}

void leave(const CheckFailure& /*failure*/) noexcept {
  std::_Exit(17);
}

TEST(CheckVerify, PassesWithoutEvaluatingTwice) {
  int evaluated = 0;

  MEMSTRATA_VERIFY(++evaluated == 1, "evaluated once");

  EXPECT_EQ(evaluated, 1);
}

TEST(CheckVerifyDeathTest, TheDefaultWritesExpressionMessageValuesAndPlace) {
  EXPECT_DEATH(MEMSTRATA_VERIFY(1 + 1 == 3, "arithmetic is broken", 41U, 42U),
               "check_test.cpp:[0-9]+: arithmetic is broken \\(1 \\+ 1 == 3; values 41 and 42\\)");
}

TEST(CheckVerifyDeathTest, AHandlerIsCalledOnceAndThenTheProgramAborts) {
  EXPECT_EXIT(
      {
        static_cast<void>(set_abort_handler(&report_and_exit));
        MEMSTRATA_VERIFY(false, "told", 1U, 2U);
      },
      testing::KilledBySignal(6),
      "handler got false: told, 1 and 2, line known");
}

TEST(CheckVerifyDeathTest, AHandlerMayEndTheProgramItsOwnWay) {
  EXPECT_EXIT(
      {
        static_cast<void>(set_abort_handler(&leave));
        MEMSTRATA_VERIFY(false, "told");
      },
      testing::ExitedWithCode(17),
      "");
}

TEST(CheckHandler, ReplacingReturnsTheOneBeforeAndNullRestoresTheDefault) {
  const AbortHandler standard = set_abort_handler(&leave);

  EXPECT_EQ(set_abort_handler(nullptr), &leave);

  EXPECT_NE(standard, &leave);
  EXPECT_EQ(set_abort_handler(nullptr), standard);
}

}  // namespace
}  // namespace memstrata
