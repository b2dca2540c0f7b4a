// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/shared_prefix_pair_error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

[[nodiscard]] MemoryError failed(ErrorText why) {
  return AllocationFailed{.tier = Tier::device, .requested = 64_B, .reason = std::move(why)};
}

TEST(SharedPrefixPairErrorMessage, ARefusalSaysThatTheFallbackIsSafeAndWhy) {
  const SharedPrefixPairError error = PairRefused{failed("the arena is full")};

  EXPECT_TRUE(error.is_fallback_safe());
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("private copy is a safe fallback"), HasSubstr("the arena is full")));
}

// G-045
TEST(SharedPrefixPairErrorMessage, AFailedRollBackReportsBothCausesAndForbidsTheFallback) {
  const SharedPrefixPairError error =
      PairRollbackFailed{.cause = failed("the arena is full"), .rollback = failed("device lost")};

  EXPECT_FALSE(error.is_fallback_safe());
  EXPECT_THAT(
      error.message(),
      AllOf(
          HasSubstr("the arena is full"), HasSubstr("device lost"), HasSubstr("do not fall back")));
}

}  // namespace
}  // namespace memstrata
