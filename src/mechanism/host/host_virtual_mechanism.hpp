// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "mechanism/host/turn.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/host_virtual_allocator.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"

namespace memstrata::host {

/// One live allocation: a part of a reservation. Span and start never change; the rest belongs to whoever has
/// the turn.
struct LiveAllocation {
  LiveAllocation(AllocationSpan described, PageBacking::Reservation memory, Bytes offset) noexcept
      : span(described), start(offset), reservation(std::move(memory)) {}

  const AllocationSpan span;
  const Bytes
      start;  ///< Offset of the allocation in its reservation; above 0 for large alignments.
  Turn turn;
  std::optional<PageBacking::Reservation> reservation;  ///< Nothing once it is released.
};

/// A live allocation and the turn to work on it.
class AllocationAccess {
 public:
  /// Waits for the turn.
  explicit AllocationAccess(std::shared_ptr<LiveAllocation> allocation) noexcept
      : allocation_(std::move(allocation)) {
    allocation_->turn.take();
  }

  AllocationAccess(AllocationAccess&&) noexcept = default;
  AllocationAccess& operator=(AllocationAccess&&) noexcept = delete;
  AllocationAccess(const AllocationAccess&) = delete;
  AllocationAccess& operator=(const AllocationAccess&) = delete;

  ~AllocationAccess() {
    if (allocation_ != nullptr) {
      allocation_->turn.give();
    }
  }

  [[nodiscard]] LiveAllocation& operator*() const noexcept { return *allocation_; }

  [[nodiscard]] LiveAllocation* operator->() const noexcept { return allocation_.get(); }

 private:
  std::shared_ptr<LiveAllocation> allocation_;
};

/// What `HostVirtualAllocator` does, for its three interfaces. Ranges of an allocation are turned into ranges of
/// its reservation ("granules") first, rounded outwards. Thread-safe.
class HostVirtualAllocator::Mechanism final : public VirtualBacking, public SharedMapping {
 public:
  explicit Mechanism(PageBacking backing);

  [[nodiscard]] const PageBacking& backing() const noexcept { return *backing_; }

  [[nodiscard]] std::size_t live_allocations() const noexcept;

  /// An allocation all of which is committed.
  [[nodiscard]] Result<DeviceAddress> allocate(Bytes bytes, Bytes alignment);
  [[nodiscard]] MechanismRelease release(const AllocationSpan& allocation) noexcept;

  // --- VirtualBacking ------------------------------------------------------------------------------------

  [[nodiscard]] Result<DeviceAddress>
  allocate_committed(Bytes bytes, Bytes alignment, std::span<const ByteRange> ranges) override;
  [[nodiscard]] Result<void> commit(const AllocationSpan& allocation, ByteRange range) override;
  [[nodiscard]] Result<void, BatchCommitFailure> commit_all(
      std::span<const AllocationCommitRange> ranges) override;
  [[nodiscard]] Result<Bytes> mapped_bytes(std::span<const AllocationCommitRange> ranges) override;
  [[nodiscard]] Result<Bytes> mapped_bytes(Bytes bytes, Bytes alignment) override;
  [[nodiscard]] Result<Bytes> decommit(const AllocationSpan& allocation, ByteRange range) override;
  [[nodiscard]] Bytes committed_bytes(const AllocationSpan& allocation) const noexcept override;

  // --- SharedMapping -------------------------------------------------------------------------------------

  [[nodiscard]] Result<std::shared_ptr<SharedDevicePrefix>> create_shared_prefix(
      Bytes bytes) override;
  [[nodiscard]] Result<Bytes> incremental_owned_bytes(
      const SharedDevicePrefix& prefix) const override;
  [[nodiscard]] Result<SharedPrefixCommitInfo> commit_shared_prefix(
      const SharedDevicePrefix& prefix,
      const AllocationSpan& allocation,
      Bytes offset) override;
  [[nodiscard]] Result<Bytes> break_shared(const AllocationSpan& allocation,
                                           ByteRange range) override;

 private:
  using Table = std::map<std::uint64_t, std::shared_ptr<LiveAllocation>>;

  /// The ranges of a batch that concern one allocation, as granules.
  struct Batch {
    std::shared_ptr<LiveAllocation> allocation;
    std::vector<ByteRange> granules;
  };

  /// The ranges of a batch by address, in which order turns are taken.
  using Batches = std::map<std::uint64_t, Batch>;

  [[nodiscard]] Bytes granule() const noexcept { return backing_->granularity(); }

  /// The live allocation of exactly this span, or null.
  [[nodiscard]] std::shared_ptr<LiveAllocation> look_up(const AllocationSpan& span) const noexcept;
  /// The same with its turn. Errors: InvalidRequest if there is none, or it went while this waited.
  [[nodiscard]] Result<AllocationAccess> access(const AllocationSpan& span) const;
  /// Whether the range is a part of the allocation. Errors: InvalidRequest.
  [[nodiscard]] static Result<void> check_range(const AllocationSpan& span, ByteRange range);

  /// The granules that `range` touches, in the reservation of an allocation that starts at `start`.
  [[nodiscard]] ByteRange outwards(Bytes start, ByteRange range) const noexcept;
  /// The granules that lie wholly inside `range`; the last one of the allocation ends with it.
  [[nodiscard]] ByteRange inwards(const LiveAllocation& allocation, ByteRange range) const noexcept;
  /// The maximal runs inside `range` that are mapped from prefixes.
  [[nodiscard]] std::vector<ByteRange> shared_runs(const PageBacking::Reservation& reservation,
                                                   ByteRange range) const;
  /// Bytes that are resident for the allocation: private, shared and retained.
  [[nodiscard]] Bytes held(const PageBacking::Reservation& reservation) const noexcept;

  /// Address space for `bytes`, the place of the allocation in it, and nothing committed.
  [[nodiscard]] Result<std::shared_ptr<LiveAllocation>> reserve(Bytes bytes, Bytes alignment);
  [[nodiscard]] Result<DeviceAddress> publish(std::shared_ptr<LiveAllocation> made);
  [[nodiscard]] Result<Batches> sort(std::span<const AllocationCommitRange> ranges) const;
  [[nodiscard]] Result<void> commit_batches(Batches& batches, Bytes requested);
  /// Unmaps `shared`, decommits `committed`, and adds what is gone to `gone`, stopping at the first refusal.
  [[nodiscard]] Result<void, VirtualMemoryError> give_back(PageBacking::Reservation& reservation,
                                                           std::span<const ByteRange> shared,
                                                           std::span<const ByteRange> committed,
                                                           Bytes& gone);

  const std::shared_ptr<PageBacking> backing_;
  mutable Mutex mutex_;
  Table live_ MEMSTRATA_GUARDED_BY(mutex_);
};

/// Sorts ranges and joins those that overlap or touch.
[[nodiscard]] std::vector<ByteRange> joined(std::vector<ByteRange> ranges);

}  // namespace memstrata::host
