// SPDX-License-Identifier: Apache-2.0
// Every callback and every destructor of what a caller registered may call the registry and its bindings: no lock of
// the stack is held then. A lock that is held would stop these tests for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/log.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/bound_capability.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "support/binding_rig.hpp"
#include "support/capability_rig.hpp"
#include "support/recorder.hpp"
#include "support/watched_allocator.hpp"

namespace memstrata {
namespace {

using test::add_mechanism;
using test::BindingRig;
using test::CapabilityRig;
using test::DropLog;
using test::expect_quiescent;
using test::FakeOptions;
using test::must;
using test::must_do;
using test::Probe;
using test::WatchedAllocator;
using testing::ElementsAre;

/// Calls everything of a registry that takes its lock or that of a mechanism, on parts of its own.
void call_everything(const BindingRegistry& registry, DeviceKey device) {
  const auto context = must(registry.register_provider_context(device, nullptr));
  const auto authority = must(registry.register_authority(device, nullptr));
  const auto mechanism = must(
      registry.register_allocator(context, authority, std::make_shared<test::Recorder>(device)));
  {
    const MemoryBinding binding = must(registry.bind(mechanism));
    static_cast<void>(registry.bind(device));
    OwningAllocation owner = must(binding.allocate(Bytes{64}, Bytes{16}));
    {
      const OwnedView view = must(owner.view(Bytes{}, Bytes{8}));
      must_do(binding.with_view(view, [](ValidatedMemoryView /*view*/) {}));
    }
    must_do(owner.release_now());
    const AllocationIdentity dropped = must(binding.allocate(Bytes{64}, Bytes{16})).identity();
    EXPECT_EQ(must(registry.quarantined(mechanism)).size(), 1U);
    EXPECT_TRUE(must(registry.reclaim(dropped)).execute().is_released());
  }
  const auto pin = must(must(registry.pin_source(context))->pin());
  EXPECT_EQ(pin->context(), context.identity);
  EXPECT_FALSE(registry.snapshots().empty());
  EXPECT_EQ(must(registry.snapshot(mechanism)).live_allocations, 0U);
  static_cast<void>(registry.select(mechanism));
  must_do(registry.retire(mechanism));
  must_do(registry.remove(mechanism));
  must_do(registry.remove_authority(authority));
  EXPECT_EQ(must(registry.provider_context(context)).mechanisms, 0U);
}

/// Runs `call_everything` inside the operations of a rig, once at a time.
class Intruder {
 public:
  explicit Intruder(const CapabilityRig& rig) {
    rig.watch([this, &rig](std::string_view operation) {
      seen_.emplace_back(operation);
      call_everything(rig.registry, rig.device);
      static_cast<void>(rig.snapshot());
    });
  }

  /// Whether the operation was intruded upon since the last time.
  [[nodiscard]] bool saw(std::string_view operation) {
    return std::erase(seen_, std::string(operation)) != 0;
  }

 private:
  std::vector<std::string> seen_;
};

[[nodiscard]] ByteRange first_granule() {
  return {.offset = Bytes{}, .size = Bytes{8}};
}

// B-050, G-170, G-174
TEST(Reentrance, FromAllocateAndRelease) {
  const CapabilityRig rig;
  Intruder intruder(rig);

  OwningAllocation owner = rig.allocate();
  EXPECT_TRUE(intruder.saw("allocate"));
  must_do(owner.release_now());

  EXPECT_TRUE(intruder.saw("release"));
  expect_quiescent(rig.snapshot());
}

// B-050, G-174
TEST(Reentrance, FromEveryCallOfTheVirtualBacking) {
  const CapabilityRig rig;
  OwningAllocation owner = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));
  const BoundCommitRange one{.allocation = &owner, .range = first_granule()};
  Intruder intruder(rig);

