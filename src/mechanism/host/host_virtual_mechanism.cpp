// SPDX-License-Identifier: Apache-2.0
#include "mechanism/host/host_virtual_mechanism.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mechanism/host/memory_refusal.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/rollback.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/host_virtual_allocator.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host {

std::vector<ByteRange> joined(std::vector<ByteRange> ranges) {
  std::ranges::sort(ranges, {}, &ByteRange::offset);
  std::vector<ByteRange> result;
  result.reserve(ranges.size());
  for (const ByteRange& range : ranges) {
    if (!result.empty() && range.offset <= result.back().end()) {
      ByteRange& last = result.back();
      last.size = std::max(last.end(), range.end()) - last.offset;
    } else {
      result.push_back(range);
    }
  }
  return result;
}

HostVirtualAllocator::Mechanism::Mechanism(PageBacking backing)
    : backing_(std::make_shared<PageBacking>(std::move(backing))) {}

// --- Look-up and arithmetic ------------------------------------------------------------------------------

std::size_t HostVirtualAllocator::Mechanism::live_allocations() const noexcept {
  const MutexLock lock(mutex_);
  return live_.size();
}

std::shared_ptr<LiveAllocation> HostVirtualAllocator::Mechanism::look_up(
    const AllocationSpan& span) const noexcept {
  const MutexLock lock(mutex_);
  const auto found = live_.find(span.address.value());
  return found == live_.end() || found->second->span != span ? nullptr : found->second;
}

Result<AllocationAccess> HostVirtualAllocator::Mechanism::access(const AllocationSpan& span) const {
  if (auto found = look_up(span)) {
    AllocationAccess access(std::move(found));
    if (access->reservation) {
      return access;
    }
  }
  return fail(malformed(span.bytes, no_such_allocation()));
}

Result<void> HostVirtualAllocator::Mechanism::check_range(const AllocationSpan& span,
                                                          ByteRange range) {
  const std::optional<Bytes> end = range.checked_end();
  if (range.empty()) {
    return fail(malformed(range.size, "a range of 0 bytes"));
  }
  if (!end || *end > span.bytes) {
    return fail(malformed(range.size, "the range ends beyond the allocation"));
  }
  return {};
}

ByteRange HostVirtualAllocator::Mechanism::outwards(Bytes start, ByteRange range) const noexcept {
  const Bytes first = align_down(range.offset, granule());
  const Bytes end = *align_up(range.end(), granule());
  return {.offset = start + first, .size = end - first};
}

ByteRange HostVirtualAllocator::Mechanism::inwards(const LiveAllocation& allocation,
                                                   ByteRange range) const noexcept {
  const Bytes first = *align_up(range.offset, granule());
  const Bytes end = range.end() == allocation.span.bytes ? *align_up(range.end(), granule())
                                                         : align_down(range.end(), granule());
  return {.offset = allocation.start + first, .size = saturating_sub(end, first)};
}

std::vector<ByteRange> HostVirtualAllocator::Mechanism::shared_runs(
    const PageBacking::Reservation& reservation,
    ByteRange range) const {
  std::vector<ByteRange> runs;
  if (backing_->shared_in(reservation, range) == Bytes{}) {
    return runs;
  }
  std::vector<ByteRange> others = backing_->vacant_runs(reservation, range);
  const std::vector<ByteRange> committed = backing_->committed_runs(reservation, range);
  others.insert(others.end(), committed.begin(), committed.end());
  others.push_back({.offset = range.end(), .size = {}});
  Bytes next = range.offset;
  for (const ByteRange& other : joined(std::move(others))) {
    if (other.offset > next) {
      runs.push_back({.offset = next, .size = other.offset - next});
    }
    next = other.end();
  }
  return runs;
}

Bytes HostVirtualAllocator::Mechanism::held(
    const PageBacking::Reservation& reservation) const noexcept {
  return backing_->committed(reservation) + backing_->shared(reservation) +
         backing_->retained(reservation);
}

// --- Allocation and release ------------------------------------------------------------------------------

