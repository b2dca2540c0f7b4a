// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"

namespace memstrata::host {

/// Host memory with both capabilities: allocations reserve address space and commit any ranges of it, and sealed
/// prefixes are mapped read-only into them. Every allocation is a reservation of its own over one `PageBacking`.
///
/// With a governor in the options each byte is leased before it is committed and settled after it is gone, and
/// `commits_on_demand()` is true; without one nobody is charged. A prefix is charged once, to whoever creates
/// it, until its handle and every mapping are gone.
///
/// Thread-safe. Calls for one allocation take turns; calls for different allocations only share a short look-up.
/// The governor may call back, but not into the allocation, or the batch of them, that it is asked for. Prefix
/// handles may outlive the allocator; destruction gives back every allocation that is still live.
class HostVirtualAllocator final : public DeviceAllocator {
 public:
  /// An allocator over a backing with these options.
  /// Errors: those of `PageBacking::create`.
  [[nodiscard]] static Result<std::unique_ptr<HostVirtualAllocator>, VirtualMemoryError> create(
      PageBackingOptions options = {});

  HostVirtualAllocator(const HostVirtualAllocator&) = delete;
  HostVirtualAllocator& operator=(const HostVirtualAllocator&) = delete;
  HostVirtualAllocator(HostVirtualAllocator&&) = delete;
  HostVirtualAllocator& operator=(HostVirtualAllocator&&) = delete;
  ~HostVirtualAllocator() override;

  // --- DeviceAllocator -----------------------------------------------------------------------------------

  /// An allocation all of which is committed; zero bytes give one granule. It reads as zero.
  /// Errors: InvalidRequest for the shape; those of the governor; AllocationFailed for the kernel and its budget
  /// of mappings, with the call and its code where there are some.
  [[nodiscard]] Result<DeviceAddress> allocate(Bytes bytes, Bytes alignment) override;

  /// Gives everything behind the allocation back and then its addresses. The answer counts what is gone: private
  /// bytes, and bytes of prefixes whose last reference this was.
  /// Unchanged: the span is no live allocation, or the kernel refused the first step. Partial: the kernel refused
  /// a later step; what is left stays charged and live, and the same release may be tried again.
  [[nodiscard]] MechanismRelease release(const AllocationSpan& allocation) noexcept override;

  [[nodiscard]] DeviceKey device() const noexcept override { return DeviceKey::host(); }

  /// True only with a governor.
  [[nodiscard]] bool commits_on_demand() const noexcept override;

  /// Commits all ranges of a batch or none, over any number of allocations, and so says 0 on failure. Should the
  /// kernel refuse even to undo, what it kept counts as committed and charged. Empty ranges are InvalidRequest.
  ///
  /// A decommit that fails midway leaves the runs before the refusal gone and the others as they were, which
  /// `committed_bytes` shows. A range that ends with the allocation reaches its last granule.
  [[nodiscard]] VirtualBacking* virtual_backing() noexcept override;

  /// A prefix is mapped where nothing is committed. `break_shared` rounds outwards and works on one run of shared
  /// granules at a time, so that it is all or nothing; two runs under one range are InvalidRequest.
  [[nodiscard]] SharedMapping* shared_mapping() noexcept override;

  // --- Queries -------------------------------------------------------------------------------------------

  /// Unit of commit, decommit and mapping.
  [[nodiscard]] Bytes granularity() const noexcept;

  /// The backing below, for its budgets and for what it could not give back yet.
  [[nodiscard]] const PageBacking& backing() const noexcept;

  /// Allocations that were not released yet.
  [[nodiscard]] std::size_t live_allocations() const noexcept;

 private:
  class Mechanism;

  explicit HostVirtualAllocator(std::unique_ptr<Mechanism> mechanism) noexcept;

  std::unique_ptr<Mechanism> mechanism_;
};

}  // namespace memstrata::host
