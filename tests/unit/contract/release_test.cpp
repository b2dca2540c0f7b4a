// SPDX-License-Identifier: Apache-2.0
#include "memstrata/contract/release.hpp"

#include <gtest/gtest.h>

#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/release_state.hpp"

namespace memstrata {
namespace {

using State = AllocationReleaseState;

// B-055, G-160
TEST(ReleaseOutcome, AnEagerCompleteReleaseUnmapsNothingAndIsStillReleased) {
  const ReleaseOutcome outcome =
      ReleaseOutcome::released({.allocation_bytes = 4096_B, .unmapped_bytes = 0_B});

  EXPECT_EQ(outcome.state(), State::released);
  EXPECT_EQ(outcome.accounting().allocation_bytes, 4096_B);
  EXPECT_EQ(outcome.accounting().unmapped_bytes, 0_B);
  EXPECT_FALSE(outcome.residual().has_value());
}

TEST(ReleaseOutcome, ARetainedOutcomeHasTheStateOfWhatIsLeft) {
  const ReleaseOutcome outcome =
      ReleaseOutcome::retained({.allocation_bytes = 4096_B, .unmapped_bytes = 1024_B},
                               {.state = State::partially_unmapped,
                                .reason = QuarantineReason(QuarantineReason::Kind::partial_release),
                                .retained_bytes = 3072_B,
                                .address = DeviceAddress{0x1000},
                                .alignment = 64_B});

  EXPECT_EQ(outcome.state(), State::partially_unmapped);
  EXPECT_EQ(outcome.accounting().unmapped_bytes, 1024_B);
  ASSERT_TRUE(outcome.residual().has_value());
  EXPECT_EQ(outcome.residual()->retained_bytes, 3072_B);
  EXPECT_EQ(outcome.residual()->address, DeviceAddress{0x1000});
  EXPECT_EQ(outcome.residual()->reason.kind(), QuarantineReason::Kind::partial_release);
}

TEST(MechanismRelease, CompleteCarriesWhatWasUnmapped) {
  const MechanismRelease answer = MechanismRelease::complete(64_KiB);

  EXPECT_TRUE(answer.is_complete());
  EXPECT_FALSE(answer.is_unchanged());
  EXPECT_EQ(answer.unmapped_bytes(), 64_KiB);
}

TEST(MechanismRelease, ZeroUnmappedBytesAreACompleteAnswer) {
  EXPECT_TRUE(MechanismRelease::complete(0_B).is_complete());
}

// B-056, G-160
TEST(MechanismRelease, UnchangedKeepsTheReasonAndUnmapsNothing) {
  const MechanismRelease answer = MechanismRelease::unchanged(ErrorText::copy("driver busy"));

  EXPECT_TRUE(answer.is_unchanged());
  EXPECT_FALSE(answer.is_complete());
  EXPECT_EQ(answer.unmapped_bytes(), 0_B);
  EXPECT_EQ(std::get<MechanismRelease::Unchanged>(answer.kind()).why.view(), "driver busy");
}

TEST(MechanismRelease, PartialIsNeitherCompleteNorUnchanged) {
  const MechanismRelease answer = MechanismRelease::partial(1_KiB, 3_KiB, "stopped midway");

  EXPECT_FALSE(answer.is_complete());
  EXPECT_FALSE(answer.is_unchanged());
  EXPECT_EQ(answer.unmapped_bytes(), 1_KiB);
  const auto& partial = std::get<MechanismRelease::Partial>(answer.kind());
  EXPECT_EQ(partial.retained, 3_KiB);
  EXPECT_EQ(partial.why.view(), "stopped midway");
}

}  // namespace
}  // namespace memstrata