Result<std::shared_ptr<LiveAllocation>> HostVirtualAllocator::Mechanism::reserve(Bytes bytes,
                                                                                 Bytes alignment) {
  MEMSTRATA_TRY_VOID(check_shape(bytes, alignment));
  const Bytes unit = granule();
  // Places lie one granule apart; after so many of them their alignment repeats.
  const std::uint64_t places = alignment.value / std::gcd(unit.value, alignment.value);
  const std::optional<Bytes> slack = checked_mul(unit, places - 1);
  const std::optional<Bytes> whole = align_up(std::max(bytes, Bytes{1}), unit);
  std::optional<Bytes> length = whole && slack ? checked_add(*whole, *slack) : std::nullopt;
  if (!length) {
    return fail(malformed(bytes, "the size with its alignment overflows the address space"));
  }
  if (!is_power_of_two(unit.value) && alignment > page_size()) {
    // Only a range as long as a huge page begins at more than a page's alignment then.
    length = std::max(*length, align_up(huge_page_size(), unit).value_or(*length));
  }
  auto reserved = backing_->reserve(*length);
  if (!reserved) {
    return fail(refusal(std::move(reserved).error(), bytes));
  }
  const Bytes base{reserved->base().value()};
  Bytes start = align_up(base, alignment).value_or(base) - base;
  while (!is_multiple(start, unit) && start <= *slack) {
    start += alignment;
  }
  if (start > *slack || !is_multiple(base + start, alignment)) {
    return fail(MemoryError(AllocationFailed{
        .tier = Tier::host, .requested = bytes, .reason = "no place of that alignment was found"}));
  }
  return std::make_shared<LiveAllocation>(
      AllocationSpan{.address = reserved->base() + start, .bytes = bytes, .alignment = alignment},
      std::move(*reserved),
      start);
}

Result<DeviceAddress> HostVirtualAllocator::Mechanism::publish(
    std::shared_ptr<LiveAllocation> made) {
  const DeviceAddress address = made->span.address;
  Table node;
  node.emplace(address.value(), std::move(made));
  const MutexLock lock(mutex_);
  live_.insert(node.extract(node.begin()));
  return address;
}

Result<DeviceAddress> HostVirtualAllocator::Mechanism::allocate_committed(
    Bytes bytes,
    Bytes alignment,
    std::span<const ByteRange> ranges) {
  return unless_out_of_memory(bytes, [&]() -> Result<DeviceAddress> {
    const AllocationSpan usable{.address = {}, .bytes = bytes, .alignment = alignment};
    for (const ByteRange& range : ranges) {
      MEMSTRATA_TRY_VOID(check_range(usable, range));
    }
    MEMSTRATA_TRY(auto made, reserve(bytes, alignment));
    std::vector<ByteRange> granules;
    granules.reserve(ranges.size());
    for (const ByteRange& range : ranges) {
      granules.push_back(outwards(made->start, range));
    }
    granules = joined(std::move(granules));
    if (!granules.empty()) {
      if (auto done = backing_->commit(*made->reservation, granules); !done) {
        return fail(refusal(std::move(done).error(), bytes));
      }
    }
    return publish(std::move(made));
  });
}

Result<DeviceAddress> HostVirtualAllocator::Mechanism::allocate(Bytes bytes, Bytes alignment) {
  return unless_out_of_memory(bytes, [&]() -> Result<DeviceAddress> {
    MEMSTRATA_TRY(auto made, reserve(bytes, alignment));
    const ByteRange everything =
        outwards(made->start, {.offset = {}, .size = std::max(bytes, Bytes{1})});
    if (auto done = backing_->commit(*made->reservation, everything); !done) {
      return fail(refusal(std::move(done).error(), bytes));
    }
    return publish(std::move(made));
  });
}

