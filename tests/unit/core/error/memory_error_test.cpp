// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/memory_error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_cause.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

static_assert(!std::is_copy_constructible_v<MemoryError>);
static_assert(std::is_nothrow_move_constructible_v<MemoryError>);

[[nodiscard]] MemoryError exhausted() {
  return TierExhausted{.tier = Tier::device,
                       .role = MemoryRole::workspace(true),
                       .requested = 1001_B,
                       .used = 2002_B,
                       .limit = 3003_B,
                       .available = 1000_B};
}

[[nodiscard]] MemoryError unavailable() {
  return {CapacityUnavailable{.tier = Tier::host,
                              .role = MemoryRole::weights,
                              .requested = 11_B,
                              .available = 7_B,
                              .detail = "the holder kept 4"},
          ErrorCause::of(VirtualMemoryError(AlreadyMapped{.offset = 4096_B}))};
}

TEST(MemoryErrorMessage, AnExhaustedTierNamesEveryNumberAndTheRemedies) {
  EXPECT_THAT(exhausted().message(),
              AllOf(HasSubstr("device memory exhausted"),
                    HasSubstr("workspace(step_scoped) asked for 1001 bytes"),
                    HasSubstr("2002 of 3003 are used"),
                    HasSubstr("1000 remain"),
                    HasSubstr("end a session"),
                    HasSubstr("ask for less"),
                    HasSubstr("raise the device limit")));
}

TEST(MemoryErrorMessage, AnInvalidRequestNamesTierNumberAndReason) {
  const MemoryError error =
      InvalidRequest{.tier = Tier::disk, .requested = 77_B, .reason = "not a power of two"};

  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("77 bytes"), HasSubstr("disk"), HasSubstr("not a power of two")));
}

TEST(MemoryErrorMessage, ABackendRefusalKeepsItsTextCallAndCodeAndIsNotOurs) {
  const MemoryError error = AllocationFailed{.tier = Tier::host,
                                             .requested = 88_B,
                                             .reason = "Cannot allocate memory",
                                             .call = "mmap",
                                             .code = 12};

  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("88 bytes of host memory"),
                    HasSubstr("Cannot allocate memory"),
                    HasSubstr("mmap returned code 12"),
                    HasSubstr("not a refusal of the governor")));
}

TEST(MemoryErrorMessage, ABackendWithoutACallNamesNone) {
  const MemoryError error =
      AllocationFailed{.tier = Tier::host, .requested = 88_B, .reason = "scripted"};

  EXPECT_THAT(error.message(), AllOf(HasSubstr("scripted"), Not(HasSubstr("code"))));
}

TEST(MemoryErrorMessage, ACapacityThatFellShortDoesNotFoldItsCauseIn) {
  EXPECT_THAT(unavailable().message(),
              AllOf(HasSubstr("host"),
                    HasSubstr("weights asked for 11 bytes"),
                    HasSubstr("7 can be had"),
                    HasSubstr("the holder kept 4"),
                    Not(HasSubstr("4096"))));
}

TEST(MemoryErrorCause, IsReachableAsItsOwnType) {
  const MemoryError error = unavailable();

  const auto* below = error.cause.target<VirtualMemoryError>();

  ASSERT_NE(below, nullptr);
  EXPECT_EQ(std::get<AlreadyMapped>(below->kind).offset, 4096_B);
}

TEST(MemoryErrorCapacity, OnlyFullTiersAndShortTransfersCanBeHelpedByPressure) {
  const MemoryError invalid =
      InvalidRequest{.tier = Tier::host, .requested = {}, .reason = "malformed"};
  const MemoryError failed =
      AllocationFailed{.tier = Tier::host, .requested = {}, .reason = "refused"};

  EXPECT_TRUE(exhausted().is_capacity_error());
  EXPECT_TRUE(unavailable().is_capacity_error());
  EXPECT_FALSE(invalid.is_capacity_error());
  EXPECT_FALSE(failed.is_capacity_error());
}

}  // namespace
}  // namespace memstrata
