// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host {

/// Ordinary memory of the process: aligned, and committed when it is allocated. It has no capability and charges
/// nobody. It knows its live allocations, so that a release of anything else is refused instead of corrupting
/// the heap. Destruction gives back what is still live. Thread-safe.
class HostAllocator final : public DeviceAllocator {
 public:
  /// Blocks from here on are filled in by the kernel before `allocate` returns, so that a lack of memory is an
  /// error there and not a fault later; smaller ones come from pages that the heap has in use anyway.
  static constexpr Bytes populate_from{Bytes{1} * 65536};

  /// On this machine's kernel.
  HostAllocator();
  /// On the kernel or a double of it; not null.
  explicit HostAllocator(std::shared_ptr<SystemCalls> system_calls);
  HostAllocator(const HostAllocator&) = delete;
  HostAllocator& operator=(const HostAllocator&) = delete;
  HostAllocator(HostAllocator&&) = delete;
  HostAllocator& operator=(HostAllocator&&) = delete;
  ~HostAllocator() override;

  /// Memory of `bytes`, or of one byte for zero. Its content is unspecified.
  /// Errors: InvalidRequest for an alignment that is not a power of two, and where rounding up to it overflows
  /// the address space; AllocationFailed if the system refuses, with the call and its code where there are some.
  [[nodiscard]] Result<DeviceAddress> allocate(Bytes bytes, Bytes alignment) override;

  /// Gives one live allocation back. Complete with nothing unmapped, because the heap keeps its pages.
  /// Anything but the exact address, size and alignment of a live allocation is answered by "unchanged", and so
  /// is a second release.
  [[nodiscard]] MechanismRelease release(const AllocationSpan& allocation) noexcept override;

  [[nodiscard]] DeviceKey device() const noexcept override { return DeviceKey::host(); }

  /// Allocations that were not released yet.
  [[nodiscard]] std::size_t live_allocations() const noexcept;

 private:
  class Table;

  std::shared_ptr<SystemCalls> system_calls_;
  std::unique_ptr<Table> table_;
};

}  // namespace memstrata::host
