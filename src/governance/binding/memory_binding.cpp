// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/binding/memory_binding.hpp"

#include <optional>
#include <utility>

#include "governance/binding/bound_call.hpp"
#include "governance/binding/mechanism_record.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/bound_capability.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"

namespace memstrata {

using detail::AllocationRecord;
using detail::BoundCall;
using detail::MechanismRecord;

BindingIdentity MemoryBinding::identity() const noexcept {
  return mechanism_->binding_identity(serial_);
}

// The common path has one branch for each thing that can be wrong, and says what it is elsewhere.
Result<OwningAllocation, BindingError> MemoryBinding::allocate(Bytes bytes, Bytes alignment) const {
  MechanismRecord& mechanism = *mechanism_;
  MEMSTRATA_TRY(BoundCall call, BoundCall::begin(mechanism_, "allocate"));
  AllocationRecord* record = mechanism.open_at_hand(serial_, bytes, alignment);
  if (record == nullptr) [[unlikely]] {
    MEMSTRATA_TRY(record, mechanism.open(serial_, bytes, alignment));
  }
  try {
    Result<DeviceAddress> address = mechanism.parts().allocator->allocate(bytes, alignment);
    if (address) [[likely]] {
      call.publish(*record, *address);
      return OwningAllocation(mechanism, *record);
    }
    mechanism.close(*record);
    return fail(BindingError(std::move(address).error()));
  } catch (...) {
    mechanism.close(*record);
    return fail(call.thrown());
  }
}

Result<OwningAllocation, BindingError> MemoryBinding::adopt_allocation(
    const AllocationSpan& allocation,
    AttestSoleOwner /*attest*/) const {
  MEMSTRATA_TRY(BoundCall call, BoundCall::begin(mechanism_, "adopt"));
  MEMSTRATA_TRY(AllocationRecord* const record,
                mechanism_->open(serial_, allocation.bytes, allocation.alignment));
  call.publish(*record, allocation.address);
  return OwningAllocation(*mechanism_, *record);
}

Result<PreparedAllocationRelease, BindingError> MemoryBinding::prepare_release(
    OwningAllocation& allocation) const {
  allocation.verify_owns();
  const MechanismLifecycle lifecycle = mechanism_->gate().lifecycle();
  if (lifecycle != MechanismLifecycle::active && lifecycle != MechanismLifecycle::retired) {
    return fail(mechanism_->refusal(lifecycle, "release"));
  }
  if (const BindingIdentity other = allocation.binding_identity(); other != identity()) {
    return fail(BindingError(BindingMismatch{.expected = identity().id, .actual = other.id}));
  }
  return allocation.prepare_release();
}

Result<ReleaseOutcome, BindingError> MemoryBinding::release_now(
    OwningAllocation& allocation) const {
  MEMSTRATA_TRY(PreparedAllocationRelease prepared, prepare_release(allocation));
  return prepared.execute();
}

Result<std::optional<BoundVirtualBacking>, BindingError> MemoryBinding::virtual_backing() const {
  if (const auto lifecycle = mechanism_->gate().lifecycle();
      lifecycle != MechanismLifecycle::active) {
    return fail(mechanism_->refusal(lifecycle, "virtual backing"));
  }
  if (mechanism_->virtual_backing() == nullptr) {
    return std::nullopt;
  }
  return BoundVirtualBacking(mechanism_, serial_);
}

Result<std::optional<BoundSharedMapping>, BindingError> MemoryBinding::shared_mapping() const {
  if (const auto lifecycle = mechanism_->gate().lifecycle();
      lifecycle != MechanismLifecycle::active) {
    return fail(mechanism_->refusal(lifecycle, "shared mapping"));
  }
  if (mechanism_->shared_mapping() == nullptr) {
    return std::nullopt;
  }
  return BoundSharedMapping(mechanism_, serial_);
}

bool MemoryBinding::begin_use(const OwnedView& view) const noexcept {
  MEMSTRATA_VERIFY(view.record_ != nullptr, "a view was used after it was moved from");
  MechanismRecord& mechanism = *mechanism_;
  if (mechanism.gate().begin_call()) [[unlikely]] {
    return false;
  }
  AllocationRecord& record = *view.record_;
  if (view.mechanism_ == &mechanism && record.binding == serial_ &&
      mechanism.try_pin(record, view.generation_)) [[likely]] {
    return true;
  }
  mechanism.gate().end_call();
  return false;
}

BindingError MemoryBinding::refusal_of_use(const OwnedView& view) const {
  MechanismRecord& mechanism = *mechanism_;
  if (const auto lifecycle = mechanism.gate().lifecycle();
      lifecycle != MechanismLifecycle::active) {
    return mechanism.refusal(lifecycle, "with_view");
  }
  const AllocationRecord& record = *view.record_;
  if (view.mechanism_ != &mechanism || record.binding != serial_) {
    return BindingMismatch{.expected = identity().id,
                           .actual = view.mechanism_->binding_identity(record.binding).id};
  }
  return StaleAllocation{.allocation = view.identity()};
}

void detail::ViewUse::end(MechanismRecord& mechanism, AllocationRecord& record) noexcept {
  // The operation ends first: the pin may be what keeps the mechanism.
  mechanism.gate().end_call();
  mechanism.unpin(record);
}

DeviceAddress MemoryBinding::address_of(const OwnedView& view) noexcept {
  return view.record_->address + view.range_.offset;
}

QuarantinedAllocations MemoryBinding::quarantined() const {
  return mechanism_->quarantined();
}

MechanismSnapshot MemoryBinding::mechanism_snapshot() const noexcept {
  return mechanism_->snapshot();
}

}  // namespace memstrata
