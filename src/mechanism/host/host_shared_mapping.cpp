// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "mechanism/host/host_shared_prefix.hpp"
#include "mechanism/host/host_virtual_mechanism.hpp"
#include "mechanism/host/memory_refusal.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/host_virtual_allocator.hpp"

namespace memstrata::host {

Result<std::shared_ptr<SharedDevicePrefix>> HostVirtualAllocator::Mechanism::create_shared_prefix(
    Bytes bytes) {
  if (bytes == Bytes{}) {
    return fail(malformed(bytes, "a prefix of 0 bytes"));
  }
  const std::optional<Bytes> whole = align_up(bytes, granule());
  if (!whole) {
    return fail(malformed(bytes, "rounding up to granules overflows the address space"));
  }
  return unless_out_of_memory(bytes, [&]() -> Result<std::shared_ptr<SharedDevicePrefix>> {
    auto builder = backing_->create_prefix(*whole);
    if (!builder) {
      return fail(refusal(std::move(builder).error(), bytes));
    }
    return std::make_shared<HostSharedPrefix>(backing_, std::move(*builder), bytes);
  });
}

Result<Bytes> HostVirtualAllocator::Mechanism::incremental_owned_bytes(
    const SharedDevicePrefix& prefix) const {
  if (HostSharedPrefix::recognise(prefix, backing_) == nullptr) {
    return fail(malformed(prefix.requested_bytes(), "the prefix was made by another allocator"));
  }
  return Bytes{};
}

Result<SharedPrefixCommitInfo> HostVirtualAllocator::Mechanism::commit_shared_prefix(
    const SharedDevicePrefix& prefix,
    const AllocationSpan& allocation,
    Bytes offset) {
  const HostSharedPrefix* const own = HostSharedPrefix::recognise(prefix, backing_);
  if (own == nullptr) {
    return fail(malformed(prefix.requested_bytes(), "the prefix was made by another allocator"));
  }
  const Bytes size = own->mapped_bytes();
  if (!own->is_sealed()) {
    return fail(malformed(size, "the prefix is not sealed yet"));
  }
  const std::optional<Bytes> end = checked_add(offset, size);
  const std::optional<Bytes> room = align_up(allocation.bytes, granule());
  if (!end || !room || *end > *room) {
    return fail(malformed(size, "the prefix ends beyond the allocation"));
  }
  return unless_out_of_memory(size, [&]() -> Result<SharedPrefixCommitInfo> {
    MEMSTRATA_TRY(const AllocationAccess live, access(allocation));
    auto mapped = backing_->map_shared(
        *live->reservation, live->start + offset, own->sealed(), {.offset = {}, .size = size});
    if (!mapped) {
      return fail(refusal(std::move(mapped).error(), size));
    }
    return SharedPrefixCommitInfo{.additional_owned_bytes = {},
                                  .newly_mapped_bytes = size,
                                  .granules = size.value / granule().value};
  });
}

Result<Bytes> HostVirtualAllocator::Mechanism::break_shared(const AllocationSpan& allocation,
                                                            ByteRange range) {
  return unless_out_of_memory(range.size, [&]() -> Result<Bytes> {
    MEMSTRATA_TRY_VOID(check_range(allocation, range));
    MEMSTRATA_TRY(const AllocationAccess live, access(allocation));
    const std::vector<ByteRange> runs =
        shared_runs(*live->reservation, outwards(live->start, range));
    if (runs.empty()) {
      return Bytes{};
    }
    if (runs.size() > 1) {
      return fail(malformed(
          range.size, "the range holds several runs of shared granules; break each by itself"));
    }
    if (auto broken = backing_->break_shared(*live->reservation, runs.front()); !broken) {
      return fail(refusal(std::move(broken).error(), runs.front().size));
    }
    return runs.front().size;
  });
}

}  // namespace memstrata::host