Result<void, VirtualMemoryError> HostVirtualAllocator::Mechanism::give_back(
    PageBacking::Reservation& reservation,
    std::span<const ByteRange> shared,
    std::span<const ByteRange> committed,
    Bytes& gone) {
  for (const ByteRange& run : shared) {
    MEMSTRATA_TRY(const Bytes last_references, backing_->unmap_shared(reservation, run));
    gone += last_references;
  }
  for (const ByteRange& run : committed) {
    const Bytes before = backing_->committed(reservation) + backing_->retained(reservation);
    MEMSTRATA_TRY_VOID(backing_->decommit(reservation, run));
    gone += before - (backing_->committed(reservation) + backing_->retained(reservation));
  }
  return {};
}

MechanismRelease HostVirtualAllocator::Mechanism::release(
    const AllocationSpan& allocation) noexcept {
  auto found = access(allocation);
  if (!found) {
    return MechanismRelease::unchanged(no_such_allocation());
  }
  AllocationAccess& live = *found;
  Bytes gone{};
  const Bytes before = held(*live->reservation);
  const auto given = unless_out_of_memory(allocation.bytes, [&]() -> Result<void> {
    PageBacking::Reservation& reservation = *live->reservation;
    const ByteRange everything{.offset = {}, .size = reservation.size()};
    const std::vector<ByteRange> shared = shared_runs(reservation, everything);
    const std::vector<ByteRange> committed = backing_->committed_runs(reservation, everything);
    if (auto done = give_back(reservation, shared, committed, gone); !done) {
      return fail(refusal(std::move(done).error(), allocation.bytes));
    }
    if (backing_->retained(reservation) != Bytes{}) {
      auto trimmed = backing_->trim_retained(reservation);
      if (!trimmed) {
        return fail(refusal(std::move(trimmed).error(), allocation.bytes));
      }
      gone += *trimmed;
    }
    return {};
  });
  if (!given) {
    // A refused `mprotect` comes after the discard: the bytes are still held but their content is not.
    const Bytes left = held(*live->reservation);
    const auto* failed = std::get_if<AllocationFailed>(&given.error().kind);
    const bool lost_content = failed != nullptr && std::string_view(failed->call) ==
                                                       function_name(SystemCallKind::protect);
    ErrorText why = explanation(given.error());
    return left == before && !lost_content ? MechanismRelease::unchanged(std::move(why))
                                           : MechanismRelease::partial(gone, left, std::move(why));
  }
  Table::node_type node;
  {
    const MutexLock lock(mutex_);
    node = live_.extract(allocation.address.value());
  }
  live->reservation.reset();
  return MechanismRelease::complete(gone);
}

// --- Commit and decommit ---------------------------------------------------------------------------------

Result<void> HostVirtualAllocator::Mechanism::commit(const AllocationSpan& allocation,
                                                     ByteRange range) {
  return unless_out_of_memory(range.size, [&]() -> Result<void> {
    MEMSTRATA_TRY_VOID(check_range(allocation, range));
    MEMSTRATA_TRY(const AllocationAccess live, access(allocation));
    const std::vector<ByteRange> vacant =
        backing_->vacant_runs(*live->reservation, outwards(live->start, range));
    if (vacant.empty()) {
      return {};
    }
    if (auto done = backing_->commit(*live->reservation, vacant); !done) {
      return fail(refusal(std::move(done).error(), range.size));
    }
    return {};
  });
}

Result<HostVirtualAllocator::Mechanism::Batches> HostVirtualAllocator::Mechanism::sort(
    std::span<const AllocationCommitRange> ranges) const {
  Batches batches;
  for (const AllocationCommitRange& each : ranges) {
    MEMSTRATA_TRY_VOID(check_range(each.allocation, each.range));
    auto live = look_up(each.allocation);
    if (live == nullptr) {
      return fail(malformed(each.range.size, no_such_allocation()));
    }
    Batch& batch = batches[each.allocation.address.value()];
    batch.granules.push_back(outwards(live->start, each.range));
    batch.allocation = std::move(live);
  }
  for (auto& [address, batch] : batches) {
    batch.granules = joined(std::move(batch.granules));
  }
  return batches;
}

