// SPDX-License-Identifier: Apache-2.0
// Which mechanism `bind(device)` uses. A select checks and publishes in one step, so that every race is a sequence.
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "support/binding_rig.hpp"
#include "support/capability_rig.hpp"
#include "support/recorder.hpp"

namespace memstrata {
namespace {

using test::add_mechanism;
using test::BindingRig;
using test::must;
using test::must_do;

/// The mechanism that a binding to the device gets, or nothing if none is selected.
[[nodiscard]] std::optional<MechanismIdentity> selected(const BindingRegistry& registry,
                                                        DeviceKey device = DeviceKey::host()) {
  const auto binding = registry.bind(device);
  if (binding) {
    return binding->identity().mechanism;
  }
  const auto* none = binding.error().as<NoSelectedMechanism>();
  EXPECT_NE(none, nullptr) << binding.error().message();
  EXPECT_TRUE(none == nullptr || none->device == device);
  return std::nullopt;
}

void expect_select_refused(const BindingRegistry& registry,
                           const RegisteredMechanism& mechanism,
                           MechanismLifecycle lifecycle) {
  const auto refused = registry.select(mechanism);

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<InactiveMechanism>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->mechanism, mechanism.identity);
  EXPECT_EQ(error->lifecycle, lifecycle);
  EXPECT_STREQ(error->operation, "select");
}

// B-015, W-3, G-176
TEST(RegistrySelect, ARetiredCandidateIsRefusedAndThePriorStaysSelected) {
  const BindingRig rig;
  const RegisteredMechanism candidate = add_mechanism(rig);
  must_do(rig.registry.retire(candidate));

  expect_select_refused(rig.registry, candidate, MechanismLifecycle::retired);

  EXPECT_EQ(selected(rig.registry), rig.mechanism.identity);
}

// B-016, G-176
TEST(RegistrySelect, ARefusedCandidateLeavesNothingSelectedOnceThePriorRetired) {
  const BindingRig rig;
  const RegisteredMechanism candidate = add_mechanism(rig);
  must_do(rig.registry.retire(candidate));
  must_do(rig.registry.retire(rig.mechanism));

  expect_select_refused(rig.registry, candidate, MechanismLifecycle::retired);

  EXPECT_EQ(selected(rig.registry), std::nullopt);
}

// B-017, G-176
TEST(RegistrySelect, ARefusedCandidateLeavesNothingSelectedOnceThePriorWasRemoved) {
  const BindingRig rig;
  const RegisteredMechanism candidate = add_mechanism(rig);
  must_do(rig.registry.retire(candidate));
  must_do(rig.registry.retire(rig.mechanism));
  must_do(rig.registry.remove(rig.mechanism));

  expect_select_refused(rig.registry, candidate, MechanismLifecycle::retired);

  EXPECT_EQ(selected(rig.registry), std::nullopt);
}

// B-018, G-176
TEST(RegistrySelect, ARefusedCandidateNeverOverwritesANewerSelection) {
  const BindingRig rig;
  const RegisteredMechanism candidate = add_mechanism(rig);
  const RegisteredMechanism third = add_mechanism(rig);
  must_do(rig.registry.select(candidate));
  must_do(rig.registry.retire(candidate));
  must_do(rig.registry.select(third));

  expect_select_refused(rig.registry, candidate, MechanismLifecycle::retired);

  EXPECT_EQ(selected(rig.registry), third.identity);
}

// B-019, G-176
TEST(RegistrySelect, TwoRefusedCandidatesNeverResurrectEachOther) {
  const BindingRig rig;
  const RegisteredMechanism first = add_mechanism(rig);
  const RegisteredMechanism second = add_mechanism(rig);
  must_do(rig.registry.select(first));
  must_do(rig.registry.select(second));
  must_do(rig.registry.retire(second));
  must_do(rig.registry.retire(first));

  expect_select_refused(rig.registry, first, MechanismLifecycle::retired);
  expect_select_refused(rig.registry, second, MechanismLifecycle::retired);

  EXPECT_EQ(selected(rig.registry), std::nullopt);
}

// B-020, G-176
TEST(RegistrySelect, AnUntouchedPriorCanBeSelectedAfterTwoRefusals) {
  const BindingRig rig;
  const RegisteredMechanism first = add_mechanism(rig);
  const RegisteredMechanism second = add_mechanism(rig);
  must_do(rig.registry.select(first));
  must_do(rig.registry.retire(second));
  must_do(rig.registry.retire(first));
  expect_select_refused(rig.registry, second, MechanismLifecycle::retired);
  ASSERT_EQ(selected(rig.registry), std::nullopt);

  must_do(rig.registry.select(rig.mechanism));

  EXPECT_EQ(selected(rig.registry), rig.mechanism.identity);
}

// B-021, W-3, G-176
TEST(RegistrySelect, ANewRegistrationHealsAnEmptySlot) {
  const BindingRig rig;
  const RegisteredMechanism candidate = add_mechanism(rig);
  must_do(rig.registry.retire(candidate));
  must_do(rig.registry.retire(rig.mechanism));
  must_do(rig.registry.remove(rig.mechanism));
  expect_select_refused(rig.registry, candidate, MechanismLifecycle::retired);
  ASSERT_EQ(selected(rig.registry), std::nullopt);

  const RegisteredMechanism fresh = add_mechanism(rig);

  EXPECT_EQ(selected(rig.registry), fresh.identity);
}

// B-022, G-176
TEST(RegistrySelect, ARetirementThatCameFirstWinsOverASelect) {
  const BindingRig rig;
  const RegisteredMechanism candidate = add_mechanism(rig);
  must_do(rig.registry.select(candidate));
  must_do(rig.registry.select(rig.mechanism));

  must_do(rig.registry.retire(candidate));
  expect_select_refused(rig.registry, candidate, MechanismLifecycle::retired);
  must_do(rig.registry.retire(candidate));

  EXPECT_EQ(selected(rig.registry), rig.mechanism.identity);
}

// B-023, G-176
TEST(RegistrySelect, ALostDeviceRefusesASelectByItsLifecycleAndHasNoSelection) {
  const BindingRig rig;
  const RegisteredMechanism candidate = add_mechanism(rig);

  rig.registry.invalidate_device(rig.device, "fell off the bus");

  expect_select_refused(rig.registry, candidate, MechanismLifecycle::device_lost);
  EXPECT_EQ(selected(rig.registry), std::nullopt);
}

// B-024, W-3, G-176
TEST(RegistrySelect, TheSlotFollowsRegistrationRetirementAndLoss) {
  const BindingRig rig;
  EXPECT_EQ(selected(rig.registry), rig.mechanism.identity);

  must_do(rig.registry.retire(rig.mechanism));
  EXPECT_EQ(selected(rig.registry), std::nullopt);

  const RegisteredMechanism second = add_mechanism(rig);
  EXPECT_EQ(selected(rig.registry), second.identity);

  rig.registry.invalidate_device(rig.device, "fell off the bus");
  EXPECT_EQ(selected(rig.registry), std::nullopt);
}

// W-3
TEST(RegistrySelect, ARegistrationAfterALossIsSelectedAtOnce) {
  const BindingRig rig;
  rig.registry.invalidate_device(rig.device, "fell off the bus");
  const auto context = must(rig.registry.register_provider_context(rig.device, nullptr));

  const RegisteredMechanism fresh = must(rig.registry.register_allocator(
      context, rig.authority, std::make_shared<test::Recorder>(rig.device)));

  EXPECT_EQ(selected(rig.registry), fresh.identity);
}

TEST(RegistrySelect, ARegistrationNeverTakesAnOccupiedSlot) {
  const BindingRig rig;

  static_cast<void>(add_mechanism(rig));

  EXPECT_EQ(selected(rig.registry), rig.mechanism.identity);
}

TEST(RegistrySelect, TheEndOfAnotherMechanismLeavesTheSelectionAlone) {
  const BindingRig rig;
  const RegisteredMechanism other = add_mechanism(rig);

  must_do(rig.registry.retire(other));
  EXPECT_EQ(selected(rig.registry), rig.mechanism.identity);
  must_do(rig.registry.remove(other));

  EXPECT_EQ(selected(rig.registry), rig.mechanism.identity);
}

TEST(RegistrySelect, EachDeviceHasItsOwnSlot) {
  const BindingRig rig(DeviceKey::device(0));
  const DeviceKey second = DeviceKey::device(1);
  const auto context = must(rig.registry.register_provider_context(second, nullptr));
  const auto authority = must(rig.registry.register_authority(second, nullptr));
  const RegisteredMechanism there = must(rig.registry.register_allocator(
      context, authority, std::make_shared<test::Recorder>(second)));

  rig.registry.invalidate_device(rig.device, "fell off the bus");

  EXPECT_EQ(selected(rig.registry, rig.device), std::nullopt);
  EXPECT_EQ(selected(rig.registry, second), there.identity);
  EXPECT_EQ(selected(rig.registry, DeviceKey::host()), std::nullopt);
}

TEST(RegistrySelect, ARemovedMechanismIsRefusedByItsIdentity) {
  const BindingRig rig;
  const RegisteredMechanism removed = add_mechanism(rig);
  must_do(rig.registry.retire(removed));
  must_do(rig.registry.remove(removed));

  const auto refused = rig.registry.select(removed);

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<UnregisteredMechanism>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->mechanism, removed.identity);
  EXPECT_EQ(selected(rig.registry), rig.mechanism.identity);
}

// B-030
TEST(RegistrySelect, ASelectionDoesNotMoveBindingsThatExist) {
  const BindingRig rig;
  const RegisteredMechanism next = add_mechanism(rig);

  must_do(rig.registry.select(next));

  EXPECT_EQ(selected(rig.registry), next.identity);
  EXPECT_EQ(rig.binding.identity().mechanism, rig.mechanism.identity);
  EXPECT_EQ(rig.allocate().identity().binding.mechanism, rig.mechanism.identity);
}

}  // namespace
}  // namespace memstrata
