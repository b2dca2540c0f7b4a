// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"

namespace memstrata {

namespace detail {
struct OwnedAccess;
}

/// Part of an allocation, for somebody who does not own it. While a view exists the allocation cannot be released;
/// its address is handed out by `MemoryBinding::with_view` only, after it was checked. A view may outlive the owner
/// and is then refused as stale. Each copy counts. Thread-compatible; copies may live on other threads. 40 bytes.
class OwnedView {
 public:
  OwnedView(const OwnedView& other) noexcept;
  OwnedView& operator=(const OwnedView& other) noexcept;

  OwnedView(OwnedView&& other) noexcept
      : mechanism_(std::exchange(other.mechanism_, nullptr)),
        record_(std::exchange(other.record_, nullptr)),
        generation_(other.generation_),
        range_(other.range_) {}

  OwnedView& operator=(OwnedView&& other) noexcept;

  /// Only counts down; calls nobody, unless it holds the last reference to the mechanism.
  ~OwnedView() {
    if (record_ != nullptr) {
      end();
    }
  }

  /// Bytes of the view.
  [[nodiscard]] Bytes size() const noexcept { return range_.size; }

  /// Where the view begins in its allocation.
  [[nodiscard]] Bytes offset() const noexcept { return range_.offset; }

  [[nodiscard]] bool is_empty() const noexcept { return range_.empty(); }

  /// Of the allocation as it was when the view was made.
  [[nodiscard]] AllocationIdentity identity() const noexcept;

 private:
  friend class MemoryBinding;
  friend class OwningAllocation;

  /// Takes over one pin that was counted already.
  OwnedView(detail::MechanismRecord& mechanism,
            detail::AllocationRecord& record,
            std::uint64_t generation,
            ByteRange range) noexcept
      : mechanism_(&mechanism), record_(&record), generation_(generation), range_(range) {}

  void end() noexcept;

  detail::MechanismRecord* mechanism_;
  detail::AllocationRecord* record_;  // null when moved from
  std::uint64_t generation_;
  ByteRange range_;
};

/// Where a view lies, for the time of one `with_view`.
struct ValidatedMemoryView {
  DeviceAddress address;
  Bytes bytes;
};

/// The sole owner of one allocation. It ends with one release; each of them leaves the owner as it was when it
/// fails, with nothing changed and nothing queued.
///
/// Destroying it without a release never frees, queues, waits or calls anybody: the allocation goes to quarantine
/// with `owner_dropped`, where it is charged and visible until it is reclaimed or discharged. After the loss of the
/// device it stays on the mechanism's books as live until the end of the context is confirmed.
///
/// Move-only; a moved-from or released owner is empty: only `empty()` may be asked, anything else stops the program.
/// Assigning to an owner first does to the old allocation what its destructor would. 16 bytes. Thread-compatible.
class OwningAllocation {
 public:
  OwningAllocation(OwningAllocation&& other) noexcept
      : mechanism_(std::exchange(other.mechanism_, nullptr)),
        record_(std::exchange(other.record_, nullptr)) {}

  OwningAllocation& operator=(OwningAllocation&& other) noexcept;
  OwningAllocation(const OwningAllocation&) = delete;
  OwningAllocation& operator=(const OwningAllocation&) = delete;

  ~OwningAllocation() {
    if (record_ != nullptr) {
      drop();
    }
  }

  /// Whether it was released, disowned or moved from.
  [[nodiscard]] bool empty() const noexcept { return record_ == nullptr; }

  [[nodiscard]] AllocationIdentity identity() const noexcept;
  [[nodiscard]] BindingIdentity binding_identity() const noexcept;
  /// Address, size and alignment. The stack never follows the address.
  [[nodiscard]] AllocationSpan span() const noexcept;

  [[nodiscard]] DeviceAddress address() const noexcept { return span().address; }

  [[nodiscard]] Bytes size() const noexcept { return span().bytes; }

  [[nodiscard]] bool is_empty() const noexcept { return size() == Bytes{}; }

  [[nodiscard]] Bytes alignment() const noexcept { return span().alignment; }

  /// Live for an owner that is not empty.
  [[nodiscard]] AllocationReleaseState state() const noexcept;

  /// A view of `size` bytes at `offset`. Errors, in this order: ViewOutOfBounds; DeviceLost or InactiveMechanism.
  [[nodiscard]] Result<OwnedView, BindingError> view(Bytes offset, Bytes size) const;

  /// Views, and calls in flight that use the allocation.
  [[nodiscard]] std::uint64_t outstanding_views() const noexcept;

  /// Detaches final ownership for a release that comes later, and empties this. Errors, in this order: DeviceLost or
  /// InactiveMechanism; OutstandingViews. Constant time, no allocation of memory.
  [[nodiscard]] Result<PreparedAllocationRelease, BindingError> prepare_release();

  /// Prepares and executes. Errors as above; what the allocator did not complete is an outcome and not an error.
  [[nodiscard]] Result<ReleaseOutcome, BindingError> release_now();

  /// Prepares and gives to `queue`. Errors as above. A refusal by the queue is a disposition and not an error: the
  /// allocation is then in quarantine and its allocator was not called.
  [[nodiscard]] Result<DeferredReleaseDisposition, BindingError> release_deferred(
      DeferredReleaseQueue& queue);

 private:
  friend class BoundVirtualBacking;
  friend class MemoryBinding;
  friend struct detail::OwnedAccess;

  /// Takes over a record that refers to its owner already.
  OwningAllocation(detail::MechanismRecord& mechanism, detail::AllocationRecord& record) noexcept
      : mechanism_(&mechanism), record_(&record) {}

  void verify_owns() const noexcept;
  /// The release begins: the record is queued and this still refers to it.
  [[nodiscard]] Result<void, BindingError> begin_release();
  void drop() noexcept;

  detail::MechanismRecord* mechanism_;
  detail::AllocationRecord* record_;  // null when empty
};

}  // namespace memstrata
