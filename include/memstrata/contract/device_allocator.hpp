// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memstrata/contract/release.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// The ordinary allocator: allocate and release, on one device. It is trusted, outlives everything it allocated,
/// and may offer optional capabilities. Thread-safe.
class DeviceAllocator {
 public:
  DeviceAllocator() = default;
  DeviceAllocator(const DeviceAllocator&) = delete;
  DeviceAllocator& operator=(const DeviceAllocator&) = delete;
  DeviceAllocator(DeviceAllocator&&) = delete;
  DeviceAllocator& operator=(DeviceAllocator&&) = delete;
  virtual ~DeviceAllocator() = default;

  /// A unique, live, aligned range of `bytes`. Zero bytes are legal and give a usable address that is not null.
  /// On failure nothing is owned.
  /// Errors: InvalidRequest if `alignment` is not a power of two or the size cannot be represented;
  /// AllocationFailed if the system or driver refuses.
  [[nodiscard]] virtual Result<DeviceAddress> allocate(Bytes bytes, Bytes alignment) = 0;

  /// The one terminal release, of a live allocation of this very mechanism with the same size and alignment,
  /// and never twice. "Unchanged" means that nothing at all happened; anything in between is "partial". It is not
  /// expected to throw; where foreign code does, whoever owns the allocation treats all of it as held.
  [[nodiscard]] virtual MechanismRelease release(const AllocationSpan& allocation) = 0;

  /// The device; never changes, needs no lock.
  [[nodiscard]] virtual DeviceKey device() const noexcept = 0;

  /// Whether physical memory is mapped lazily *and* each commit is charged to a governor. A promise about
  /// accounting, independent of the capabilities.
  [[nodiscard]] virtual bool commits_on_demand() const noexcept { return false; }

  /// The capability, of the same mechanism and device, or null. The answer never changes. Not owned.
  [[nodiscard]] virtual VirtualBacking* virtual_backing() noexcept { return nullptr; }

  [[nodiscard]] virtual SharedMapping* shared_mapping() noexcept { return nullptr; }
};

}  // namespace memstrata
