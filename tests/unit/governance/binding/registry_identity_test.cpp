// SPDX-License-Identifier: Apache-2.0
// What a registry issues, when it issues nothing more, and what it accepts.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "support/binding_rig.hpp"
#include "support/capability_rig.hpp"
#include "support/recorder.hpp"
#include "support/watched_allocator.hpp"

namespace memstrata {
namespace {

using test::BindingRig;
using test::CapabilityRig;
using test::expect_quiescent;
using test::FakeOptions;
using test::must;
using test::must_do;
using test::Recorder;
using test::ReusingAllocator;
using test::WatchedAllocator;

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

// A rig takes one serial each for context, authority and mechanism and two for its binding.
constexpr std::uint64_t rig_serials = 5;

/// Whether the call failed because the serials are used up.
template <class T>
[[nodiscard]] bool is_exhausted(const Result<T, BindingError>& result) {
  return !result.has_value() && result.error().template as<IdentityExhausted>() != nullptr;
}

template <class T>
[[nodiscard]] std::optional<RegisteredKind> foreign_kind(const Result<T, BindingError>& result) {
  if (result.has_value()) {
    return std::nullopt;
  }
  const auto* error = result.error().template as<ForeignRegistry>();
  EXPECT_NE(error, nullptr) << result.error().message();
  return error == nullptr ? std::nullopt : std::optional(error->kind);
}

// B-025, G-172
TEST(RegistryIdentity, EachBindingNamesWhatItStandsOnAndIsAnAuthorityOfItsOwn) {
  const BindingRig rig;

  const BindingIdentity first = rig.binding.identity();
  const BindingIdentity second = must(rig.registry.bind(rig.mechanism)).identity();

  for (const BindingIdentity& each : {first, second}) {
    EXPECT_EQ(each.device, rig.device);
    EXPECT_EQ(each.mechanism, rig.mechanism.identity);
    EXPECT_EQ(each.context, rig.context.identity);
    EXPECT_EQ(each.authority, rig.authority.identity);
  }
  EXPECT_NE(first.id, second.id);
  EXPECT_NE(first.generation, second.generation);
}

TEST(RegistryIdentity, CopiesOfABindingAreTheSameBinding) {
  const BindingRig rig;
  const MemoryBinding copy = rig.binding;

  OwningAllocation owner = rig.allocate();

  EXPECT_EQ(copy.identity(), rig.binding.identity());
  EXPECT_TRUE(copy.release_now(owner).has_value());
}

//
TEST(RegistryIdentity, NoTwoIdentitiesOfARegistryShareASerial) {
  const BindingRig rig;
  std::set<std::uint64_t> serials;
  std::size_t issued = 0;
  const auto note = [&](std::uint64_t serial) {
    serials.insert(serial);
    ++issued;
  };
  note(rig.context.identity.serial());
  note(rig.authority.identity.serial());
  note(rig.mechanism.identity.serial());
  note(rig.binding.identity().id.serial());
  note(rig.binding.identity().generation.serial());

  std::vector<OwningAllocation> kept;
  for (int round = 0; round < 300; ++round) {
    kept.push_back(rig.allocate());
    note(kept.back().identity().generation.serial());
    OwningAllocation passing = rig.allocate();
    note(passing.identity().generation.serial());
    must_do(passing.release_now());
    const BindingIdentity other = must(rig.registry.bind(rig.mechanism)).identity();
    note(other.id.serial());
    note(other.generation.serial());
    note(must(rig.registry.register_authority(rig.device, nullptr)).identity.serial());
  }

  EXPECT_EQ(serials.size(), issued);
  EXPECT_FALSE(serials.contains(0));
  for (OwningAllocation& owner : kept) {
    must_do(owner.release_now());
  }
}

TEST(RegistryIdentity, RegistriesHaveDifferentNumbersThatAreNotZero) {
  const BindingRig first;
  const BindingRig second;

  EXPECT_NE(first.context.identity.registry(), 0U);
  EXPECT_NE(first.context.identity.registry(), second.context.identity.registry());
  EXPECT_NE(first.context.identity, second.context.identity);
}

//
TEST(RegistryExhaustion, TheLastSerialIsIssuedAndThenNothingForEver) {
  const BindingRegistry registry = must(BindingRegistry::create({.first_serial = largest - 1}));
  const DeviceKey host = DeviceKey::host();

  const auto last = registry.register_provider_context(host, nullptr);

  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->identity.serial(), largest - 1);
  const auto resource = std::make_shared<int>(1);
  for (int again = 0; again < 3; ++again) {
    EXPECT_TRUE(is_exhausted(registry.register_authority(host, resource)));
    EXPECT_TRUE(is_exhausted(registry.register_provider_context(host, resource)));
  }
  EXPECT_EQ(resource.use_count(), 1) << "a refused registration kept the resource";
}

//
TEST(RegistryExhaustion, AMechanismWithoutASerialIsNotRegistered) {
  const BindingRegistry registry = must(BindingRegistry::create({.first_serial = largest - 2}));
  const DeviceKey host = DeviceKey::host();
  const auto context = must(registry.register_provider_context(host, nullptr));
  const auto authority = must(registry.register_authority(host, nullptr));
  const auto allocator = std::make_shared<Recorder>(host);

  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE(is_exhausted(registry.register_allocator(context, authority, allocator)));
  }

