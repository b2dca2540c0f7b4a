// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/bound_capability.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "support/binding_rig.hpp"
#include "support/watched_allocator.hpp"

namespace memstrata::test {

/// As `BindingRig`, over an allocator with both capabilities, which are bound too. `drops` also notes each end of a
/// prefix.
struct CapabilityRig {
  explicit CapabilityRig(DeviceKey key = DeviceKey::host(), BindingRegistryOptions options = {})
      : device(key),
        registry(must(BindingRegistry::create(options))),
        context(must(
            registry.register_provider_context(key, std::make_shared<Probe>(drops, "context")))),
        authority(
            must(registry.register_authority(key, std::make_shared<Probe>(drops, "authority")))),
        allocator(std::make_shared<WatchedAllocator>(FakeOptions{.device = key})),
        mechanism(must(registry.register_allocator(context, authority, allocator))),
        binding(must(registry.bind(mechanism))),
        backing(must(binding.virtual_backing()).value()),
        mapping(must(binding.shared_mapping()).value()) {
    allocator->on_end([log = drops] { log->note("allocator"); });
    watch([](std::string_view /*operation*/) {});
  }

  /// Foreign code that runs inside every call of the allocator.
  void watch(WatchedAllocator::Hook hook) const {
    allocator->on_call([log = drops, hook = std::move(hook)](std::string_view operation) {
      hook(operation);
      if (operation == "end_prefix") {
        log->note("prefix");
      }
    });
  }

  [[nodiscard]] MechanismSnapshot snapshot() const { return binding.mechanism_snapshot(); }

  [[nodiscard]] OwningAllocation allocate(Bytes bytes = Bytes{64},
                                          Bytes alignment = Bytes{16}) const {
    return must(binding.allocate(bytes, alignment));
  }

  /// A sealed prefix that can be mapped.
  [[nodiscard]] BoundSharedPrefix sealed_prefix(Bytes bytes = Bytes{16}) const {
    BoundSharedPrefix prefix = must(mapping.create_shared_prefix(bytes));
    must(prefix.seal());
    return prefix;
  }

  DeviceKey device;
  std::shared_ptr<DropLog> drops = std::make_shared<DropLog>();
  BindingRegistry registry;
  RegisteredProviderContext context;
  RegisteredAuthority authority;
  std::shared_ptr<WatchedAllocator> allocator;
  RegisteredMechanism mechanism;
  MemoryBinding binding;
  BoundVirtualBacking backing;
  BoundSharedMapping mapping;
};

/// One more mechanism on the same context and authority.
template <class Rig>
[[nodiscard]] RegisteredMechanism add_mechanism(const Rig& rig) {
  return must(rig.registry.register_allocator(
      rig.context,
      rig.authority,
      std::make_shared<WatchedAllocator>(FakeOptions{.device = rig.device})));
}

}  // namespace memstrata::test
