// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// One allocation as its allocator must be told of it again: the same address, size and alignment.
struct AllocationSpan {
  DeviceAddress address;
  Bytes bytes;
  Bytes alignment;

  [[nodiscard]] friend constexpr bool operator==(AllocationSpan, AllocationSpan) noexcept = default;
};

/// A sub-range of one live allocation.
struct AllocationCommitRange {
  AllocationSpan allocation;
  ByteRange range;
};

/// A batch that failed: nothing was committed, or `committed_ranges` from the front still are, if the mechanism
/// is not transactional.
struct BatchCommitFailure {
  MemoryError error;
  std::size_t committed_ranges;
};

/// Capability of an allocator: reserve address space and commit physical memory behind parts of it. Addresses
/// belong to the allocator that exposed the capability, and terminal release goes through that allocator.
/// Offsets and sizes are in bytes; mechanisms round outwards to their granule. A range of zero bytes, or one that
/// ends beyond its allocation, is InvalidRequest. Thread-safe.
class VirtualBacking {
 public:
  VirtualBacking() = default;
  VirtualBacking(const VirtualBacking&) = delete;
  VirtualBacking& operator=(const VirtualBacking&) = delete;
  VirtualBacking(VirtualBacking&&) = delete;
  VirtualBacking& operator=(VirtualBacking&&) = delete;
  virtual ~VirtualBacking() = default;

  /// Reserves one allocation of `bytes` and commits only `ranges` of it. On failure nothing is reserved.
  [[nodiscard]] virtual Result<DeviceAddress>
  allocate_committed(Bytes bytes, Bytes alignment, std::span<const ByteRange> ranges) = 0;
  /// Commits more of a live allocation; parts that are committed already stay as they are. On failure the range
  /// is as before.
  [[nodiscard]] virtual Result<void> commit(const AllocationSpan& allocation, ByteRange range) = 0;

  /// Commits a batch. The default goes in order, stops at the first failure and says how many ranges took
  /// effect; a mechanism that can do better commits all or none and then says 0.
  [[nodiscard]] virtual Result<void, BatchCommitFailure> commit_all(
      std::span<const AllocationCommitRange> ranges) {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (auto done = commit(ranges[i].allocation, ranges[i].range); !done) {
        return fail(BatchCommitFailure{.error = std::move(done).error(), .committed_ranges = i});
      }
    }
    return {};
  }

  /// How many bytes a batch would map: never less than what it then maps. Granules that several ranges touch are
  /// counted once; those that are committed already count too, since they may be gone by then.
  [[nodiscard]] virtual Result<Bytes> mapped_bytes(
      std::span<const AllocationCommitRange> ranges) = 0;
  /// The same for a whole allocation of that shape.
  [[nodiscard]] virtual Result<Bytes> mapped_bytes(Bytes bytes, Bytes alignment) = 0;

  /// Drops the physical memory behind a range and keeps its addresses. Only granules that lie wholly inside the
  /// range go; a range that ends with the allocation reaches its last granule. Returns the bytes whose last
  /// mapping went away, which may be 0. Not a release. On failure what went before the refusal stays gone, and
  /// `committed_bytes` says what is left.
  [[nodiscard]] virtual Result<Bytes> decommit(const AllocationSpan& allocation,
                                               ByteRange range) = 0;

  /// Bytes of the allocation that are backed now, private and shared; 0 for an unknown allocation.
  [[nodiscard]] virtual Bytes committed_bytes(const AllocationSpan& allocation) const noexcept = 0;
};

}  // namespace memstrata
