// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/binding/memory_binding.hpp"

#include <optional>
#include <utility>

#include "governance/binding/bound_call.hpp"
#include "governance/binding/mechanism_record.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
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

detail::ViewUse::~ViewUse() {
  if (mechanism_ != nullptr) {
    // The operation ends first: the pin may be what keeps the mechanism.
    mechanism_->gate().end_call();
    mechanism_->unpin(*record_);
  }
}

BindingIdentity MemoryBinding::identity() const noexcept {
  return mechanism_->binding_identity(serial_);
}

Result<OwningAllocation, BindingError> MemoryBinding::allocate(Bytes bytes,
                                                               Bytes alignment) const {
  MEMSTRATA_TRY(BoundCall call, BoundCall::begin(mechanism_, "allocate"));
  MEMSTRATA_TRY(AllocationRecord* const record, mechanism_->open(serial_, bytes, alignment));
  auto address =
      call.run([&] { return mechanism_->parts().allocator->allocate(bytes, alignment); });
  if (!address) {
    mechanism_->close(*record);
    return fail(std::move(address).error());
  }
  call.publish(*record, *address);
  return OwningAllocation(*mechanism_, *record);
}

Result<OwningAllocation, BindingError> MemoryBinding::adopt_allocation(
    const AllocationSpan& allocation, AttestSoleOwner /*attest*/) const {
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

Result<detail::ViewUse, BindingError> MemoryBinding::begin_use(const OwnedView& view) const {
  MEMSTRATA_VERIFY(view.record_ != nullptr, "a view was used after it was moved from");
  MechanismRecord& mechanism = *mechanism_;
  MEMSTRATA_TRY_VOID(mechanism.begin_call("with_view"));
  AllocationRecord& record = *view.record_;
  std::optional<BindingError> refused;
  if (view.mechanism_ != &mechanism || record.binding != serial_) [[unlikely]] {
    refused = BindingMismatch{
        .expected = identity().id,
        .actual = view.mechanism_->binding_identity(record.binding).id};
  } else if (auto pinned = mechanism.pin(record, view.generation_); !pinned) [[unlikely]] {
    refused = std::move(pinned).error();
  }
  if (refused) [[unlikely]] {
    mechanism.gate().end_call();
    return fail(*std::move(refused));
  }
  return detail::ViewUse(
      mechanism,
      record,
      ValidatedMemoryView{.address = record.address + view.range_.offset,
                          .bytes = view.range_.size});
}

QuarantinedAllocations MemoryBinding::quarantined() const {
  return mechanism_->quarantined();
}

MechanismSnapshot MemoryBinding::mechanism_snapshot() const noexcept {
  return mechanism_->snapshot();
}

}  // namespace memstrata