  OwningAllocation other = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));
  EXPECT_TRUE(intruder.saw("allocate_committed"));
  must_do(rig.backing.commit(owner, first_granule()));
  EXPECT_TRUE(intruder.saw("commit"));
  EXPECT_TRUE(rig.backing.commit_all({&one, 1}).has_value());
  EXPECT_TRUE(intruder.saw("commit"));
  must_do(rig.backing.mapped_bytes({&one, 1}));
  EXPECT_TRUE(intruder.saw("mapped_bytes"));
  must_do(rig.backing.mapped_bytes(Bytes{64}, Bytes{16}));
  EXPECT_TRUE(intruder.saw("mapped_bytes"));
  must_do(rig.backing.committed_bytes(owner));
  EXPECT_TRUE(intruder.saw("committed_bytes"));
  must_do(rig.backing.decommit(owner, first_granule()));
  EXPECT_TRUE(intruder.saw("decommit"));

  must_do(owner.release_now());
  must_do(other.release_now());
  expect_quiescent(rig.snapshot());
}

// B-050, G-174
TEST(Reentrance, FromEveryCallOfTheSharedMappingAndTheEndOfAPrefix) {
  const CapabilityRig rig;
  OwningAllocation owner = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));
  Intruder intruder(rig);

  std::optional<BoundSharedPrefix> prefix = must(rig.mapping.create_shared_prefix(Bytes{16}));
  EXPECT_TRUE(intruder.saw("create_prefix"));
  must_do(prefix->seal());
  EXPECT_TRUE(intruder.saw("seal"));
  must_do(rig.mapping.incremental_owned_bytes(*prefix));
  EXPECT_TRUE(intruder.saw("incremental"));
  must_do(rig.mapping.commit_shared_prefix(*prefix, owner, Bytes{}));
  EXPECT_TRUE(intruder.saw("map_prefix"));
  must_do(rig.mapping.break_shared(owner, first_granule()));
  EXPECT_TRUE(intruder.saw("break_shared"));
  prefix.reset();
  EXPECT_TRUE(intruder.saw("end_prefix"));

  must_do(owner.release_now());
  expect_quiescent(rig.snapshot());
}

// W-20, G-174
TEST(Reentrance, FromTheEndOfAPrefixThatWasKeptAfterALoss) {
  const CapabilityRig rig(DeviceKey::device(0));
  {
    const BoundSharedPrefix prefix = rig.sealed_prefix();
    rig.registry.invalidate_device(rig.device, "fell off the bus");
  }
  bool ran = false;
  rig.watch([&](std::string_view operation) {
    if (operation == "end_prefix") {
      ran = true;
      call_everything(rig.registry, DeviceKey::host());
      EXPECT_EQ(rig.snapshot().lifecycle, MechanismLifecycle::terminated);
      EXPECT_FALSE(rig.registry.confirm_context_terminated(rig.context).has_value());
    }
  });

  must_do(rig.registry.confirm_context_terminated(rig.context));

  EXPECT_TRUE(ran);
}

// B-050, G-174
TEST(Reentrance, FromTheQuestionsOfARegistration) {
  const CapabilityRig rig;
  const auto allocator = std::make_shared<WatchedAllocator>(FakeOptions{});
  std::vector<std::string> asked;
  allocator->on_call([&](std::string_view operation) {
    asked.emplace_back(operation);
    call_everything(rig.registry, rig.device);
  });

  must_do(rig.registry.register_allocator(rig.context, rig.authority, allocator));

  for (const char* question : {"device", "virtual_backing", "shared_mapping"}) {
    EXPECT_NE(std::ranges::find(asked, question), asked.end()) << question;
  }
}

// G-174
TEST(Reentrance, FromAViewOperation) {
  const CapabilityRig rig;
  OwningAllocation owner = rig.allocate();
  OwningAllocation other = rig.allocate();
  {
    const OwnedView view = must(owner.view(Bytes{}, Bytes{8}));

    must_do(rig.binding.with_view(view, [&](ValidatedMemoryView /*view*/) {
      call_everything(rig.registry, rig.device);
      must_do(other.release_now());
      EXPECT_EQ(rig.snapshot().active_operations, 1U);
    }));
  }

  must_do(owner.release_now());
  expect_quiescent(rig.snapshot());
}