  EXPECT_TRUE(registry.snapshots().empty());
  EXPECT_EQ(allocator.use_count(), 1);
  EXPECT_TRUE(registry.remove_provider_context(context).has_value());
}

//
TEST(RegistryExhaustion, ABindingNeedsTwoSerialsAndTheLastOneAloneEndsThemAll) {
  const BindingRig rig(DeviceKey::host(), {.first_serial = largest - rig_serials - 1});

  EXPECT_TRUE(is_exhausted(rig.registry.bind(rig.mechanism)));

  EXPECT_TRUE(is_exhausted(rig.registry.bind(rig.device)));
  EXPECT_TRUE(is_exhausted(rig.registry.register_authority(rig.device, nullptr)));
  EXPECT_TRUE(is_exhausted(rig.binding.allocate(Bytes{64}, Bytes{16})));
  EXPECT_EQ(rig.allocator->calls("allocate"), 0U);
}

//
TEST(RegistryExhaustion, ARefusedBindingEndsTheSerialsThatRecordsKeptToo) {
  constexpr std::uint64_t one_run = 64;  // serials that a record fetches at a time
  const BindingRig rig(DeviceKey::host(), {.first_serial = largest - rig_serials - one_run - 1});
  OwningAllocation owner = rig.allocate();
  must_do(owner.release_now());

  ASSERT_TRUE(is_exhausted(rig.registry.bind(rig.mechanism)));

  EXPECT_TRUE(is_exhausted(rig.binding.allocate(Bytes{64}, Bytes{16})));
  EXPECT_EQ(rig.allocator->calls("allocate"), 1U);
}

// W-15
TEST(RegistryExhaustion, AnAllocationWithoutASerialNeverReachesTheAllocator) {
  const BindingRig rig(DeviceKey::host(), {.first_serial = largest - rig_serials});

  for (int again = 0; again < 3; ++again) {
    EXPECT_TRUE(is_exhausted(rig.binding.allocate(Bytes{64}, Bytes{16})));
  }

  EXPECT_EQ(rig.allocator->calls("allocate"), 0U);
  EXPECT_EQ(rig.allocator->releases(), 0U);
  EXPECT_EQ(rig.allocator->live(), 0U);
  expect_quiescent(rig.snapshot());
}

// W-15
TEST(RegistryExhaustion, ACommittedAllocationWithoutASerialNeverReachesTheMechanism) {
  const CapabilityRig rig(DeviceKey::host(), {.first_serial = largest - rig_serials});

  const auto refused = rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {});

  EXPECT_TRUE(is_exhausted(refused));
  EXPECT_EQ(rig.allocator->calls("allocate_committed"), 0U);
  expect_quiescent(rig.snapshot());
}

//
TEST(RegistryExhaustion, SerialsThatARecordKeptAreNotUsedAfterTheFirstRefusal) {
  const BindingRig rig(DeviceKey::host(), {.first_serial = largest - rig_serials - 3});
  OwningAllocation owner = rig.allocate();
  ASSERT_TRUE(is_exhausted(rig.binding.allocate(Bytes{64}, Bytes{16})));

  must_do(owner.release_now());

  EXPECT_TRUE(is_exhausted(rig.binding.allocate(Bytes{64}, Bytes{16})));
  EXPECT_EQ(rig.allocator->calls("allocate"), 1U);
  expect_quiescent(rig.snapshot());
}

//
TEST(RegistryExhaustion, TheLastSerialsMakeAllocationsOneAfterAnother) {
  const BindingRig rig(DeviceKey::host(), {.first_serial = largest - rig_serials - 3});

  for (std::uint64_t serial = largest - 3; serial < largest; ++serial) {
    OwningAllocation owner = rig.allocate();
    EXPECT_EQ(owner.identity().generation.serial(), serial);
    must_do(owner.release_now());
  }

  EXPECT_TRUE(is_exhausted(rig.binding.allocate(Bytes{64}, Bytes{16})));
}