Result<void> HostVirtualAllocator::Mechanism::commit_batches(Batches& batches, Bytes requested) {
  struct Step {
    AllocationAccess live;
    std::vector<ByteRange> vacant;
  };

  std::vector<Step> steps;
  steps.reserve(batches.size());
  for (auto& [address, batch] : batches) {
    Step step{.live = AllocationAccess(std::move(batch.allocation)), .vacant = {}};
    if (!step.live->reservation) {
      return fail(malformed(requested, no_such_allocation()));
    }
    for (const ByteRange& range : batch.granules) {
      const std::vector<ByteRange> vacant = backing_->vacant_runs(*step.live->reservation, range);
      step.vacant.insert(step.vacant.end(), vacant.begin(), vacant.end());
    }
    steps.push_back(std::move(step));
  }
  const auto decommit = [this](Step* step) noexcept {
    for (const ByteRange& run : step->vacant) {
      if (const auto gone = backing_->decommit(*step->live->reservation, run); !gone) {
        continue;  // best effort: what the kernel keeps stays in the backing's books, and charged
      }
    }
  };
  RollbackLog<Step*, decltype(decommit)> undo(steps.size(), decommit);
  for (Step& step : steps) {
    if (step.vacant.empty()) {
      continue;
    }
    if (auto done = backing_->commit(*step.live->reservation, step.vacant); !done) {
      return fail(refusal(std::move(done).error(), requested));
    }
    undo.record(&step);
  }
  undo.keep();
  return {};
}

Result<void, BatchCommitFailure> HostVirtualAllocator::Mechanism::commit_all(
    std::span<const AllocationCommitRange> ranges) {
  Bytes requested{};
  for (const AllocationCommitRange& each : ranges) {
    requested = saturating_add(requested, each.range.size);
  }
  auto done = unless_out_of_memory(requested, [&]() -> Result<void> {
    MEMSTRATA_TRY(Batches batches, sort(ranges));
    return commit_batches(batches, requested);
  });
  if (!done) {
    return fail(BatchCommitFailure{.error = std::move(done).error(), .committed_ranges = 0});
  }
  return {};
}

Result<Bytes> HostVirtualAllocator::Mechanism::mapped_bytes(
    std::span<const AllocationCommitRange> ranges) {
  return unless_out_of_memory(Bytes{}, [&]() -> Result<Bytes> {
    MEMSTRATA_TRY(const Batches batches, sort(ranges));
    Bytes total{};
    for (const auto& [address, batch] : batches) {
      for (const ByteRange& range : batch.granules) {
        total += range.size;
      }
    }
    return total;
  });
}

Result<Bytes> HostVirtualAllocator::Mechanism::mapped_bytes(Bytes bytes, Bytes alignment) {
  MEMSTRATA_TRY_VOID(check_shape(bytes, alignment));
  const std::optional<Bytes> whole = align_up(std::max(bytes, Bytes{1}), granule());
  if (!whole) {
    return fail(malformed(bytes, "rounding up to granules overflows the address space"));
  }
  return *whole;
}

Result<Bytes> HostVirtualAllocator::Mechanism::decommit(const AllocationSpan& allocation,
                                                        ByteRange range) {
  return unless_out_of_memory(range.size, [&]() -> Result<Bytes> {
    MEMSTRATA_TRY_VOID(check_range(allocation, range));
    MEMSTRATA_TRY(const AllocationAccess live, access(allocation));
    PageBacking::Reservation& reservation = *live->reservation;
    const ByteRange granules = inwards(*live, range);
    Bytes gone{};
    if (granules.empty()) {
      return gone;
    }
    const std::vector<ByteRange> shared = shared_runs(reservation, granules);
    const std::vector<ByteRange> committed = backing_->committed_runs(reservation, granules);
    if (auto done = give_back(reservation, shared, committed, gone); !done) {
      return fail(refusal(std::move(done).error(), range.size));
    }
    return gone;
  });
}

Bytes HostVirtualAllocator::Mechanism::committed_bytes(
    const AllocationSpan& allocation) const noexcept {
  const auto live = access(allocation);
  return live ? backing_->committed(*(*live)->reservation) + backing_->shared(*(*live)->reservation)
              : Bytes{};
}

}  // namespace memstrata::host
