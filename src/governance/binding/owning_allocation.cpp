// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/binding/owning_allocation.hpp"

#include <cstdint>
#include <limits>
#include <utility>

#include "governance/binding/mechanism_record.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"

namespace memstrata {

OwnedView::OwnedView(const OwnedView& other) noexcept
    : mechanism_(other.mechanism_),
      record_(other.record_),
      generation_(other.generation_),
      range_(other.range_) {
  if (record_ != nullptr) {
    mechanism_->pin_again(*record_);
  }
}

OwnedView& OwnedView::operator=(const OwnedView& other) noexcept {
  return *this = OwnedView(other);
}

OwnedView& OwnedView::operator=(OwnedView&& other) noexcept {
  if (this != &other) {
    std::swap(mechanism_, other.mechanism_);
    std::swap(record_, other.record_);
    std::swap(generation_, other.generation_);
    std::swap(range_, other.range_);
    const OwnedView ended(std::move(other));  // what this was ends here
  }
  return *this;
}

void OwnedView::end() noexcept {
  mechanism_->unpin(*record_);
}

AllocationIdentity OwnedView::identity() const noexcept {
  MEMSTRATA_VERIFY(record_ != nullptr, "a view was used after it was moved from");
  return mechanism_->identity_of(*record_);
}

OwningAllocation& OwningAllocation::operator=(OwningAllocation&& other) noexcept {
  if (this != &other) {
    if (record_ != nullptr) {
      drop();
    }
    mechanism_ = std::exchange(other.mechanism_, nullptr);
    record_ = std::exchange(other.record_, nullptr);
  }
  return *this;
}

void OwningAllocation::drop() noexcept {
  std::exchange(mechanism_, nullptr)->drop_owner(*std::exchange(record_, nullptr));
}

void OwningAllocation::verify_owns() const noexcept {
  MEMSTRATA_VERIFY(record_ != nullptr,
                   "an owner was used after its allocation was released or moved");
}

AllocationIdentity OwningAllocation::identity() const noexcept {
  verify_owns();
  return mechanism_->identity_of(*record_);
}

BindingIdentity OwningAllocation::binding_identity() const noexcept {
  verify_owns();
  return mechanism_->binding_identity(record_->binding);
}

AllocationSpan OwningAllocation::span() const noexcept {
  verify_owns();
  return record_->span();
}

AllocationReleaseState OwningAllocation::state() const noexcept {
  verify_owns();
  return record_->state().state;
}

std::uint64_t OwningAllocation::outstanding_views() const noexcept {
  verify_owns();
  return record_->state().pins;
}

Result<OwnedView, BindingError> OwningAllocation::view(Bytes offset, Bytes size) const {
  verify_owns();
  const ByteRange range{.offset = offset, .size = size};
  const auto end = range.checked_end();
  if (!end || *end > record_->bytes) {
    return fail(BindingError(
        ViewOutOfBounds{.offset = offset,
                        .end = end.value_or(Bytes{std::numeric_limits<std::uint64_t>::max()}),
                        .allocation_bytes = record_->bytes}));
  }
  if (const MechanismLifecycle lifecycle = mechanism_->gate().lifecycle();
      lifecycle != MechanismLifecycle::active) {
    return fail(mechanism_->refusal(lifecycle, "view"));
  }
  MEMSTRATA_TRY_VOID(mechanism_->pin(*record_, record_->generation));
  return OwnedView(*mechanism_, *record_, record_->generation, range);
}

inline Result<void, BindingError> OwningAllocation::begin_release() {
  verify_owns();
  if (!mechanism_->try_prepare(*record_)) [[unlikely]] {
    return mechanism_->prepare(*record_);
  }
  return {};
}

Result<PreparedAllocationRelease, BindingError> OwningAllocation::prepare_release() {
  MEMSTRATA_TRY_VOID(begin_release());
  return PreparedAllocationRelease(*std::exchange(mechanism_, nullptr),
                                   *std::exchange(record_, nullptr));
}

Result<ReleaseOutcome, BindingError> OwningAllocation::release_now() {
  MEMSTRATA_TRY_VOID(begin_release());
  detail::MechanismRecord& mechanism = *std::exchange(mechanism_, nullptr);
  Result<ReleaseOutcome, BindingError> outcome =
      mechanism.release(*std::exchange(record_, nullptr));
  mechanism.settle(outcome->is_released() ? 1 : 0, 1);
  return outcome;
}

Result<DeferredReleaseDisposition, BindingError> OwningAllocation::release_deferred(
    DeferredReleaseQueue& queue) {
  MEMSTRATA_TRY_VOID(begin_release());
  PreparedAllocationRelease prepared(*std::exchange(mechanism_, nullptr),
                                     *std::exchange(record_, nullptr));
  return enqueue_or_quarantine(prepared, queue);
}

}  // namespace memstrata
