// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/binding_error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

static_assert(!std::is_copy_constructible_v<BindingError>);
static_assert(std::is_nothrow_move_constructible_v<BindingError>);
static_assert(std::is_nothrow_move_assignable_v<BindingError>);

// All of them are tested below, each with the facts that it must carry.
static_assert(std::variant_size_v<BindingError::Kind> == 22);

/// Identities with numbers that occur nowhere else in a message.
template <class Id>
[[nodiscard]] Id id(std::uint64_t serial) {
  return IdentitySource(41).restore<Id>(serial);
}

[[nodiscard]] AllocationIdentity an_allocation() {
  return {.binding = {.id = id<BindingId>(53),
                      .generation = id<BindingGeneration>(54),
                      .device = DeviceKey::device(6),
                      .mechanism = id<MechanismIdentity>(55),
                      .context = id<ProviderContextIdentity>(56),
                      .authority = id<AuthorityIdentity>(57)},
          .generation = id<AllocationGeneration>(58)};
}

/// What every message about `an_allocation()` names.
[[nodiscard]] auto names_the_allocation() {
  return AllOf(
      HasSubstr("allocation #58 of registry 41"), HasSubstr("binding #53"), HasSubstr("device 6"));
}

[[nodiscard]] std::string message(BindingError error) {
  return error.message();
}

//
TEST(BindingErrorMessage, ExhaustedIdentitiesAreSaidToBeUsedUp) {
  EXPECT_THAT(message(IdentityExhausted{}),
              AllOf(HasSubstr("identity space"), HasSubstr("used up"), HasSubstr("new registry")));
}

//
TEST(BindingErrorMessage, AForeignHandleIsNamedByItsKind) {
  EXPECT_THAT(message(ForeignRegistry{RegisteredKind::provider_context}),
              AllOf(HasSubstr("the provider context was"), HasSubstr("another registry")));
  EXPECT_THAT(message(ForeignRegistry{RegisteredKind::authority}), HasSubstr("the authority was"));
  EXPECT_THAT(message(ForeignRegistry{RegisteredKind::mechanism}), HasSubstr("the mechanism was"));
  EXPECT_THAT(message(ForeignRegistry{RegisteredKind::allocation}),
              HasSubstr("the allocation was"));
}

//
TEST(BindingErrorMessage, ADeviceMismatchNamesTheSubjectAndBothKeys) {
  EXPECT_THAT(message(DeviceMismatch{.subject = DeviceSubject::authority,
                                     .expected = DeviceKey::device(3),
                                     .actual = DeviceKey::host()}),
              AllOf(HasSubstr("the authority is of device host 0"),
                    HasSubstr("the provider context of device device 3")));
  EXPECT_THAT(message(DeviceMismatch{.subject = DeviceSubject::allocator,
                                     .expected = DeviceKey::host(),
                                     .actual = DeviceKey::device(4)}),
              AllOf(HasSubstr("the allocator is of device device 4"),
                    HasSubstr("the provider context of device host 0")));
}

//
TEST(BindingErrorMessage, WhatIsNotRegisteredIsNamedByItsIdentity) {
  EXPECT_THAT(message(UnregisteredProviderContext{id<ProviderContextIdentity>(61)}),
              HasSubstr("provider context #61 of registry 41"));
  EXPECT_THAT(message(UnregisteredAuthority{id<AuthorityIdentity>(62)}),
              HasSubstr("authority #62 of registry 41"));
  EXPECT_THAT(message(UnregisteredMechanism{id<MechanismIdentity>(63)}),
              HasSubstr("mechanism #63 of registry 41"));
}

//
TEST(BindingErrorMessage, WhatIsInUseIsNamedWithItsUsers) {
  EXPECT_THAT(message(ProviderContextInUse{
                  .context = id<ProviderContextIdentity>(61), .mechanisms = 17, .pins = 19}),
              AllOf(HasSubstr("provider context #61 of registry 41"),
                    HasSubstr("17 mechanisms"),
                    HasSubstr("19 pins")));
  EXPECT_THAT(message(AuthorityInUse{.authority = id<AuthorityIdentity>(62), .mechanisms = 17}),
              AllOf(HasSubstr("authority #62 of registry 41"), HasSubstr("17 mechanisms")));
}

//
TEST(BindingErrorMessage, AnEmptySlotNamesItsDevice) {
  EXPECT_THAT(message(NoSelectedMechanism{DeviceKey::device(5)}),
              AllOf(HasSubstr("no mechanism is selected"), HasSubstr("device 5")));
}

//
TEST(BindingErrorMessage, AnInactivePartIsNamedWithItsLifecycleAndTheOperation) {
  EXPECT_THAT(message(InactiveMechanism{.mechanism = id<MechanismIdentity>(63),
                                        .lifecycle = MechanismLifecycle::retired,
                                        .operation = "allocate"}),
              AllOf(HasSubstr("allocate refused"),
                    HasSubstr("mechanism #63 of registry 41"),
                    HasSubstr("retired")));
  EXPECT_THAT(message(InactiveProviderContext{.context = id<ProviderContextIdentity>(61),
                                              .lifecycle = ProviderContextLifecycle::retiring,
                                              .operation = "register a mechanism"}),
              AllOf(HasSubstr("register a mechanism refused"),
                    HasSubstr("provider context #61 of registry 41"),
                    HasSubstr("retiring")));
}

