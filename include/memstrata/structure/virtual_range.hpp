// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/contract/platform_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/commit_map.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/structure/describe.hpp"
#include "memstrata/structure/failed_call.hpp"
#include "memstrata/structure/physical_charge.hpp"
#include "memstrata/structure/range_checks.hpp"

namespace memstrata {

/// One reserved address range in which any granules are committed and decommitted, in any order and with gaps.
///
/// The addresses never change. Reserving is free: nothing is committed and nothing is leased. Committed bytes
/// are leased from the governor before they are committed and given back after they are decommitted, unless the
/// backing pays for itself. Destruction returns the memory first and then the lease. A range that was moved from
/// can only be destroyed or assigned. Single-threaded; different ranges may be used by different threads.
template <PlatformBacking B>
class VirtualRange {
 public:
  using Reservation = typename B::Reservation;

  /// Reserves `length` bytes of address space of `backing` (not null), a whole number of granules above zero.
  /// Errors: AuthorityMismatch (before anything is reserved), Misaligned, TooLarge, those of the backing.
  [[nodiscard]] static Result<VirtualRange, VirtualBufferError> reserve(
      std::shared_ptr<B> backing,
      Bytes length,
      std::shared_ptr<MemoryGovernor> governor,
      LeaseTerms terms) {
    MEMSTRATA_VERIFY(backing != nullptr, "there is no backing");
    MEMSTRATA_TRY(
        auto charge,
        PhysicalCharge::create(backing->physical_memory_accounting(), std::move(governor), terms));
    MEMSTRATA_TRY_VOID(check_reservation_length(length, backing->granularity()));
    MEMSTRATA_TRY(auto reservation, backing->reserve(length));
    return VirtualRange(std::move(backing), std::move(charge), std::move(reservation));
  }

  VirtualRange(VirtualRange&& other) noexcept
      : backing_(std::move(other.backing_)),
        charge_(std::move(other.charge_)),
        reservation_(std::move(other.reservation_)),
        map_(std::exchange(other.map_, CommitMap(other.map_.granule()))) {}

  VirtualRange& operator=(VirtualRange&& other) noexcept {
    // The old memory must go before the old lease, so it is swapped out and destroyed as a whole.
    VirtualRange moved(std::move(other));
    std::swap(backing_, moved.backing_);
    std::swap(charge_, moved.charge_);
    std::swap(reservation_, moved.reservation_);
    std::swap(map_, moved.map_);
    return *this;
  }

  VirtualRange(const VirtualRange&) = delete;
  VirtualRange& operator=(const VirtualRange&) = delete;
  ~VirtualRange() = default;

  /// First address; the same for the whole life.
  [[nodiscard]] DeviceAddress base() const noexcept { return reservation_.base(); }

  /// Bytes of address space.
  [[nodiscard]] Bytes size() const noexcept { return reservation_.size(); }

  [[nodiscard]] Bytes granularity() const noexcept { return map_.granule(); }

  /// Bytes committed now.
  [[nodiscard]] Bytes committed() const noexcept { return map_.total(); }

  /// Bytes leased now: `committed()`, or zero if the backing pays.
  [[nodiscard]] Bytes leased() const noexcept { return charge_.leased(); }

  /// Maximal committed runs: each costs the kernel about one mapping.
  [[nodiscard]] std::uint64_t runs() const noexcept { return map_.runs(); }

  /// Whether every granule that `range` touches is committed; false beyond the end.
  [[nodiscard]] bool is_committed(ByteRange range) const noexcept {
    if (!check_inside(range, size())) {
      return false;
    }
    const Bytes start = align_down(range.offset, granularity());
    const Bytes stop = align_up(range.end(), granularity()).value_or(size());
    return !map_.first_clear({.offset = start, .size = stop - start}).has_value();
  }

  /// The memory itself, where the processor may touch it. Only committed bytes may be touched.
  [[nodiscard]] std::byte* data() noexcept
    requires HostAddressable<B>
  {
    return reservation_.data();
  }

  /// Commits `range`: whole granules of which none is committed. Fresh host memory reads as zero.
  ///
  /// On failure nothing changed and nothing is leased for the attempt. Only if the backing fails and then cannot
  /// undo its own work either, the granules concerned stay committed and leased, as `committed()` shows.
  /// Errors: Misaligned (offset first, then length; also for a length of zero), TooLarge, OutOfRange,
  /// AlreadyMapped with the first granule in the way, those of the governor and of the backing.
  [[nodiscard]] Result<void, VirtualBufferError> commit(ByteRange range) {
    return commit(std::span(&range, 1));
  }

