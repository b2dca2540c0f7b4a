// SPDX-License-Identifier: Apache-2.0
// The life of registered mechanisms: registration, selection, retirement, loss and end.
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "governance/binding/mechanism_record.hpp"
#include "governance/binding/provider_context_record.hpp"
#include "governance/binding/registry_state.hpp"
#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/mechanism_ref.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"

namespace memstrata {

using detail::AuthorityRecord;
using detail::MechanismRecord;
using detail::MechanismRef;
using detail::PrefixKeepsake;
using detail::ProviderContextRecord;
using detail::RegistryState;

namespace {

/// What a registration stands on.
struct Ground {
  std::shared_ptr<ProviderContextRecord> context;
  std::shared_ptr<AuthorityRecord> authority;
};

InactiveMechanism inactive(MechanismRecord& mechanism, const char* operation) noexcept {
  return {.mechanism = mechanism.parts().identity,
          .lifecycle = mechanism.gate().lifecycle(),
          .operation = operation};
}

/// Both parts, as long as they can carry a mechanism. Errors as `register_allocator` says, up to the context's
/// lifecycle.
Result<Ground, BindingError> find_ground(const RegistryState& state,
                                         ProviderContextIdentity context,
                                         AuthorityIdentity authority)
    MEMSTRATA_REQUIRES(state.mutex) {
  Ground ground{.context = state.find(context), .authority = state.find(authority)};
  if (ground.context == nullptr) {
    return fail(BindingError(UnregisteredProviderContext{.context = context}));
  }
  if (ground.authority == nullptr) {
    return fail(BindingError(UnregisteredAuthority{.authority = authority}));
  }
  if (const auto lifecycle = ground.context->lifecycle();
      lifecycle != ProviderContextLifecycle::active) {
    return fail(BindingError(InactiveProviderContext{
        .context = context, .lifecycle = lifecycle, .operation = "register a mechanism"}));
  }
  return ground;
}

Result<void, BindingError> check_devices(const Ground& ground, DeviceKey allocator) {
  const DeviceKey expected = ground.context->device();
  if (ground.authority->device != expected) {
    return fail(BindingError(DeviceMismatch{.subject = DeviceSubject::authority,
                                            .expected = expected,
                                            .actual = ground.authority->device}));
  }
  if (allocator != expected) {
    return fail(BindingError(DeviceMismatch{
        .subject = DeviceSubject::allocator, .expected = expected, .actual = allocator}));
  }
  return {};
}

/// Puts the mechanism on the books if what it stands on is still there: one step, so that no mechanism stands on a
/// context that was removed meanwhile.
Result<void, BindingError> enter(RegistryState& state,
                                 const MechanismRef& mechanism,
                                 RegistryState::Mechanisms::node_type& node,
                                 RegistryState::Selection::node_type& slot) {
  const detail::MechanismParts& parts = mechanism->parts();
  Result<Ground, BindingError> ground = fail(BindingError(IdentityExhausted{}));
  const MutexLock lock(state.mutex);
  ground = find_ground(state, parts.context->identity(), parts.authority->identity);
  if (!ground) {
    return fail(std::move(ground).error());
  }
  state.mechanisms.insert(std::move(node));
  auto place = state.selected.insert(std::move(slot));
  slot = std::move(place.node);  // of a device that had a slot already
  if (!place.position->second) {
    place.position->second = parts.identity;
  }
  return {};
}

Result<RegisteredMechanism, BindingError> register_mechanism(
    RegistryState& state,
    const RegisteredProviderContext& context,
    const RegisteredAuthority& authority,
    std::shared_ptr<DeviceAllocator> allocator,
    std::optional<DeviceKey> sampled,
    MechanismCoherence coherence) {
  MEMSTRATA_VERIFY(allocator != nullptr, "a mechanism was registered without an allocator");
  const DeviceKey device = sampled ? *sampled : allocator->device();
  if (!state.issued(context.identity)) {
    return fail(BindingError(ForeignRegistry{.kind = RegisteredKind::provider_context}));
  }
  if (!state.issued(authority.identity)) {
    return fail(BindingError(ForeignRegistry{.kind = RegisteredKind::authority}));
  }
  Result<Ground, BindingError> ground = fail(BindingError(IdentityExhausted{}));
  {
    const MutexLock lock(state.mutex);
    ground = find_ground(state, context.identity, authority.identity);
  }
  if (!ground) {
    return fail(std::move(ground).error());
  }
  MEMSTRATA_TRY_VOID(check_devices(*ground, device));
  const auto identity = state.identities->issue<MechanismIdentity>();
  if (!identity) {
    return fail(BindingError(IdentityExhausted{}));
  }
  const MechanismRef mechanism(new MechanismRecord({.identity = *identity,
                                                    .device = device,
                                                    .coherence = coherence,
                                                    .identities = state.identities,
                                                    .context = std::move(ground->context),
                                                    .authority = std::move(ground->authority),
                                                    .allocator = std::move(allocator)}));
  auto node = detail::make_node<RegistryState::Mechanisms>(identity->serial(), mechanism);
  auto slot = detail::make_node<RegistryState::Selection>(RegistryState::key(device), std::nullopt);
  MEMSTRATA_TRY_VOID(enter(state, mechanism, node, slot));
  return RegisteredMechanism{.identity = *identity, .device = device, .coherence = coherence};
}

}  // namespace

Result<RegisteredMechanism, BindingError> BindingRegistry::register_allocator(
    const RegisteredProviderContext& context,
    const RegisteredAuthority& authority,
    std::shared_ptr<DeviceAllocator> allocator,
    std::optional<DeviceKey> sampled) const {
  return detail::unless_out_of_memory([&] {
    return register_mechanism(*state_,
                              context,
                              authority,
                              std::move(allocator),
                              sampled,
                              MechanismCoherence::self_contained);
  });
}

Result<RegisteredMechanism, BindingError> BindingRegistry::register_trusted_composite(
    const RegisteredProviderContext& context,
    const RegisteredAuthority& authority,
    std::shared_ptr<DeviceAllocator> allocator,
    AttestCoherent /*attest*/,
    std::optional<DeviceKey> sampled) const {
  return detail::unless_out_of_memory([&] {
    return register_mechanism(*state_,
                              context,
                              authority,
                              std::move(allocator),
                              sampled,
                              MechanismCoherence::trusted_composite);
  });
}

// The check and the publication are one section, and so is every end of a mechanism: a selection never names one
// that is not active, and nothing has to be taken back.
Result<void, BindingError> BindingRegistry::select(const RegisteredMechanism& mechanism) const {
  MEMSTRATA_TRY(const MechanismRef record, state_->lookup(mechanism.identity));
  const MutexLock lock(state_->mutex);
  if (!state_->mechanisms.contains(mechanism.identity.serial())) {
    return fail(BindingError(UnregisteredMechanism{.mechanism = mechanism.identity}));
  }
  if (record->gate().lifecycle() != MechanismLifecycle::active) {
    return fail(BindingError(inactive(*record, "select")));
  }
  state_->selected.find(RegistryState::key(record->parts().device))->second = mechanism.identity;
  return {};
}

Result<void, BindingError> BindingRegistry::retire(const RegisteredMechanism& mechanism) const {
  MEMSTRATA_TRY(const MechanismRef record, state_->lookup(mechanism.identity));
  const MutexLock lock(state_->mutex);
  record->gate().apply(MechanismEvent::retire);
  state_->deselect(*record);
  return {};
}

Result<void, BindingError> BindingRegistry::remove(const RegisteredMechanism& mechanism) const {
  MEMSTRATA_TRY(const MechanismRef record, state_->lookup(mechanism.identity));
  RegistryState::Mechanisms::node_type ended;  // after the lock
  const MutexLock lock(state_->mutex);
  const auto found = state_->mechanisms.find(mechanism.identity.serial());
  if (found == state_->mechanisms.end()) {
    return fail(BindingError(UnregisteredMechanism{.mechanism = mechanism.identity}));
  }
  const MechanismSnapshot now = record->snapshot();
  if (now.quarantined_allocations != 0) {
    return fail(BindingError(QuarantinedOwnership{.mechanism = mechanism.identity,
                                                  .count = now.quarantined_allocations}));
  }
  if (now.lifecycle == MechanismLifecycle::active || !now.quiescent() || record->keeps_prefixes()) {
    return fail(BindingError(inactive(*record, "remove")));
  }
  state_->deselect(*record);
  ended = state_->mechanisms.extract(found);
  return {};
}

void BindingRegistry::invalidate_device(DeviceKey device, const ErrorText& reason) const {
  const MutexLock lock(state_->mutex);
  for (const auto& [serial, context] : state_->contexts) {
    if (context->device() == device) {
      context->apply(ProviderContextEvent::invalidate_device);
    }
  }
  for (const auto& [serial, mechanism] : state_->mechanisms) {
    if (mechanism->parts().device == device) {
      static_cast<void>(mechanism->invalidate(reason));  // the old text is ours; it may end here
      state_->deselect(*mechanism);
    }
  }
}

Result<void, BindingError> BindingRegistry::confirm_context_terminated(
    const RegisteredProviderContext& context) const {
  MEMSTRATA_TRY(const auto record, state_->lookup(context.identity));
  std::list<PrefixKeepsake> ended;  // after the lock
  const MutexLock lock(state_->mutex);
  // Once lost, a mechanism begins nothing any more: what is quiet here stays quiet.
  std::uint64_t active = 0;
  for (const auto& [serial, mechanism] : state_->mechanisms) {
    if (mechanism->parts().context == record) {
      if (mechanism->gate().lifecycle() != MechanismLifecycle::device_lost) {
        return fail(BindingError(inactive(*mechanism, "confirm the end of the context")));
      }
      active += mechanism->gate().figures().active_operations();
    }
  }
  active += record->lifecycle() == ProviderContextLifecycle::device_lost ? record->pins() : 0;
  if (active != 0) {
    return fail(BindingError(
        ContextNotQuiescent{.context = context.identity, .active_operations = active}));
  }
  for (const auto& [serial, mechanism] : state_->mechanisms) {
    if (mechanism->parts().context == record) {
      mechanism->terminate(ended);
    }
  }
  record->apply(ProviderContextEvent::confirm_context_terminated);
  return {};
}

}  // namespace memstrata
