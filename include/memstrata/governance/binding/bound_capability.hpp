// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <utility>

#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/mechanism_ref.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"

namespace memstrata {

namespace detail {
struct PrefixKeepsake;
}  // namespace detail

/// A sub-range of one owned allocation, which outlives the call it is for.
struct BoundCommitRange {
  const OwningAllocation* allocation;
  ByteRange range;
};

/// A batch that failed. `committed_ranges` from the front took effect; none if the mechanism is transactional or
/// was not called.
struct BoundBatchFailure {
  BindingError error;
  std::size_t committed_ranges;
};

/// The virtual-backing capability of a mechanism, for the allocations of one binding.
///
/// Every call is an active operation of the mechanism and keeps the allocations it uses from being released while it
/// runs. Errors of every call, in this order: InactiveMechanism or DeviceLost; BindingMismatch; StaleAllocation;
/// ViewOutOfBounds for a range that ends beyond its allocation; all of them before the mechanism is called. Then
/// the mechanism's own MemoryError, or CallbackFailed if it threw. Copies are the same. Thread-safe.
class BoundVirtualBacking {
 public:
  [[nodiscard]] BindingIdentity binding_identity() const noexcept;

  /// Reserves one allocation and commits only `ranges` of it. On failure nothing is reserved and nothing recorded.
  [[nodiscard]] Result<OwningAllocation, BindingError>
  allocate_committed(Bytes bytes, Bytes alignment, std::span<const ByteRange> ranges) const;

  [[nodiscard]] Result<void, BindingError> commit(const OwningAllocation& allocation,
                                                  ByteRange range) const;
  /// All ranges are checked before the mechanism is called.
  [[nodiscard]] Result<void, BoundBatchFailure> commit_all(
      std::span<const BoundCommitRange> ranges) const;

  /// How many bytes the batch would map; never less than it then maps.
  [[nodiscard]] Result<Bytes, BindingError> mapped_bytes(
      std::span<const BoundCommitRange> ranges) const;
  [[nodiscard]] Result<Bytes, BindingError> mapped_bytes(Bytes bytes, Bytes alignment) const;

  /// Drops physical memory and keeps the addresses; returns the bytes whose last mapping went. Not a release.
  [[nodiscard]] Result<Bytes, BindingError> decommit(const OwningAllocation& allocation,
                                                     ByteRange range) const;
  [[nodiscard]] Result<Bytes, BindingError> committed_bytes(
      const OwningAllocation& allocation) const;

 private:
  friend class MemoryBinding;

  BoundVirtualBacking(detail::MechanismRef mechanism, std::uint64_t serial) noexcept
      : mechanism_(std::move(mechanism)), serial_(serial) {}

  detail::MechanismRef mechanism_;
  std::uint64_t serial_;
};

/// A shared prefix with its binding: destroying it destroys the prefix first, while the allocator and its context
/// are alive. After the loss of the device the prefix is kept until the end of the context is confirmed, because
/// its teardown would call the device. Move-only. Thread-compatible.
class BoundSharedPrefix {
 public:
  BoundSharedPrefix(BoundSharedPrefix&& other) noexcept;
  BoundSharedPrefix& operator=(BoundSharedPrefix&& other) noexcept;
  BoundSharedPrefix(const BoundSharedPrefix&) = delete;
  BoundSharedPrefix& operator=(const BoundSharedPrefix&) = delete;
  ~BoundSharedPrefix();

  [[nodiscard]] BindingIdentity binding_identity() const noexcept;
  /// Where the creator writes; null once sealed.
  [[nodiscard]] DeviceAddress address() const noexcept;
  [[nodiscard]] Bytes committed_physical_bytes() const noexcept;
  [[nodiscard]] Bytes mapped_bytes() const noexcept;
  [[nodiscard]] Bytes requested_bytes() const noexcept;
  [[nodiscard]] bool is_sealed() const noexcept;
  /// Ends writing; mapping before it is refused. Errors: the lifecycle; the mechanism's own.
  [[nodiscard]] Result<void, BindingError> seal() const;

 private:
  friend class BoundSharedMapping;

  BoundSharedPrefix(detail::MechanismRef mechanism,
                    std::uint64_t serial,
                    std::list<detail::PrefixKeepsake> prefix) noexcept;

  [[nodiscard]] SharedDevicePrefix& prefix() const noexcept;
  void drop() noexcept;

  detail::MechanismRef mechanism_;  // outlives the prefix
  std::uint64_t serial_;
  std::list<detail::PrefixKeepsake> prefix_;  // one, or none when moved from
};

/// The shared-mapping capability of a mechanism, for the prefixes and allocations of one binding. Errors and threads
/// as for `BoundVirtualBacking`; a prefix of another binding is refused before any cost is quoted.
class BoundSharedMapping {
 public:
  [[nodiscard]] BindingIdentity binding_identity() const noexcept;

  /// Physical memory for a prefix of `bytes`, charged here and only here.
  [[nodiscard]] Result<BoundSharedPrefix, BindingError> create_shared_prefix(Bytes bytes) const;
  /// What one more mapping would add to what is owned.
  [[nodiscard]] Result<Bytes, BindingError> incremental_owned_bytes(
      const BoundSharedPrefix& prefix) const;
  /// Maps the sealed prefix read-only; on failure the allocation holds nothing that this call mapped.
  [[nodiscard]] Result<SharedPrefixCommitInfo, BindingError> commit_shared_prefix(
      const BoundSharedPrefix& prefix,
      const OwningAllocation& allocation,
      Bytes offset) const;
  /// Replaces shared granules by private copies; returns the bytes that became private.
  [[nodiscard]] Result<Bytes, BindingError> break_shared(const OwningAllocation& allocation,
                                                         ByteRange range) const;

 private:
  friend class MemoryBinding;

  BoundSharedMapping(detail::MechanismRef mechanism, std::uint64_t serial) noexcept
      : mechanism_(std::move(mechanism)), serial_(serial) {}

  [[nodiscard]] Result<void, BindingError> check_prefix(const BoundSharedPrefix& prefix) const;

  detail::MechanismRef mechanism_;
  std::uint64_t serial_;
};

}  // namespace memstrata
