// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/binding/deferred_release.hpp"

#include <cstdint>
#include <optional>
#include <utility>

#include "governance/binding/mechanism_record.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/release_state.hpp"

namespace memstrata {
namespace {

using Event = AllocationReleaseEvent;
using Rejection = DeferredEnqueueRejection;

/// Releases that a batch leaves unsettled: they count as queued while their records are used again, and the count has
/// an end.
constexpr std::uint64_t most_unsettled = 4096;

/// The queue's answer; an exception is a refusal. Nothing means that it says that it took the request.
std::optional<Rejection> offer(PreparedAllocationRelease& request,
                               DeferredReleaseQueue& queue) noexcept {
  try {
    return queue.enqueue(std::move(request));
  } catch (
      ...) {  // NOLINT(bugprone-empty-catch): whatever foreign code throws, the request decides what happened
    return Rejection::refused;
  }
}

}  // namespace

PreparedAllocationRelease& PreparedAllocationRelease::operator=(
    PreparedAllocationRelease&& other) noexcept {
  if (this != &other) {
    abandon();
    mechanism_ = std::exchange(other.mechanism_, nullptr);
    record_ = std::exchange(other.record_, nullptr);
  }
  return *this;
}

void PreparedAllocationRelease::abandon() noexcept {
  if (record_ != nullptr) {
    static_cast<void>(quarantine(UnexecutedReason::abandoned()));
  }
}

AllocationIdentity PreparedAllocationRelease::identity() const noexcept {
  MEMSTRATA_VERIFY(record_ != nullptr, "a prepared release was used after it was settled");
  return mechanism_->identity_of(*record_);
}

BindingIdentity PreparedAllocationRelease::binding_identity() const noexcept {
  return identity().binding;
}

DeviceKey PreparedAllocationRelease::device() const noexcept {
  return binding_identity().device;
}

AuthorityIdentity PreparedAllocationRelease::authority() const noexcept {
  return binding_identity().authority;
}

ProviderContextIdentity PreparedAllocationRelease::provider_context() const noexcept {
  return binding_identity().context;
}

AllocationSpan PreparedAllocationRelease::span() const noexcept {
  MEMSTRATA_VERIFY(record_ != nullptr, "a prepared release was used after it was settled");
  return record_->span();
}

AllocationReleaseState PreparedAllocationRelease::state() const noexcept {
  MEMSTRATA_VERIFY(record_ != nullptr, "a prepared release was used after it was settled");
  return record_->state().state;
}

ReleaseOutcome PreparedAllocationRelease::execute() noexcept {
  ReleaseBatch batch;
  return batch.execute(*this);
}

ReleaseOutcome ReleaseBatch::execute(PreparedAllocationRelease& request) noexcept {
  MEMSTRATA_VERIFY(request.record_ != nullptr,
                   "a prepared release was executed after it was settled");
  if (request.mechanism_ != mechanism_) {
    settle();
  }
  mechanism_ = std::exchange(request.mechanism_, nullptr);
  ReleaseOutcome outcome = mechanism_->release(*std::exchange(request.record_, nullptr));
  released_ += outcome.is_released() ? 1U : 0U;
  if (++handled_ == most_unsettled) {
    settle();
  }
  return outcome;
}

void ReleaseBatch::settle() noexcept {
  if (detail::MechanismRecord* const mechanism = std::exchange(mechanism_, nullptr)) {
    mechanism->settle(std::exchange(released_, 0), std::exchange(handled_, 0));
  }
}

ReleaseOutcome PreparedAllocationRelease::settle_unexecuted(Event event,
                                                            QuarantineReason reason) noexcept {
  MEMSTRATA_VERIFY(record_ != nullptr, "a prepared release was settled twice");
  detail::MechanismRecord& mechanism = *std::exchange(mechanism_, nullptr);
  ReleaseOutcome outcome =
      mechanism.retain_prepared(*std::exchange(record_, nullptr), event, reason);
  mechanism.settle(0, 1);
  return outcome;
}

ReleaseOutcome PreparedAllocationRelease::quarantine(UnexecutedReason reason) noexcept {
  return settle_unexecuted(reason.event(), reason.reason());
}

ReleaseOutcome PreparedAllocationRelease::quarantine_device_lost() noexcept {
  return settle_unexecuted(Event::lose_device,
                           QuarantineReason(QuarantineReason::Kind::device_lost));
}

DeferredReleaseDisposition enqueue_or_quarantine(PreparedAllocationRelease& request,
                                                 DeferredReleaseQueue& queue) noexcept {
  const AllocationIdentity identity = request.identity();
  const std::optional<Rejection> refused = offer(request, queue);
  if (!refused && request.empty()) {
    return DeferredReleaseDisposition::queued(identity);
  }
  // A queue that claims to have taken the request and left it here has refused it.
  const Rejection why = refused.value_or(Rejection::refused);
  if (request.empty()) {
    return DeferredReleaseDisposition::quarantined(identity, why, std::nullopt);
  }
  return DeferredReleaseDisposition::quarantined(
      identity, why, request.quarantine(UnexecutedReason::enqueue_rejected(why)));
}

}  // namespace memstrata