// B-084, G-170
TEST(Reentrance, AReleaseMayReleaseAnotherAllocation) {
  const BindingRig rig;
  OwningAllocation inner = rig.allocate();
  OwningAllocation outer = rig.allocate();
  rig.allocator->on_call([&](const char* /*operation*/) {
    if (!inner.empty()) {
      must_do(inner.release_now());
    }
  });

  must_do(outer.release_now());

  EXPECT_EQ(rig.allocator->releases(), 2U);
  expect_quiescent(rig.snapshot());
}

// X-006, W-5
TEST(Reentrance, AContextThatEndsWithItsRemovalMayCallTheRegistry) {
  const BindingRegistry registry = must(BindingRegistry::create());
  const auto drops = std::make_shared<DropLog>();
  auto probe = std::make_shared<Probe>(drops, "context");
  probe->at_end = [registry] { call_everything(registry, DeviceKey::host()); };
  const auto context =
      must(registry.register_provider_context(DeviceKey::host(), std::move(probe)));

  must_do(registry.remove_provider_context(context));

  EXPECT_THAT(drops->names(), ElementsAre("context"));
}

// X-006, W-5
TEST(Reentrance, AnAuthorityThatEndsWithItsRemovalMayCallTheRegistry) {
  const BindingRegistry registry = must(BindingRegistry::create());
  const auto drops = std::make_shared<DropLog>();
  auto probe = std::make_shared<Probe>(drops, "authority");
  probe->at_end = [registry] { call_everything(registry, DeviceKey::host()); };
  const auto authority = must(registry.register_authority(DeviceKey::host(), std::move(probe)));

  must_do(registry.remove_authority(authority));

  EXPECT_THAT(drops->names(), ElementsAre("authority"));
}

// X-006, W-5
TEST(Reentrance, AnAllocatorThatEndsWithItsRemovalMayCallTheRegistry) {
  const CapabilityRig rig;
  const auto drops = std::make_shared<DropLog>();
  auto allocator = std::make_shared<WatchedAllocator>(FakeOptions{});
  allocator->on_end([registry = rig.registry, drops] {
    call_everything(registry, DeviceKey::host());
    drops->note("allocator");
  });
  const auto mechanism =
      must(rig.registry.register_allocator(rig.context, rig.authority, std::move(allocator)));
  must_do(rig.registry.retire(mechanism));

  must_do(rig.registry.remove(mechanism));

  EXPECT_THAT(drops->names(), ElementsAre("allocator"));
}

// W-5, W-11
TEST(Reentrance, AnAllocatorWhoseRegistrationFailedMayCallTheRegistryWhenItEnds) {
  const CapabilityRig rig;
  const auto drops = std::make_shared<DropLog>();
  auto allocator = std::make_shared<WatchedAllocator>(FakeOptions{});
  const auto context = must(rig.registry.register_provider_context(rig.device, nullptr));
  allocator->on_call([&](std::string_view operation) {
    if (operation == "virtual_backing") {
      must_do(rig.registry.remove_provider_context(context));
    }
  });
  allocator->on_end([&] {
    call_everything(rig.registry, rig.device);
    drops->note("allocator");
  });

  EXPECT_FALSE(
      rig.registry.register_allocator(context, rig.authority, std::move(allocator)).has_value());

  EXPECT_THAT(drops->names(), ElementsAre("allocator"));
}

/// Registers an allocator and runs `meanwhile` while the registration asks it for a capability, which is after the
/// first look at the context and before the mechanism is entered.
[[nodiscard]] Result<RegisteredMechanism, BindingError> register_with(
    const CapabilityRig& rig,
    const RegisteredProviderContext& context,
    const RegisteredAuthority& authority,
    const std::function<void()>& meanwhile) {
  auto allocator = std::make_shared<WatchedAllocator>(FakeOptions{.device = rig.device});
  allocator->on_call([meanwhile](std::string_view operation) {
    if (operation == "virtual_backing") {
      meanwhile();
    }
  });
  auto made = rig.registry.register_allocator(context, authority, allocator);
  allocator->on_call([](std::string_view /*operation*/) {});
  return made;
}

