// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/release_state.hpp"

namespace memstrata {

class BindingRegistry;
class OwningAllocation;

namespace detail {
struct AllocationRecord;
class MechanismRecord;
}  // namespace detail

/// Final ownership of one allocation, detached from its owner, whose memory is not released yet. It keeps the
/// allocator, the authority and the context alive and counts as an active operation, so that neither the mechanism
/// can be removed nor the end of its context be confirmed.
///
/// It ends in exactly one of `execute`, `quarantine` and `quarantine_device_lost`; destroying it before is a
/// quarantine with `abandoned_request`, never a release. Move-only; a moved-from one is empty and only `empty()` may
/// be asked, anything else stops the program. 16 bytes. Thread-compatible; may move between threads.
class PreparedAllocationRelease {
 public:
  PreparedAllocationRelease(PreparedAllocationRelease&& other) noexcept
      : mechanism_(std::exchange(other.mechanism_, nullptr)),
        record_(std::exchange(other.record_, nullptr)) {}

  /// What the target held before is abandoned.
  PreparedAllocationRelease& operator=(PreparedAllocationRelease&& other) noexcept;
  PreparedAllocationRelease(const PreparedAllocationRelease&) = delete;
  PreparedAllocationRelease& operator=(const PreparedAllocationRelease&) = delete;

  /// Takes at most the mechanism's lock; calls nobody, unless it holds the last reference to the mechanism.
  ~PreparedAllocationRelease() {
    if (record_ != nullptr) {
      abandon();
    }
  }

  /// Whether it was settled or moved from.
  [[nodiscard]] bool empty() const noexcept { return record_ == nullptr; }

  [[nodiscard]] AllocationIdentity identity() const noexcept;
  [[nodiscard]] BindingIdentity binding_identity() const noexcept;
  [[nodiscard]] DeviceKey device() const noexcept;
  [[nodiscard]] AuthorityIdentity authority() const noexcept;
  [[nodiscard]] ProviderContextIdentity provider_context() const noexcept;
  /// Address, size and alignment, as the allocator knows them.
  [[nodiscard]] AllocationSpan span() const noexcept;

  /// Always queued: what is settled is empty.
  [[nodiscard]] AllocationReleaseState state() const noexcept;

  /// Calls the allocator with no lock held, unless the device is lost by then, and settles the books. Whatever
  /// comes of it, this is empty afterwards; what was not released is in quarantine. No allocation of memory.
  ReleaseOutcome execute() noexcept;

  /// Settles it without a call of the allocator.
  ReleaseOutcome quarantine(UnexecutedReason reason) noexcept;

  /// The same for a queue that learns of the loss of a device before the registry does.
  ReleaseOutcome quarantine_device_lost() noexcept;

 private:
  friend class BindingRegistry;
  friend class MemoryBinding;
  friend class OwningAllocation;
  friend class ReleaseBatch;

  PreparedAllocationRelease(detail::MechanismRecord& mechanism,
                            detail::AllocationRecord& record) noexcept
      : mechanism_(&mechanism), record_(&record) {}

  ReleaseOutcome settle_unexecuted(AllocationReleaseEvent event, QuarantineReason reason) noexcept;
  void abandon() noexcept;

  detail::MechanismRecord* mechanism_;
  detail::AllocationRecord* record_;  // null when empty
};

/// Executes many prepared releases and settles the books of a mechanism once for every run of its requests. Until
/// then they count as queued. Single-threaded.
class ReleaseBatch {
 public:
  ReleaseBatch() noexcept = default;
  ReleaseBatch(const ReleaseBatch&) = delete;
  ReleaseBatch& operator=(const ReleaseBatch&) = delete;
  ReleaseBatch(ReleaseBatch&&) = delete;
  ReleaseBatch& operator=(ReleaseBatch&&) = delete;

  ~ReleaseBatch() { settle(); }

  /// As `PreparedAllocationRelease::execute`, which is a batch of one.
  ReleaseOutcome execute(PreparedAllocationRelease& request) noexcept;

  /// The releases so far end as operations. The mechanism may end with them.
  void settle() noexcept;

 private:
  detail::MechanismRecord* mechanism_ = nullptr;
  std::uint64_t released_ = 0;
  std::uint64_t handled_ = 0;
};

/// Where a provider keeps releases until its device is done with the memory. Owned by the provider or its context.
/// Thread-safe.
class DeferredReleaseQueue {
 public:
  DeferredReleaseQueue() = default;
  DeferredReleaseQueue(const DeferredReleaseQueue&) = delete;
  DeferredReleaseQueue& operator=(const DeferredReleaseQueue&) = delete;
  DeferredReleaseQueue(DeferredReleaseQueue&&) = delete;
  DeferredReleaseQueue& operator=(DeferredReleaseQueue&&) = delete;
  virtual ~DeferredReleaseQueue() = default;

  /// Takes the request and returns nothing, or leaves the very same request with the caller and says why. It does
  /// not wait for the device. Called with no lock of the stack held. It may throw: that counts as `refused` if the
  /// request is still there.
  [[nodiscard]] virtual std::optional<DeferredEnqueueRejection> enqueue(
      PreparedAllocationRelease&& request) = 0;

  /// Releases that were taken and are not settled.
  [[nodiscard]] virtual std::size_t pending() const noexcept { return 0; }
};

/// What became of a release that was given to a queue: it is queued, or the queue refused and it is in quarantine.
class DeferredReleaseDisposition {
 public:
  [[nodiscard]] static DeferredReleaseDisposition queued(AllocationIdentity identity) noexcept {
    return {identity, std::nullopt, std::nullopt};
  }

  /// `outcome` is absent if the queue refused but had destroyed the request: the record says `abandoned_request`.
  [[nodiscard]] static DeferredReleaseDisposition quarantined(
      AllocationIdentity identity,
      DeferredEnqueueRejection rejection,
      std::optional<ReleaseOutcome> outcome) noexcept {
    return {identity, rejection, std::move(outcome)};
  }

  [[nodiscard]] const AllocationIdentity& identity() const noexcept { return identity_; }

  [[nodiscard]] bool is_queued() const noexcept { return !rejection_.has_value(); }

  [[nodiscard]] AllocationReleaseState state() const noexcept {
    if (is_queued()) {
      return AllocationReleaseState::queued;
    }
    return outcome_ ? outcome_->state() : AllocationReleaseState::quarantined;
  }

  [[nodiscard]] const std::optional<DeferredEnqueueRejection>& rejection() const noexcept {
    return rejection_;
  }

  [[nodiscard]] const std::optional<ReleaseOutcome>& outcome() const noexcept { return outcome_; }

 private:
  DeferredReleaseDisposition(AllocationIdentity identity,
                             std::optional<DeferredEnqueueRejection> rejection,
                             std::optional<ReleaseOutcome> outcome) noexcept
      : identity_(identity), rejection_(rejection), outcome_(std::move(outcome)) {}

  AllocationIdentity identity_;
  std::optional<DeferredEnqueueRejection> rejection_;
  std::optional<ReleaseOutcome> outcome_;
};

/// Offers `request` to `queue`. Refused, or left behind by a queue that claims to have taken it: it is in quarantine.
/// `request` is empty afterwards in every case.
DeferredReleaseDisposition enqueue_or_quarantine(PreparedAllocationRelease& request,
                                                 DeferredReleaseQueue& queue) noexcept;

}  // namespace memstrata
