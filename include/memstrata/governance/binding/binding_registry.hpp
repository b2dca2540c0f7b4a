// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "memstrata/contract/context_pin.hpp"
#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"

namespace memstrata {

/// Any thread-safe object that a registration keeps alive and nobody looks into: a driver context, a library.
using BindingResource = std::shared_ptr<void>;

/// A registered provider context. A value: it keeps nothing alive and may go stale.
struct RegisteredProviderContext {
  ProviderContextIdentity identity;
  DeviceKey device;

  [[nodiscard]] friend constexpr bool operator==(const RegisteredProviderContext&,
                                                 const RegisteredProviderContext&) = default;
};

/// A registered authority. A value: it keeps nothing alive and may go stale.
struct RegisteredAuthority {
  AuthorityIdentity identity;
  DeviceKey device;

  [[nodiscard]] friend constexpr bool operator==(const RegisteredAuthority&,
                                                 const RegisteredAuthority&) = default;
};

/// A registered mechanism. A value: it keeps nothing alive and may go stale.
struct RegisteredMechanism {
  MechanismIdentity identity;
  DeviceKey device;
  MechanismCoherence coherence;

  [[nodiscard]] friend constexpr bool operator==(const RegisteredMechanism&,
                                                 const RegisteredMechanism&) = default;
};

/// Says that the caller vouches for a wrapper: allocation, capabilities and release reach one mechanism.
struct AttestCoherent {
  explicit AttestCoherent() = default;
};

inline constexpr AttestCoherent attest_coherent{};

/// Says that the caller has proof: the memory of the record is gone, or belongs to somebody else from now on.
struct AttestMemoryGone {
  explicit AttestMemoryGone() = default;
};

inline constexpr AttestMemoryGone attest_memory_gone{};

/// How a registry counts. The defaults are for use; others are for tests of what happens at the end of a counter.
struct BindingRegistryOptions {
  std::uint64_t first_serial = 1;
  std::uint64_t most_pins = (std::uint64_t{1} << 62U) - 1;  ///< Of one context; at most 2^62 - 1.
};

/// A provider context at one instant.
struct ProviderContextSnapshot {
  ProviderContextIdentity identity;
  DeviceKey device;
  ProviderContextLifecycle lifecycle;
  std::uint64_t pins;
  std::uint64_t mechanisms;  ///< Registered on it.
};

class WeakBindingRegistry;

namespace detail {
class RegistryState;
}

/// Who made which allocation, through what, and what may still happen to it: provider contexts, authorities and
/// mechanisms are registered; a binding to a mechanism allocates; every allocation has an identity that no reuse of
/// an address makes valid again. The handle is cheap to copy; copies are the same registry. Thread-safe.
///
/// No lock is held while an allocator, a capability, a queue, a view operation or the destructor of anything that a
/// caller registered runs; all of them may call back. Lock order: registry, then mechanism. A mechanism and what it
/// belongs to live until the last binding, owner, view, prepared release, bound capability or prefix is gone: the
/// allocator then goes first, the authority second, the context last, on whichever thread that happens.
class BindingRegistry {
 public:
  /// A new registry with an id of its own. Errors: IdentityExhausted once the process has no more ids; MemoryError
  /// without memory for it, here and in every registration: nothing is registered then.
  [[nodiscard]] static Result<BindingRegistry, BindingError> create(
      BindingRegistryOptions options = {});

  /// Error of both: IdentityExhausted; nothing is registered then.
  [[nodiscard]] Result<RegisteredProviderContext, BindingError> register_provider_context(
      DeviceKey device,
      BindingResource resource) const;
  [[nodiscard]] Result<RegisteredAuthority, BindingError> register_authority(
      DeviceKey device,
      BindingResource resource) const;

  /// Registers an allocator that supplies everything itself. It becomes the selected one of its device if there is
  /// none. `sampled` is `allocator->device()` for a caller that asked before it took a lock of its own.
  /// Errors, in this order: ForeignRegistry for the context, for the authority; UnregisteredProviderContext;
  /// UnregisteredAuthority; InactiveProviderContext; DeviceMismatch for the authority, for the allocator;
  /// IdentityExhausted. The registry is then unchanged.
  [[nodiscard]] Result<RegisteredMechanism, BindingError> register_allocator(
      const RegisteredProviderContext& context,
      const RegisteredAuthority& authority,
      std::shared_ptr<DeviceAllocator> allocator,
      std::optional<DeviceKey> sampled = std::nullopt) const;
  /// The same for a wrapper around several parts.
  [[nodiscard]] Result<RegisteredMechanism, BindingError> register_trusted_composite(
      const RegisteredProviderContext& context,
      const RegisteredAuthority& authority,
      std::shared_ptr<DeviceAllocator> allocator,
      AttestCoherent attest,
      std::optional<DeviceKey> sampled = std::nullopt) const;

  /// Later calls of `bind(device)` use this mechanism. Errors: ForeignRegistry; UnregisteredMechanism;
  /// InactiveMechanism. On failure the selection is as before.
  [[nodiscard]] Result<void, BindingError> select(const RegisteredMechanism& mechanism) const;

  /// The mechanism takes no new work; what is live can still be released. Drops its selection. Again is no error.
  /// Errors: ForeignRegistry; UnregisteredMechanism.
  [[nodiscard]] Result<void, BindingError> retire(const RegisteredMechanism& mechanism) const;