//
TEST(RegistryExhaustion, WhatIsLiveCanStillBeReleased) {
  const BindingRig rig(DeviceKey::host(), {.first_serial = largest - rig_serials - 1});
  OwningAllocation owner = rig.allocate();
  ASSERT_TRUE(is_exhausted(rig.binding.allocate(Bytes{64}, Bytes{16})));

  EXPECT_TRUE(must(owner.release_now()).is_released());

  expect_quiescent(rig.snapshot());
}

//
TEST(RegistryExhaustion, AnAdoptionWithoutASerialLeavesTheMemoryWithTheCaller) {
  const BindingRig rig(DeviceKey::host(), {.first_serial = largest - rig_serials});
  const AllocationSpan made{.address = rig.allocator->make(Bytes{512}, Bytes{64}),
                            .bytes = Bytes{512},
                            .alignment = Bytes{64}};

  EXPECT_TRUE(is_exhausted(rig.binding.adopt_allocation(made, attest_sole_owner)));

  EXPECT_TRUE(rig.allocator->is_live(made.address));
  EXPECT_EQ(rig.allocator->releases(), 0U);
  expect_quiescent(rig.snapshot());
}

// B-036, B-079, G-173
TEST(RegistryIdentity, AReusedAddressGetsANewGeneration) {
  const BindingRig rig;
  const auto mechanism = must(rig.registry.register_allocator(
      rig.context, rig.authority, std::make_shared<ReusingAllocator>()));
  const MemoryBinding binding = must(rig.registry.bind(mechanism));
  OwningAllocation first = must(binding.allocate(Bytes{64}, Bytes{16}));
  const AllocationIdentity before = first.identity();
  const DeviceAddress address = first.address();
  must_do(first.release_now());

  OwningAllocation second = must(binding.allocate(Bytes{64}, Bytes{16}));

  EXPECT_EQ(second.address(), address);
  EXPECT_NE(second.identity().generation, before.generation);
  EXPECT_NE(second.identity(), before);
  must_do(second.release_now());
}

// B-037, B-074, G-166, G-173
TEST(RegistryIdentity, AViewOfAnEarlierGenerationNeverReachesTheReusedAddress) {
  const BindingRig rig;
  const auto allocator = std::make_shared<ReusingAllocator>();
  const auto mechanism =
      must(rig.registry.register_allocator(rig.context, rig.authority, allocator));
  const MemoryBinding binding = must(rig.registry.bind(mechanism));
  std::optional<OwningAllocation> dropped = must(binding.allocate(Bytes{64}, Bytes{16}));
  const AllocationIdentity before = dropped->identity();
  const DeviceAddress address = dropped->address();
  const OwnedView stale = must(dropped->view(Bytes{}, Bytes{64}));
  dropped.reset();
  allocator->free_by_hand();
  must_do(rig.registry.reconcile(before, attest_memory_gone));
  OwningAllocation second = must(binding.allocate(Bytes{64}, Bytes{16}));
  ASSERT_EQ(second.address(), address);

  bool ran = false;
  const auto refused =
      binding.with_view(stale, [&ran](ValidatedMemoryView /*view*/) { ran = true; });

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<StaleAllocation>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->allocation, before);
  EXPECT_EQ(stale.identity(), before);
  EXPECT_FALSE(ran);
  must_do(second.release_now());
}

// B-032, G-173
TEST(RegistryRegister, AnAllocatorOfAnotherDeviceIsRefusedWithBothKeys) {
  const BindingRig rig;

  const auto refused = rig.registry.register_allocator(
      rig.context, rig.authority, std::make_shared<Recorder>(DeviceKey::device(1)));

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<DeviceMismatch>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->subject, DeviceSubject::allocator);
  EXPECT_EQ(error->expected, DeviceKey::host());
  EXPECT_EQ(error->actual, DeviceKey::device(1));
  EXPECT_EQ(rig.registry.snapshots().size(), 1U);
}

// G-173
TEST(RegistryRegister, AnAuthorityOfAnotherDeviceIsRefusedBeforeTheAllocatorsIs) {
  const BindingRig rig;
  const auto authority = must(rig.registry.register_authority(DeviceKey::device(2), nullptr));

  const auto refused = rig.registry.register_allocator(
      rig.context, authority, std::make_shared<Recorder>(DeviceKey::device(1)));

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<DeviceMismatch>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->subject, DeviceSubject::authority);
  EXPECT_EQ(error->expected, DeviceKey::host());
  EXPECT_EQ(error->actual, DeviceKey::device(2));
  EXPECT_TRUE(rig.registry.remove_authority(authority).has_value());
}

