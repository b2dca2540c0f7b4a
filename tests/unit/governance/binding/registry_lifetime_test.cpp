// SPDX-License-Identifier: Apache-2.0
// What keeps what alive, and in which order it goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/log.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/bound_capability.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "support/binding_rig.hpp"
#include "support/capability_rig.hpp"
#include "support/recorder.hpp"

namespace memstrata {
namespace {

using test::BindingRig;
using test::CapabilityRig;
using test::DropLog;
using test::must;
using test::must_do;
using test::Probe;
using testing::ElementsAre;
using testing::IsEmpty;

/// A rig of which the test can let go; what it still needs is moved out before.
struct Droppable {
  std::unique_ptr<BindingRig> rig = std::make_unique<BindingRig>();
  std::shared_ptr<DropLog> drops = rig->drops;
};

// B-026, G-172
TEST(RegistryLifetime, ALiveAllocationKeepsEverythingAfterTheRegistryIsGone) {
  Droppable test;
  MemoryBinding binding = test.rig->binding;
  OwningAllocation owner = test.rig->allocate();

  test.rig.reset();

  EXPECT_THAT(test.drops->names(), IsEmpty());
  must_do(owner.release_now());
}

// B-027, B-054, G-172
TEST(RegistryLifetime, TheLastBindingEndsEveryPartOnceAfterOneRelease) {
  Droppable test;
  const auto allocator = std::weak_ptr(test.rig->allocator);
  std::optional<MemoryBinding> binding = test.rig->binding;
  OwningAllocation owner = test.rig->allocate();
  test.rig.reset();

  must_do(owner.release_now());
  EXPECT_EQ(allocator.lock()->releases(), 1U);
  EXPECT_THAT(test.drops->names(), IsEmpty());
  binding.reset();

  EXPECT_THAT(test.drops->names(), ElementsAre("allocator", "authority", "context"));
}

// B-028, G-172
TEST(RegistryLifetime, TheRegistryKeepsAContextWithoutBindings) {
  const auto drops = std::make_shared<DropLog>();
  const BindingRegistry registry = must(BindingRegistry::create());
  auto resource = std::make_shared<Probe>(drops, "context");
  const auto context = must(registry.register_provider_context(DeviceKey::host(), resource));
  const auto authority = must(registry.register_authority(DeviceKey::host(), nullptr));
  const auto mechanism =
      must(registry.register_allocator(context, authority, std::make_shared<test::Recorder>()));
  {
    const MemoryBinding binding = must(registry.bind(mechanism));
    OwningAllocation owner = must(binding.allocate(Bytes{64}, Bytes{16}));
    must_do(owner.release_now());
  }

  resource.reset();

  EXPECT_THAT(drops->names(), IsEmpty());
}

// B-029, G-172
TEST(RegistryLifetime, RemovalOfAContextEndsItOnceAndTheRegistryNothingMore) {
  const auto drops = std::make_shared<DropLog>();
  std::optional<BindingRegistry> registry = must(BindingRegistry::create());
  const auto context = must(registry->register_provider_context(
      DeviceKey::host(), std::make_shared<Probe>(drops, "context")));
  const auto authority = must(
      registry->register_authority(DeviceKey::host(), std::make_shared<Probe>(drops, "authority")));
  const auto mechanism =
      must(registry->register_allocator(context, authority, std::make_shared<test::Recorder>()));

  must_do(registry->retire(mechanism));
  must_do(registry->remove(mechanism));
  EXPECT_THAT(drops->names(), IsEmpty());
  must_do(registry->remove_provider_context(context));
  EXPECT_THAT(drops->names(), ElementsAre("context"));
  must_do(registry->remove_authority(authority));
  registry.reset();

  EXPECT_THAT(drops->names(), ElementsAre("context", "authority"));
}

// B-053, G-172
TEST(RegistryLifetime, ABindingAloneKeepsARemovedMechanismAndItsParts) {
  Droppable test;
  const MemoryBinding binding = test.rig->binding;
  must_do(test.rig->registry.retire(test.rig->mechanism));
  must_do(test.rig->registry.remove(test.rig->mechanism));
  must_do(test.rig->registry.remove_provider_context(test.rig->context));
  must_do(test.rig->registry.remove_authority(test.rig->authority));

  test.rig.reset();

  EXPECT_THAT(test.drops->names(), IsEmpty());
}

// B-054, W-4, G-175
TEST(RegistryLifetime, TheAllocatorSeesAuthorityAndContextAliveWhenItEnds) {
  const auto drops = std::make_shared<DropLog>();
  std::optional<BindingRegistry> registry = must(BindingRegistry::create());
  auto context_resource = std::make_shared<Probe>(drops, "context");
  auto authority_resource = std::make_shared<Probe>(drops, "authority");
  const auto context =
      must(registry->register_provider_context(DeviceKey::host(), context_resource));
  const auto authority = must(registry->register_authority(DeviceKey::host(), authority_resource));
  auto allocator = std::make_shared<test::Recorder>();
  bool both_alive = false;
  allocator->on_end([&,
                     weak_context = std::weak_ptr(context_resource),
                     weak_authority = std::weak_ptr(authority_resource)] {
    both_alive = !weak_context.expired() && !weak_authority.expired();
  });
  const auto mechanism = must(registry->register_allocator(context, authority, allocator));
  std::optional<MemoryBinding> binding = must(registry->bind(mechanism));
  must_do(registry->retire(mechanism));
  must_do(registry->remove(mechanism));
  registry.reset();
  context_resource.reset();
  authority_resource.reset();
  allocator.reset();
  ASSERT_THAT(drops->names(), IsEmpty());

  binding.reset();

  EXPECT_TRUE(both_alive);
  EXPECT_THAT(drops->names(), ElementsAre("authority", "context"));
}

/// What a test keeps as the last thing that refers to a mechanism.
template <class Last>
void expect_order_with_last(Droppable& test, std::optional<Last> last) {
  test.rig.reset();
  ASSERT_THAT(test.drops->names(), IsEmpty());

  last.reset();

  EXPECT_THAT(test.drops->names(), ElementsAre("allocator", "authority", "context"));
}

// X-005, W-4
TEST(RegistryLifetime, AnAbandonedReleaseAsTheLastPinEndsThePartsInOrder) {
  Droppable test;
  OwningAllocation owner = test.rig->allocate();

  expect_order_with_last<PreparedAllocationRelease>(test, must(owner.prepare_release()));
}

// X-005, W-4
TEST(RegistryLifetime, AnExecutedReleaseAsTheLastPinEndsThePartsInOrder) {
  Droppable test;
  OwningAllocation owner = test.rig->allocate();
  PreparedAllocationRelease prepared = must(owner.prepare_release());
  test.rig.reset();
  ASSERT_THAT(test.drops->names(), IsEmpty());

  const ReleaseOutcome outcome = prepared.execute();

  EXPECT_TRUE(outcome.is_released());
  EXPECT_TRUE(prepared.empty());
  EXPECT_THAT(test.drops->names(), ElementsAre("allocator", "authority", "context"));
}

// X-005, W-4
TEST(RegistryLifetime, AReleaseInABatchAsTheLastPinEndsThePartsWhenTheBatchSettles) {
  Droppable test;
  OwningAllocation owner = test.rig->allocate();
  PreparedAllocationRelease prepared = must(owner.prepare_release());
  test.rig.reset();
  ReleaseBatch batch;

  EXPECT_TRUE(batch.execute(prepared).is_released());
  EXPECT_THAT(test.drops->names(), IsEmpty());
  batch.settle();

  EXPECT_THAT(test.drops->names(), ElementsAre("allocator", "authority", "context"));
}

// X-005, W-4
TEST(RegistryLifetime, AnOwnerAsTheLastPinEndsThePartsInOrder) {
  Droppable test;
  OwningAllocation owner = test.rig->allocate();

  expect_order_with_last<OwningAllocation>(test, std::move(owner));
}

// X-005, W-4
TEST(RegistryLifetime, AViewThatOutlivesItsOwnerAsTheLastPinEndsThePartsInOrder) {
  Droppable test;
  std::optional<OwningAllocation> owner = test.rig->allocate();
  OwnedView view = must(owner->view(Bytes{}, Bytes{64}));
  owner.reset();

  expect_order_with_last<OwnedView>(test, std::move(view));
}

// X-005, W-4
TEST(RegistryLifetime, AViewOfALostAllocationAsTheLastPinEndsThePartsInOrder) {
  Droppable test;
  std::optional<OwningAllocation> owner = test.rig->allocate();
  OwnedView view = must(owner->view(Bytes{}, Bytes{64}));
  test.rig->registry.invalidate_device(test.rig->device, "fell off the bus");
  owner.reset();

  expect_order_with_last<OwnedView>(test, std::move(view));
}

// X-005, W-4
TEST(RegistryLifetime, ABoundCapabilityAsTheLastPinEndsThePartsInOrder) {
  auto rig = std::make_unique<CapabilityRig>();
  const auto drops = rig->drops;
  std::optional<BoundVirtualBacking> backing = rig->backing;
  std::optional<BoundSharedMapping> mapping = rig->mapping;
  rig.reset();

  backing.reset();
  EXPECT_THAT(drops->names(), IsEmpty());
  mapping.reset();

  EXPECT_THAT(drops->names(), ElementsAre("allocator", "authority", "context"));
}

// X-005, W-4
TEST(RegistryLifetime, TheEndOfTheRegistryEndsAMechanismWithoutPinsInOrder) {
  Droppable test;

  test.rig.reset();

  EXPECT_THAT(test.drops->names(), ElementsAre("allocator", "authority", "context"));
}

/// A prefix that survives the end of everything that a caller can remove.
[[nodiscard]] BoundSharedPrefix surviving_prefix(std::unique_ptr<CapabilityRig> rig) {
  BoundSharedPrefix prefix = rig->sealed_prefix();
  rig->registry.invalidate_device(rig->device, "fell off the bus");
  must_do(rig->registry.confirm_context_terminated(rig->context));
  must_do(rig->registry.remove(rig->mechanism));
  must_do(rig->registry.remove_provider_context(rig->context));
  must_do(rig->registry.remove_authority(rig->authority));
  return prefix;
}

// B-042, G-173
TEST(RegistryLifetime, ABoundPrefixAloneKeepsItsAllocatorAndContext) {
  auto rig = std::make_unique<CapabilityRig>();
  const auto drops = rig->drops;

  const BoundSharedPrefix prefix = surviving_prefix(std::move(rig));

  EXPECT_THAT(drops->names(), IsEmpty());
  EXPECT_EQ(prefix.requested_bytes(), Bytes{16});
}

// B-043, W-20, G-173
TEST(RegistryLifetime, ABoundPrefixGoesBeforeItsAllocatorAndTheContextLast) {
  auto rig = std::make_unique<CapabilityRig>();
  const auto drops = rig->drops;
  std::optional<BoundSharedPrefix> prefix = surviving_prefix(std::move(rig));

  prefix.reset();

  EXPECT_THAT(drops->names(), ElementsAre("prefix", "allocator", "authority", "context"));
}

// B-043, W-20
TEST(RegistryLifetime, AReplacedPrefixGoesBeforeItsOwnMechanism) {
  auto first = std::make_unique<CapabilityRig>();
  const CapabilityRig second;
  const auto drops = first->drops;
  BoundSharedPrefix prefix = surviving_prefix(std::move(first));

  prefix = second.sealed_prefix();

  EXPECT_THAT(drops->names(), ElementsAre("prefix", "allocator", "authority", "context"));
  EXPECT_EQ(prefix.binding_identity(), second.binding.identity());
}

// X-025, G-172
TEST(RegistryLifetime, AnAllocatorWithAWeakRegistryHandleIsCollected) {
  const auto drops = std::make_shared<DropLog>();
  WeakBindingRegistry seen_from_outside;
  {
    const BindingRig rig;
    const WeakBindingRegistry weak = rig.registry.weak();
    seen_from_outside = weak;
    rig.allocator->on_call(
        [weak](const char* /*operation*/) { EXPECT_TRUE(weak.lock().has_value()); });
    rig.allocator->on_end(
        [weak, drops] { drops->note(weak.lock() ? "allocator too early" : "allocator"); });
    OwningAllocation owner = rig.allocate();
    must_do(owner.release_now());
  }

  EXPECT_THAT(drops->names(), ElementsAre("allocator"));
  EXPECT_FALSE(seen_from_outside.lock().has_value());
}

TEST(RegistryLifetime, AWeakHandleThatIsLockedIsTheSameRegistry) {
  const BindingRig rig;

  const auto locked = rig.registry.weak().lock();

  ASSERT_TRUE(locked.has_value());
  EXPECT_EQ(locked->snapshots().size(), 1U);
  EXPECT_TRUE(locked->bind(rig.mechanism).has_value());
  EXPECT_FALSE(WeakBindingRegistry().lock().has_value());
}

/// What the library told its sink; a sink is a plain function.
std::vector<std::string>& told() {
  static std::vector<std::string> messages;
  return messages;
}

class SinkGuard {
 public:
  SinkGuard()
      : before_(set_log_sink([](LogLevel level, std::string_view text) noexcept {
          told().push_back((level == LogLevel::error ? "error: " : "other: ") + std::string(text));
        })) {
    told().clear();
  }