//
TEST(BindingErrorMessage, ALostDeviceIsNamedWithTheReason) {
  EXPECT_THAT(message(DeviceLost{.device = DeviceKey::device(2), .reason = "fell off the bus"}),
              AllOf(HasSubstr("device 2"), HasSubstr("(fell off the bus)")));
  EXPECT_THAT(message(DeviceLost{.device = DeviceKey::device(2), .reason = {}}),
              HasSubstr("no reason was given"));
}

//
TEST(BindingErrorMessage, AMismatchNamesBothBindings) {
  EXPECT_THAT(
      message(BindingMismatch{.expected = id<BindingId>(71), .actual = id<BindingId>(72)}),
      AllOf(HasSubstr("binding #71 of registry 41"), HasSubstr("of binding #72 of registry 41")));
}

//
TEST(BindingErrorMessage, AStaleAllocationIsNamedByItsIdentity) {
  EXPECT_THAT(message(StaleAllocation{an_allocation()}),
              AllOf(names_the_allocation(), HasSubstr("is not live")));
}

//
TEST(BindingErrorMessage, OutstandingViewsAreCounted) {
  EXPECT_THAT(message(OutstandingViews{.allocation = an_allocation(), .views = 17}),
              AllOf(names_the_allocation(), HasSubstr("17 views")));
}

//
TEST(BindingErrorMessage, QuarantinedOwnershipNamesTheMechanismTheCountAndTheExits) {
  EXPECT_THAT(message(QuarantinedOwnership{.mechanism = id<MechanismIdentity>(63), .count = 17}),
              AllOf(HasSubstr("mechanism #63 of registry 41"),
                    HasSubstr("17 allocations in quarantine"),
                    HasSubstr("reclaim"),
                    HasSubstr("reconcile")));
}

//
TEST(BindingErrorMessage, ARangeOutOfBoundsNamesAllThreeNumbers) {
  EXPECT_THAT(message(ViewOutOfBounds{.offset = 1001_B, .end = 3003_B, .allocation_bytes = 2002_B}),
              AllOf(HasSubstr("offset 1001"), HasSubstr("to 3003"), HasSubstr("of 2002 bytes")));
}

//
TEST(BindingErrorMessage, ABusyContextNamesItselfAndHowMuchGoesOn) {
  EXPECT_THAT(
      message(
          ContextNotQuiescent{.context = id<ProviderContextIdentity>(61), .active_operations = 17}),
      AllOf(HasSubstr("provider context #61 of registry 41"), HasSubstr("17 active operations")));
}

//
TEST(BindingErrorMessage, ANotReclaimableRecordNamesItsStateAndReason) {
  const QuarantineReason reason(QuarantineReason::Kind::partial_release);

  EXPECT_THAT(message(NotReclaimable{.allocation = an_allocation(),
                                     .state = AllocationReleaseState::partially_unmapped,
                                     .reason = reason}),
              AllOf(names_the_allocation(),
                    HasSubstr("partially unmapped"),
                    HasSubstr(std::string(reason.phrase())),
                    HasSubstr("reconcile")));
}

//
TEST(BindingErrorMessage, AFailedCallbackNamesItselfAndWhatItThrew) {
  EXPECT_THAT(
      message(CallbackFailed{.callback = "allocate", .reason = ErrorText::copy("out of luck")}),
      AllOf(HasSubstr("allocate threw"), HasSubstr("out of luck")));
}

//
TEST(BindingErrorMessage, AQueueThatIsNotIdleCountsWhatIsPending) {
  EXPECT_THAT(message(QueueNotIdle{.pending = 17, .called_from_queue = false}),
              AllOf(HasSubstr("17 pending releases"), HasSubstr("deadline")));
  EXPECT_THAT(message(QueueNotIdle{.pending = 17, .called_from_queue = true}),
              AllOf(HasSubstr("17 pending releases"), HasSubstr("another thread")));
}

//
TEST(BindingErrorMessage, AMemoryErrorSaysItsOwnUnchanged) {
  const auto inner = [] {
    return MemoryError(
        AllocationFailed{.tier = Tier::device, .requested = 77_B, .reason = "the driver is busy"});
  };

  EXPECT_EQ(message(inner()), inner().message());
}

TEST(BindingError, GivesTheAlternativeThatItHoldsAndNoOther) {
  const BindingError error = NoSelectedMechanism{DeviceKey::device(5)};

  ASSERT_NE(error.as<NoSelectedMechanism>(), nullptr);
  EXPECT_EQ(error.as<NoSelectedMechanism>()->device, DeviceKey::device(5));
  EXPECT_EQ(error.as<IdentityExhausted>(), nullptr);
}

}  // namespace
}  // namespace memstrata