// B-040, G-173
TEST(RegistryRegister, AContextOfAnotherRegistryIsRefusedBeforeAnythingElse) {
  const BindingRig rig;
  const BindingRig other;

  const auto refused = rig.registry.register_allocator(
      other.context, other.authority, std::make_shared<Recorder>(DeviceKey::device(1)));

  EXPECT_EQ(foreign_kind(refused), RegisteredKind::provider_context);
  EXPECT_EQ(rig.registry.snapshots().size(), 1U);
  EXPECT_EQ(other.registry.snapshots().size(), 1U);
}

// G-173
TEST(RegistryRegister, AnAuthorityOfAnotherRegistryIsRefusedBeforeTheContextIsLookedUp) {
  const BindingRig rig;
  const BindingRig other;
  const auto removed = must(rig.registry.register_provider_context(rig.device, nullptr));
  must_do(rig.registry.remove_provider_context(removed));

  const auto refused = rig.registry.register_allocator(
      removed, other.authority, std::make_shared<Recorder>(DeviceKey::device(1)));

  EXPECT_EQ(foreign_kind(refused), RegisteredKind::authority);
}

TEST(RegistryRegister, ARemovedContextIsRefusedBeforeARemovedAuthority) {
  const BindingRig rig;
  const auto context = must(rig.registry.register_provider_context(rig.device, nullptr));
  const auto authority = must(rig.registry.register_authority(rig.device, nullptr));
  must_do(rig.registry.remove_provider_context(context));
  must_do(rig.registry.remove_authority(authority));
  const auto allocator = std::make_shared<Recorder>(DeviceKey::device(1));

  const auto both = rig.registry.register_allocator(context, authority, allocator);
  const auto one = rig.registry.register_allocator(rig.context, authority, allocator);

  ASSERT_FALSE(both.has_value());
  const auto* first = both.error().as<UnregisteredProviderContext>();
  ASSERT_NE(first, nullptr) << both.error().message();
  EXPECT_EQ(first->context, context.identity);
  ASSERT_FALSE(one.has_value());
  const auto* second = one.error().as<UnregisteredAuthority>();
  ASSERT_NE(second, nullptr) << one.error().message();
  EXPECT_EQ(second->authority, authority.identity);
}

// W-12
TEST(RegistryRegister, AContextThatEndsIsRefusedBeforeTheDevicesAreCompared) {
  const BindingRig rig;
  must_do(rig.registry.retire_provider_context(rig.context));

  const auto refused = rig.registry.register_allocator(
      rig.context, rig.authority, std::make_shared<Recorder>(DeviceKey::device(1)));

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<InactiveProviderContext>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->context, rig.context.identity);
  EXPECT_EQ(error->lifecycle, ProviderContextLifecycle::retiring);
  EXPECT_STREQ(error->operation, "register a mechanism");
}

TEST(RegistryRegister, ASampledDeviceIsTakenAndTheAllocatorNotAsked) {
  const BindingRig rig;
  const auto allocator = std::make_shared<WatchedAllocator>(FakeOptions{});

  const auto mechanism =
      rig.registry.register_allocator(rig.context, rig.authority, allocator, rig.device);

  ASSERT_TRUE(mechanism.has_value());
  EXPECT_EQ(allocator->calls("device"), 0U);
  EXPECT_EQ(mechanism->device, rig.device);
  EXPECT_EQ(mechanism->coherence, MechanismCoherence::self_contained);
}

TEST(RegistryRegisterDeathTest, AMissingAllocatorStopsTheProgram) {
  const BindingRig rig;

  EXPECT_DEATH(
      static_cast<void>(rig.registry.register_allocator(rig.context, rig.authority, nullptr)),
      "without an allocator");
}

// B-038, G-173
TEST(RegistryRegister, ATrustedCompositeIsReportedAndOffersBothCapabilities) {
  const BindingRig rig;

  const auto mechanism = must(
      rig.registry.register_trusted_composite(rig.context,
                                              rig.authority,
                                              std::make_shared<WatchedAllocator>(FakeOptions{}),
                                              attest_coherent));

  EXPECT_EQ(mechanism.coherence, MechanismCoherence::trusted_composite);
  EXPECT_EQ(must(rig.registry.snapshot(mechanism)).coherence,
            MechanismCoherence::trusted_composite);
  EXPECT_EQ(rig.snapshot().coherence, MechanismCoherence::self_contained);
  const MemoryBinding binding = must(rig.registry.bind(mechanism));
  EXPECT_TRUE(must(binding.virtual_backing()).has_value());
  EXPECT_TRUE(must(binding.shared_mapping()).has_value());
}