  SinkGuard(const SinkGuard&) = delete;
  SinkGuard& operator=(const SinkGuard&) = delete;
  SinkGuard(SinkGuard&&) = delete;
  SinkGuard& operator=(SinkGuard&&) = delete;

  ~SinkGuard() { set_log_sink(before_); }

 private:
  LogSink before_;
};

// W-21
TEST(RegistryLifetime, AMechanismThatEndsWithQuarantinedMemorySaysSo) {
  const SinkGuard guard;
  auto rig = std::make_unique<BindingRig>();
  {
    const OwningAllocation dropped = rig->allocate(Bytes{4096});
    const OwningAllocation another = rig->allocate(Bytes{1024});
  }

  rig.reset();

  ASSERT_EQ(told().size(), 1U);
  EXPECT_THAT(told().front(), testing::StartsWith("error: "));
  EXPECT_THAT(told().front(), testing::HasSubstr("0 live and 2 quarantined allocations"));
  EXPECT_THAT(told().front(), testing::HasSubstr("5120 bytes"));
}

// W-21
TEST(RegistryLifetime, AMechanismThatEndsWithLiveMemoryOfALostDeviceSaysSo) {
  const SinkGuard guard;
  auto rig = std::make_unique<BindingRig>();
  {
    const OwningAllocation dropped = rig->allocate();
    rig->registry.invalidate_device(rig->device, "fell off the bus");
  }

  rig.reset();

  ASSERT_EQ(told().size(), 1U);
  EXPECT_THAT(told().front(), testing::HasSubstr("1 live and 0 quarantined allocations"));
}

// W-21
TEST(RegistryLifetime, AMechanismThatOwnsNothingEndsSilently) {
  const SinkGuard guard;
  auto rig = std::make_unique<BindingRig>();
  OwningAllocation owner = rig->allocate();
  must_do(owner.release_now());

  rig.reset();

  EXPECT_THAT(told(), IsEmpty());
}

}  // namespace
}  // namespace memstrata
