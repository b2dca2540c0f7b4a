// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/virtual_memory_error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata::virtual_memory_error_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

static_assert(!std::is_copy_constructible_v<VirtualMemoryError>);
static_assert(std::is_nothrow_move_constructible_v<VirtualMemoryError>);

[[nodiscard]] MemoryError exhausted() {
  return TierExhausted{.tier = Tier::host,
                       .role = MemoryRole::kv_cache,
                       .requested = 10_B,
                       .used = 20_B,
                       .limit = 25_B,
                       .available = 5_B};
}

// B-088
TEST(VirtualMemoryErrorMessage, ADelegatedErrorIsItsOperationAndTheTextBelow) {
  const auto error = VirtualMemoryError::delegated("commit of a granule", exhausted());

  EXPECT_EQ(error.message(), "commit of a granule failed: " + exhausted().message());
  EXPECT_THAT(error.message(), Not(HasSubstr("os error")));
}

// B-088
TEST(VirtualMemoryErrorCause, IsReachableAsItsConcreteType) {
  const auto error = VirtualMemoryError::delegated("commit of a granule", exhausted());

  const auto* below = error.cause.target<MemoryError>();

  ASSERT_NE(below, nullptr);
  EXPECT_EQ(std::get<TierExhausted>(below->kind).limit, 25_B);
  EXPECT_EQ(error.cause.target<VirtualMemoryError>(), nullptr);
}

TEST(VirtualMemoryErrorMessage, MisalignedNamesValueGranuleNextAndHowToAsk) {
  const VirtualMemoryError error =
      Misaligned{.what = "offset", .value = 4097_B, .granularity = 4096_B, .rounded = 8192_B};

  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("offset 4097"),
                    HasSubstr("granule of 4096"),
                    HasSubstr("8192"),
                    HasSubstr("granularity()")));
}

//
TEST(VirtualMemoryErrorMessage, ALengthOfZeroNamesOneGranule) {
  const VirtualMemoryError error =
      Misaligned{.what = "length", .value = {}, .granularity = 4096_B, .rounded = 4096_B};

  EXPECT_THAT(
      error.message(),
      AllOf(HasSubstr("length of 0"), HasSubstr("4096, one granule"), HasSubstr("granularity()")));
}

TEST(VirtualMemoryErrorMessage, TooLargeNamesTheLargestLegalValue) {
  const VirtualMemoryError error = TooLarge{.what = "capacity", .value = 999_B, .largest = 888_B};

  EXPECT_THAT(error.message(), AllOf(HasSubstr("capacity 999"), HasSubstr("888")));
}

TEST(VirtualMemoryErrorMessage, OutOfRangeNamesAllFourNumbersAndTheRemedy) {
  const VirtualMemoryError error =
      OutOfRange{.offset = 111_B, .length = 222_B, .reserved = 300_B, .overrun = 33_B};

  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("111"),
                    HasSubstr("222"),
                    HasSubstr("300"),
                    HasSubstr("33 bytes beyond"),
                    HasSubstr("reserve more")));
}

TEST(VirtualMemoryErrorMessage, OverlapAndAbsenceNameTheGranule) {
  const VirtualMemoryError overlap = AlreadyMapped{.offset = 4096_B};
  const VirtualMemoryError absent = NotMapped{.offset = 8192_B};

  EXPECT_THAT(overlap.message(), AllOf(HasSubstr("4096"), HasSubstr("already")));
  EXPECT_THAT(absent.message(), AllOf(HasSubstr("8192"), HasSubstr("nothing was changed")));
}

TEST(VirtualMemoryErrorMessage, AKernelRefusalNamesCallReasonAndCode) {
  const VirtualMemoryError error =
      Os{.operation = "mprotect", .reason = "Cannot allocate memory", .code = 12};

  EXPECT_EQ(error.message(), "mprotect failed: Cannot allocate memory (os error 12)");
}

TEST(VirtualMemoryErrorMessage, ABudgetNamesUseLimitAndTheSettingToRaise) {
  const VirtualMemoryError mappings =
      MappingBudget{.used = 49148, .limit = 49147, .setting = "vm.max_map_count"};
  const VirtualMemoryError descriptors =
      DescriptorBudget{.used = 769, .limit = 768, .setting = "RLIMIT_NOFILE"};

  EXPECT_THAT(mappings.message(),
              AllOf(HasSubstr("49148"), HasSubstr("49147"), HasSubstr("raise vm.max_map_count")));
  EXPECT_THAT(descriptors.message(),
              AllOf(HasSubstr("769"), HasSubstr("768"), HasSubstr("raise RLIMIT_NOFILE")));
}

TEST(VirtualMemoryErrorMessage, ARefusedPrefixNamesOperationAndReason) {
  const VirtualMemoryError error = PrefixRefused{.operation = "map_shared", .reason = "not sealed"};

  EXPECT_EQ(error.message(), "map_shared refused: not sealed");
}

}  // namespace
}  // namespace memstrata::virtual_memory_error_test