  /// The same for many ranges: all of them or none. They must not overlap each other. An empty list succeeds.
  /// Cost: one lease, then one call of the backing.
  [[nodiscard]] Result<void, VirtualBufferError> commit(std::span<const ByteRange> ranges) {
    Bytes total;
    for (const ByteRange& range : ranges) {
      MEMSTRATA_TRY_VOID(check_granule_range(range, granularity(), size()));
      total = saturating_add(total, range.size);
    }
    if (ranges.empty()) {
      return {};
    }
    MEMSTRATA_TRY_VOID(mark(ranges));
    if (auto charged = charge_.charge(total); !charged) {
      unmark(ranges);
      return fail(std::move(charged).error());
    }
    auto done = ranges.size() == 1 ? backing_->commit(reservation_, ranges.front())
                                   : backing_->commit(reservation_, ranges);
    if (!done) {
      unmark(ranges);
      charge_.refund(total - keep_stuck(ranges, map_.total()));
      return fail(std::move(done).error());
    }
    return {};
  }

  /// Gives back what is committed of `range`, lowest first, however it was committed, and says how many bytes
  /// that was. The addresses stay reserved. What is not committed is passed over, so it always succeeds there.
  ///
  /// On failure of the backing: the granules below the failing one are gone and refunded, it and those above
  /// are as before; `committed()` and `leased()` say so.
  /// Errors: Misaligned, TooLarge, OutOfRange, those of the backing.
  [[nodiscard]] Result<Bytes, VirtualBufferError> decommit(ByteRange range) {
    MEMSTRATA_TRY_VOID(check_granule_range(range, granularity(), size()));
    Bytes released;
    Bytes at = range.offset;
    while (at < range.end()) {
      const auto start = map_.first_set({.offset = at, .size = range.end() - at});
      if (!start) {
        break;
      }
      const ByteRange rest{.offset = *start, .size = range.end() - *start};
      const Bytes stop = map_.first_clear(rest).value_or(range.end());
      MEMSTRATA_TRY_VOID(decommit_run({.offset = *start, .size = stop - *start}));
      released += stop - *start;
      at = stop;
    }
    return released;
  }

  /// Whether the books, the lease and the backing agree; for tests and checked builds.
  [[nodiscard]] bool validate() const {
    const Bytes owed = charge_.is_paid_by_backing() ? Bytes{} : committed();
    return map_.validate() && backing_->committed(reservation_) == committed() && leased() == owed;
  }

  /// Range, totals and committed runs; no contents.
  [[nodiscard]] friend std::string to_string(const VirtualRange& range) {
    return describe_range({.base = range.base(),
                           .size = range.size(),
                           .granule = range.granularity(),
                           .committed = range.committed(),
                           .leased = range.leased()},
                          range.map_.set_runs({.offset = Bytes{}, .size = range.size()}));
  }

 private:
  VirtualRange(std::shared_ptr<B> backing, PhysicalCharge charge, Reservation reservation) noexcept
      : backing_(std::move(backing)),
        charge_(std::move(charge)),
        reservation_(std::move(reservation)),
        map_(backing_->granularity()) {}

  /// Enters all `ranges` into the map, or none.
  [[nodiscard]] Result<void, VirtualBufferError> mark(std::span<const ByteRange> ranges) {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (const auto taken = map_.first_set(ranges[i])) {
        unmark(ranges.first(i));
        return fail(VirtualMemoryError(AlreadyMapped{.offset = *taken}));
      }
      try {
        map_.prepare(ranges[i]);
      } catch (const std::exception&) {
        unmark(ranges.first(i));
        return fail(no_memory_for_records(charge_.tier(), ranges[i].size));
      }
      map_.insert(ranges[i]);
    }
    return {};
  }

  void unmark(std::span<const ByteRange> ranges) noexcept {
    for (const ByteRange& range : ranges) {
      map_.remove(range);
    }
  }

  /// After a failed commit of `ranges`, which are not marked: marks the granules that could not be undone and
  /// returns their bytes.
  [[nodiscard]] Bytes keep_stuck(std::span<const ByteRange> ranges, Bytes before) {
    Bytes stuck;
    for (const ByteRange& range : ranges) {
      detail::undo_failed_commit(*backing_, reservation_, range, before, [&](ByteRange granule) {
        map_.insert(granule);
        stuck += granule.size;
      });
    }
    return stuck;
  }

  /// Gives back a run that is wholly committed; on failure, its front as far as the backing got.
  [[nodiscard]] Result<void, VirtualMemoryError> decommit_run(ByteRange run) {
    const Bytes before = backing_->committed(reservation_);
    auto done = backing_->decommit(reservation_, run);
    const Bytes gone = done ? run.size : before - backing_->committed(reservation_);
    map_.remove({.offset = run.offset, .size = gone});
    charge_.refund(gone);
    return done;
  }

  std::shared_ptr<B> backing_;
  PhysicalCharge charge_;
  Reservation reservation_;  // after the charge: destroyed first, so that the budget returns last
  CommitMap map_;
};

}  // namespace memstrata
