// SPDX-License-Identifier: Apache-2.0
// What a registry hands out and tells: bindings, snapshots, and the ways out of quarantine.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "governance/binding/allocation_record.hpp"
#include "governance/binding/mechanism_record.hpp"
#include "governance/binding/registry_state.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/mechanism_ref.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"

namespace memstrata {

using detail::MechanismRef;
using detail::RegistryState;

namespace {

/// The serial of a new binding's id; the one after it is its generation. Errors: the lifecycle; IdentityExhausted.
Result<std::uint64_t, BindingError> new_binding(RegistryState& state,
                                                const MechanismRef& mechanism) {
  if (const auto lifecycle = mechanism->gate().lifecycle();
      lifecycle != MechanismLifecycle::active) {
    return fail(mechanism->refusal(lifecycle, "bind"));
  }
  const auto run = state.identities->issue_run(2);
  if (!run || run->count < 2) {
    static_cast<void>(state.identities->issue_run(1));  // the last serial alone makes no binding
    return fail(BindingError(IdentityExhausted{}));
  }
  return run->first;
}

}  // namespace

Result<MemoryBinding, BindingError> BindingRegistry::bind(DeviceKey device) const {
  MechanismRef mechanism;
  {
    const MutexLock lock(state_->mutex);
    const auto slot = state_->selected.find(RegistryState::key(device));
    if (slot != state_->selected.end() && slot->second) {
      mechanism = state_->find(*slot->second);
    }
  }
  if (!mechanism) {
    return fail(BindingError(NoSelectedMechanism{.device = device}));
  }
  MEMSTRATA_TRY(const std::uint64_t serial, new_binding(*state_, mechanism));
  return MemoryBinding(std::move(mechanism), serial);
}

Result<MemoryBinding, BindingError> BindingRegistry::bind(
    const RegisteredMechanism& mechanism) const {
  MEMSTRATA_TRY(MechanismRef record, state_->lookup(mechanism.identity));
  MEMSTRATA_TRY(const std::uint64_t serial, new_binding(*state_, record));
  return MemoryBinding(std::move(record), serial);
}

Result<MechanismSnapshot, BindingError> BindingRegistry::snapshot(
    const RegisteredMechanism& mechanism) const {
  MEMSTRATA_TRY(const MechanismRef record, state_->lookup(mechanism.identity));
  return record->snapshot();
}

std::vector<MechanismSnapshot> BindingRegistry::snapshots() const {
  std::vector<MechanismRef> all;
  for (std::size_t room = 8;; room *= 2) {
    all.reserve(room);
    const MutexLock lock(state_->mutex);
    if (state_->mechanisms.size() <= room) {
      for (const auto& [serial, mechanism] : state_->mechanisms) {
        all.push_back(mechanism);
      }
      break;
    }
  }
  std::vector<MechanismSnapshot> snapshots;
  snapshots.reserve(all.size());
  for (const MechanismRef& mechanism : all) {
    snapshots.push_back(mechanism->snapshot());
  }
  return snapshots;
}

Result<QuarantinedAllocations, BindingError> BindingRegistry::quarantined(
    const RegisteredMechanism& mechanism) const {
  MEMSTRATA_TRY(const MechanismRef record, state_->lookup(mechanism.identity));
  return detail::unless_out_of_memory([&record]() -> Result<QuarantinedAllocations, BindingError> {
    return record->quarantined();
  });
}

Result<PreparedAllocationRelease, BindingError> BindingRegistry::reclaim(
    const AllocationIdentity& allocation) const {
  if (!state_->issued(allocation.generation)) {
    return fail(BindingError(ForeignRegistry{.kind = RegisteredKind::allocation}));
  }
  MEMSTRATA_TRY(const MechanismRef mechanism, state_->lookup(allocation.binding.mechanism));
  MEMSTRATA_TRY(detail::AllocationRecord* const record, mechanism->reclaim(allocation));
  return PreparedAllocationRelease(*mechanism, *record);
}

Result<void, BindingError> BindingRegistry::reconcile(const AllocationIdentity& allocation,
                                                      AttestMemoryGone /*attest*/) const {
  if (!state_->issued(allocation.generation)) {
    return fail(BindingError(ForeignRegistry{.kind = RegisteredKind::allocation}));
  }
  MEMSTRATA_TRY(const MechanismRef mechanism, state_->lookup(allocation.binding.mechanism));
  return mechanism->reconcile(allocation);
}

}  // namespace memstrata
