// SPDX-License-Identifier: Apache-2.0
#include "memstrata/contract/release.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"

namespace memstrata {
namespace {

using State = AllocationReleaseState;

struct StateRow {
  State state;
  bool retains;
  bool permits;
  bool terminal;
  std::string_view name;
};

constexpr std::array state_table{
    StateRow{State::live, true, true, false, "live"},
    StateRow{State::queued, true, true, false, "queued"},
    StateRow{State::partially_unmapped, true, false, true, "partially unmapped"},
    StateRow{State::released, false, false, true, "released"},
    StateRow{State::device_lost, true, false, true, "device lost"},
    StateRow{State::quarantined, true, false, true, "quarantined"},
};

// B-057
TEST(AllocationReleaseState, AnswersEveryQuestionAsTheTableSays) {
  for (const StateRow& row : state_table) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(retains_ownership(row.state), row.retains);
    EXPECT_EQ(permits_allocator_call(row.state), row.permits);
    EXPECT_EQ(is_terminal(row.state), row.terminal);
    EXPECT_EQ(to_string(row.state), row.name);
  }
}

TEST(AllocationReleaseState, OnlyReleasedGivesOwnershipUp) {
  int without_owner = 0;
  for (const StateRow& row : state_table) {
    without_owner += retains_ownership(row.state) ? 0 : 1;
  }

  EXPECT_EQ(without_owner, 1);
  EXPECT_FALSE(retains_ownership(State::released));
}

TEST(QuarantineReason, EveryKindHasAPhraseOfItsOwn) {
  using Kind = QuarantineReason::Kind;
  std::set<std::string_view> phrases;
  for (const Kind kind : {Kind::abandoned_request,
                          Kind::owner_dropped,
                          Kind::device_lost,
                          Kind::mechanism_terminated,
                          Kind::partial_release,
                          Kind::allocator_refused}) {
    const QuarantineReason reason(kind);
    EXPECT_EQ(reason.kind(), kind);
    EXPECT_EQ(reason.rejection(), std::nullopt);
    EXPECT_FALSE(reason.phrase().empty());
    phrases.insert(reason.phrase());
  }

  EXPECT_EQ(phrases.size(), 6U);
}

TEST(QuarantineReason, ARejectionIsNamedInParentheses) {
  using Rejection = DeferredEnqueueRejection;
  for (const Rejection rejection :
       {Rejection::closed, Rejection::full, Rejection::device_lost, Rejection::refused}) {
    const QuarantineReason reason = QuarantineReason::enqueue_rejected(rejection);

    EXPECT_EQ(reason.kind(), QuarantineReason::Kind::enqueue_rejected);
    EXPECT_EQ(reason.rejection(), rejection);
    EXPECT_TRUE(reason.phrase().ends_with("(" + std::string(to_string(rejection)) + ")"))
        << reason.phrase();
  }
}

TEST(QuarantineReason, RejectionsAreDifferentReasons) {
  const auto full = QuarantineReason::enqueue_rejected(DeferredEnqueueRejection::full);

  EXPECT_EQ(full, QuarantineReason::enqueue_rejected(DeferredEnqueueRejection::full));
  EXPECT_NE(full, QuarantineReason::enqueue_rejected(DeferredEnqueueRejection::closed));
  EXPECT_NE(full, QuarantineReason(QuarantineReason::Kind::device_lost));
}

// B-055
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

// B-056
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