// B-039, G-173
TEST(RegistryHandles, AMechanismOfAnotherRegistryIsRefusedByEveryCall) {
  const BindingRig rig;
  const BindingRegistry other = must(BindingRegistry::create());

  EXPECT_EQ(foreign_kind(other.select(rig.mechanism)), RegisteredKind::mechanism);
  EXPECT_EQ(foreign_kind(other.bind(rig.mechanism)), RegisteredKind::mechanism);
  EXPECT_EQ(foreign_kind(other.retire(rig.mechanism)), RegisteredKind::mechanism);
  EXPECT_EQ(foreign_kind(other.remove(rig.mechanism)), RegisteredKind::mechanism);
  EXPECT_EQ(foreign_kind(other.snapshot(rig.mechanism)), RegisteredKind::mechanism);
  EXPECT_EQ(foreign_kind(other.quarantined(rig.mechanism)), RegisteredKind::mechanism);
  EXPECT_EQ(rig.snapshot().lifecycle, MechanismLifecycle::active);
}

TEST(RegistryHandles, PartsOfAnotherRegistryAreRefusedByEveryCall) {
  const BindingRig rig;
  const BindingRegistry other = must(BindingRegistry::create());
  OwningAllocation owner = rig.allocate();
  constexpr auto context = RegisteredKind::provider_context;

  EXPECT_EQ(foreign_kind(other.retire_provider_context(rig.context)), context);
  EXPECT_EQ(foreign_kind(other.remove_provider_context(rig.context)), context);
  EXPECT_EQ(foreign_kind(other.confirm_context_terminated(rig.context)), context);
  EXPECT_EQ(foreign_kind(other.provider_context(rig.context)), context);
  EXPECT_EQ(foreign_kind(other.pin_source(rig.context)), context);
  EXPECT_EQ(foreign_kind(other.remove_authority(rig.authority)), RegisteredKind::authority);
  EXPECT_EQ(foreign_kind(other.reclaim(owner.identity())), RegisteredKind::allocation);
  EXPECT_EQ(foreign_kind(other.reconcile(owner.identity(), attest_memory_gone)),
            RegisteredKind::allocation);
  must_do(owner.release_now());
}

TEST(RegistryHandles, ARemovedMechanismIsRefusedByEveryCall) {
  const BindingRig rig;
  must_do(rig.registry.retire(rig.mechanism));
  must_do(rig.registry.remove(rig.mechanism));
  const auto is_unregistered = [&rig](const auto& result) {
    const auto* error =
        result.has_value() ? nullptr : result.error().template as<UnregisteredMechanism>();
    return error != nullptr && error->mechanism == rig.mechanism.identity;
  };

  EXPECT_TRUE(is_unregistered(rig.registry.bind(rig.mechanism)));
  EXPECT_TRUE(is_unregistered(rig.registry.retire(rig.mechanism)));
  EXPECT_TRUE(is_unregistered(rig.registry.remove(rig.mechanism)));
  EXPECT_TRUE(is_unregistered(rig.registry.snapshot(rig.mechanism)));
  EXPECT_TRUE(is_unregistered(rig.registry.quarantined(rig.mechanism)));
}

TEST(RegistryHandles, ARemovedContextIsRefusedByEveryCall) {
  const BindingRig rig;
  const auto context = must(rig.registry.register_provider_context(rig.device, nullptr));
  must_do(rig.registry.remove_provider_context(context));
  const auto is_unregistered = [&context](const auto& result) {
    const auto* error =
        result.has_value() ? nullptr : result.error().template as<UnregisteredProviderContext>();
    return error != nullptr && error->context == context.identity;
  };

  EXPECT_TRUE(is_unregistered(rig.registry.retire_provider_context(context)));
  EXPECT_TRUE(is_unregistered(rig.registry.remove_provider_context(context)));
  EXPECT_TRUE(is_unregistered(rig.registry.confirm_context_terminated(context)));
  EXPECT_TRUE(is_unregistered(rig.registry.provider_context(context)));
  EXPECT_TRUE(is_unregistered(rig.registry.pin_source(context)));
}

}  // namespace
}  // namespace memstrata
