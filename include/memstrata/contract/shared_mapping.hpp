// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// What a call added on the two independent axes: bytes owned (charged) and bytes mapped. A further mapping of a
/// prefix owns nothing more.
template <class T>
struct MappedAllocation {
  T allocation;
  Bytes additional_owned_bytes;
  Bytes newly_mapped_bytes;
};

/// The answer to one mapping of a shared prefix.
struct SharedPrefixCommitInfo {
  Bytes additional_owned_bytes;
  Bytes newly_mapped_bytes;
  std::size_t granules = 0;

  [[nodiscard]] friend constexpr bool operator==(SharedPrefixCommitInfo,
                                                 SharedPrefixCommitInfo) noexcept = default;
};

/// Physical bytes that are written once, sealed, and then mapped read-only into many allocations. They are
/// charged once, to whoever created them, and go back when this handle and every mapping are gone. Thread-safe.
class SharedDevicePrefix {
 public:
  SharedDevicePrefix() = default;
  SharedDevicePrefix(const SharedDevicePrefix&) = delete;
  SharedDevicePrefix& operator=(const SharedDevicePrefix&) = delete;
  SharedDevicePrefix(SharedDevicePrefix&&) = delete;
  SharedDevicePrefix& operator=(SharedDevicePrefix&&) = delete;
  virtual ~SharedDevicePrefix() = default;

  /// Where the creator writes the content; null once the prefix is sealed.
  [[nodiscard]] virtual DeviceAddress address() const noexcept = 0;
  /// Physical bytes behind the prefix.
  [[nodiscard]] virtual Bytes committed_physical_bytes() const noexcept = 0;
  /// Bytes that one mapping covers: the requested bytes rounded up to granules.
  [[nodiscard]] virtual Bytes mapped_bytes() const noexcept = 0;
  /// Bytes that the creator asked for.
  [[nodiscard]] virtual Bytes requested_bytes() const noexcept = 0;

  /// Ends writing: `address()` is unmapped and nobody can write the content any more. Mapping before it is
  /// refused. On failure the prefix is still writable.
  [[nodiscard]] virtual Result<void> seal() = 0;
  [[nodiscard]] virtual bool is_sealed() const noexcept = 0;

  /// Lets the creating mechanism recognise its own class before it looks inside; no proof of identity.
  [[nodiscard]] virtual const void* type_tag() const noexcept = 0;
};

/// Capability of an allocator: share read-only prefixes between allocations. Independent of `VirtualBacking`.
/// Thread-safe.
class SharedMapping {
 public:
  SharedMapping() = default;
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;
  SharedMapping(SharedMapping&&) = delete;
  SharedMapping& operator=(SharedMapping&&) = delete;
  virtual ~SharedMapping() = default;

  /// Physical memory for a prefix of `bytes`, charged here and only here.
  [[nodiscard]] virtual Result<std::shared_ptr<SharedDevicePrefix>> create_shared_prefix(
      Bytes bytes) = 0;

  /// What one more mapping would add to what is owned: 0 for a prefix that this very mechanism can map.
  /// Errors: InvalidRequest for a prefix of another device, authority or maker, before any cost is quoted.
  [[nodiscard]] virtual Result<Bytes> incremental_owned_bytes(
      const SharedDevicePrefix& prefix) const = 0;

  /// Maps the whole prefix read-only into a live allocation at `offset`, which is a multiple of the granule and
  /// where nothing is committed. On failure the allocation holds nothing that this call mapped.
  [[nodiscard]] virtual Result<SharedPrefixCommitInfo> commit_shared_prefix(
      const SharedDevicePrefix& prefix,
      const AllocationSpan& allocation,
      Bytes offset) = 0;

  /// Replaces the shared granules under `range` by private copies, which may then be written. Copy-on-write by
  /// hand: the bytes are charged before they are copied. Returns the bytes that became private.
  [[nodiscard]] virtual Result<Bytes> break_shared(const AllocationSpan& allocation,
                                                   ByteRange range) = 0;
};

}  // namespace memstrata