// X-007, W-11, G-175
TEST(RegistrationRace, AContextRemovedInBetweenIsUnregistered) {
  const CapabilityRig rig;
  const auto context = must(rig.registry.register_provider_context(rig.device, nullptr));

  const auto refused = register_with(
      rig, context, rig.authority, [&] { must_do(rig.registry.remove_provider_context(context)); });

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<UnregisteredProviderContext>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->context, context.identity);
  EXPECT_EQ(rig.registry.snapshots().size(), 1U);
}

// X-007, W-11
TEST(RegistrationRace, AnAuthorityRemovedInBetweenIsUnregistered) {
  const CapabilityRig rig;
  const auto authority = must(rig.registry.register_authority(rig.device, nullptr));

  const auto refused = register_with(
      rig, rig.context, authority, [&] { must_do(rig.registry.remove_authority(authority)); });

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<UnregisteredAuthority>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->authority, authority.identity);
  EXPECT_EQ(rig.registry.snapshots().size(), 1U);
}

// X-007, W-11, W-12
TEST(RegistrationRace, AContextLostInBetweenTakesNoMechanismAndCanStillEnd) {
  const CapabilityRig rig;

  const auto refused = register_with(rig, rig.context, rig.authority, [&] {
    rig.registry.invalidate_device(rig.device, "fell off the bus");
  });

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<InactiveProviderContext>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->lifecycle, ProviderContextLifecycle::device_lost);
  EXPECT_TRUE(rig.registry.confirm_context_terminated(rig.context).has_value());
}

// X-007, W-11
TEST(RegistrationRace, ARegistrationThatCameFirstKeepsItsContext) {
  const CapabilityRig rig;
  const auto context = must(rig.registry.register_provider_context(rig.device, nullptr));
  const auto mechanism =
      must(register_with(rig, context, rig.authority, [] { /* nothing comes between */ }));

  const auto refused = rig.registry.remove_provider_context(context);

  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().as<ProviderContextInUse>(), nullptr) << refused.error().message();
  EXPECT_EQ(must(rig.registry.snapshot(mechanism)).provider_context, context.identity);
}

// X-006, W-5
TEST(Reentrance, PartsThatEndWithTheLastBindingMayCallAnotherRegistryAndTheirOwn) {
  std::optional<BindingRegistry> registry = must(BindingRegistry::create());
  const BindingRegistry other = must(BindingRegistry::create());
  const auto drops = std::make_shared<DropLog>();
  const auto probe = [&](const char* name) {
    auto made = std::make_shared<Probe>(drops, name);
    made->at_end = [weak = registry->weak(), other] {
      call_everything(other, DeviceKey::host());
      if (const auto own = weak.lock()) {
        call_everything(*own, DeviceKey::host());
      }
    };
    return made;
  };
  const auto context =
      must(registry->register_provider_context(DeviceKey::host(), probe("context")));
  const auto authority = must(registry->register_authority(DeviceKey::host(), probe("authority")));
  const auto mechanism =
      must(registry->register_allocator(context, authority, std::make_shared<test::Recorder>()));
  std::optional<MemoryBinding> binding = must(registry->bind(mechanism));
  must_do(registry->retire(mechanism));
  must_do(registry->remove(mechanism));
  must_do(registry->remove_provider_context(context));
  must_do(registry->remove_authority(authority));

  binding.reset();

  EXPECT_THAT(drops->names(), ElementsAre("authority", "context"));
}

// X-006, W-5, W-21
TEST(Reentrance, TheEndOfARegistryMayCallAnother) {
  const BindingRegistry other = must(BindingRegistry::create());
  std::optional<BindingRegistry> registry = must(BindingRegistry::create());
  const auto drops = std::make_shared<DropLog>();
  auto probe = std::make_shared<Probe>(drops, "context");
  probe->at_end = [other, weak = registry->weak()] {
    call_everything(other, DeviceKey::host());
    EXPECT_FALSE(weak.lock().has_value());
  };
  static_cast<void>(must(registry->register_provider_context(DeviceKey::host(), std::move(probe))));

  registry.reset();

  EXPECT_THAT(drops->names(), ElementsAre("context"));
}

}  // namespace
}  // namespace memstrata