  /// Takes the mechanism off the registry. Errors, in this order: ForeignRegistry; UnregisteredMechanism;
  /// QuarantinedOwnership; InactiveMechanism if it is active, or anything is live, queued or in flight, or a shared
  /// prefix is kept until the end of the context is confirmed.
  [[nodiscard]] Result<void, BindingError> remove(const RegisteredMechanism& mechanism) const;

  /// No new mechanism and no new pin on the context, and its mechanisms retire. Errors: ForeignRegistry;
  /// UnregisteredProviderContext.
  [[nodiscard]] Result<void, BindingError> retire_provider_context(
      const RegisteredProviderContext& context) const;
  /// Takes the context off the registry, which drops its reference. Errors: ForeignRegistry;
  /// UnregisteredProviderContext; ProviderContextInUse.
  [[nodiscard]] Result<void, BindingError> remove_provider_context(
      const RegisteredProviderContext& context) const;
  /// The same for an authority. Errors: ForeignRegistry; UnregisteredAuthority; AuthorityInUse.
  [[nodiscard]] Result<void, BindingError> remove_authority(
      const RegisteredAuthority& authority) const;

  /// The device is lost: no operation of its mechanisms begins from now on, and what they hold stays on the books. An
  /// operation that had begun may still reach the allocator once; until it has ended the end of the context cannot be
  /// confirmed. Calls nobody, frees nothing. The last reason is the one that is reported. Its contexts are lost too.
  void invalidate_device(DeviceKey device, const ErrorText& reason) const;

  /// Proof from outside that the context is gone, and all its memory: discharges everything of its mechanisms. It
  /// calls no allocator; prefixes that were kept because of the loss are destroyed.
  /// Errors: ForeignRegistry; UnregisteredProviderContext; InactiveMechanism if a mechanism is not lost;
  /// ContextNotQuiescent while calls, queued releases or pins are left. Nothing is changed then. A context without
  /// mechanisms succeeds if it is lost, and if nothing was ever lost changes nothing.
  [[nodiscard]] Result<void, BindingError> confirm_context_terminated(
      const RegisteredProviderContext& context) const;

  /// A binding to the selected mechanism of `device`. Errors: NoSelectedMechanism; InactiveMechanism;
  /// IdentityExhausted.
  [[nodiscard]] Result<MemoryBinding, BindingError> bind(DeviceKey device) const;
  /// A binding to that mechanism, selected or not. Errors: ForeignRegistry; UnregisteredMechanism;
  /// InactiveMechanism; DeviceLost; IdentityExhausted.
  [[nodiscard]] Result<MemoryBinding, BindingError> bind(
      const RegisteredMechanism& mechanism) const;

  /// Pure reads. Errors: ForeignRegistry; Unregistered...; MemoryError without memory for the list.
  [[nodiscard]] Result<MechanismSnapshot, BindingError> snapshot(
      const RegisteredMechanism& mechanism) const;
  /// Of every registered mechanism. Throws std::bad_alloc, as any list by value.
  [[nodiscard]] std::vector<MechanismSnapshot> snapshots() const;
  [[nodiscard]] Result<QuarantinedAllocations, BindingError> quarantined(
      const RegisteredMechanism& mechanism) const;
  [[nodiscard]] Result<ProviderContextSnapshot, BindingError> provider_context(
      const RegisteredProviderContext& context) const;

  /// Turns a record in quarantine whose allocator was never called (the owner or the request was destroyed, a queue
  /// refused, a fence failed) into a prepared release again. Whoever calls it knows that the device does not use
  /// the memory any more, or gives the request to a queue that does.
  /// Errors: ForeignRegistry; UnregisteredMechanism; DeviceLost or InactiveMechanism; StaleAllocation if the record
  /// is not in quarantine; NotReclaimable; OutstandingViews.
  [[nodiscard]] Result<PreparedAllocationRelease, BindingError> reclaim(
      const AllocationIdentity& allocation) const;

  /// Discharges one record in quarantine without a call. Errors: ForeignRegistry; UnregisteredMechanism;
  /// InactiveMechanism if terminated; StaleAllocation.
  [[nodiscard]] Result<void, BindingError> reconcile(const AllocationIdentity& allocation,
                                                     AttestMemoryGone attest) const;

  /// Pins for mechanisms that queue work for the context. The source may outlive the registry. Errors:
  /// ForeignRegistry; UnregisteredProviderContext; MemoryError.
  [[nodiscard]] Result<std::shared_ptr<ProviderContextPinSource>, BindingError> pin_source(
      const RegisteredProviderContext& context) const;

  /// A handle that keeps nothing alive, for allocators and queues, which the registry keeps alive itself.
  [[nodiscard]] WeakBindingRegistry weak() const noexcept;

 private:
  friend class WeakBindingRegistry;

  explicit BindingRegistry(std::shared_ptr<detail::RegistryState> state) noexcept
      : state_(std::move(state)) {}

  std::shared_ptr<detail::RegistryState> state_;
};

/// Finds a registry that is still there. Thread-safe.
class WeakBindingRegistry {
 public:
  WeakBindingRegistry() noexcept = default;

  /// The registry, or nothing once its last handle is gone.
  [[nodiscard]] std::optional<BindingRegistry> lock() const noexcept;

 private:
  friend class BindingRegistry;

  explicit WeakBindingRegistry(std::weak_ptr<detail::RegistryState> state) noexcept
      : state_(std::move(state)) {}

  std::weak_ptr<detail::RegistryState> state_;
};

}  // namespace memstrata
