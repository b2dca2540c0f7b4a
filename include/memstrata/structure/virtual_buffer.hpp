// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/contract/platform_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/structure/buffer_segments.hpp"
#include "memstrata/structure/describe.hpp"
#include "memstrata/structure/failed_call.hpp"
#include "memstrata/structure/physical_charge.hpp"
#include "memstrata/structure/range_checks.hpp"

namespace memstrata {

/// One contiguous region that grows and shrinks in place: its base address never changes and nothing is copied.
///
/// The first `length()` bytes are usable. Behind them stand whole granules, private ones (`committed()`, leased
/// from the governor unless the backing pays) and read-only ones of shared prefixes (`shared_bytes()`, paid for
/// by whoever created the prefix). Bytes that a later growth exposes again inside a kept granule are not cleared.
/// Destruction returns the memory first and then the lease. A buffer that was moved from can only be destroyed
/// or assigned. Single-threaded; different buffers may be used by different threads.
template <PlatformBacking B>
class VirtualBuffer {
 public:
  using Reservation = typename B::Reservation;

  /// Reserves address space of `backing` (not null) for `capacity` bytes, rounded up to granules, at least one;
  /// commits and leases nothing. When growth needs memory it takes up to `commit_ahead` bytes more than asked, if budget and machine
  /// allow, so that the next growths need no call.
  /// Errors: AuthorityMismatch (before anything is reserved), TooLarge, those of the backing.
  [[nodiscard]] static Result<VirtualBuffer, VirtualBufferError> create(
      std::shared_ptr<B> backing,
      Bytes capacity,
      std::shared_ptr<MemoryGovernor> governor,
      LeaseTerms terms,
      Bytes commit_ahead = Bytes{}) {
    MEMSTRATA_VERIFY(backing != nullptr, "there is no backing");
    MEMSTRATA_TRY(
        auto charge,
        PhysicalCharge::create(backing->physical_memory_accounting(), std::move(governor), terms));
    MEMSTRATA_TRY(const Bytes rounded, rounded_capacity(capacity, backing->granularity()));
    MEMSTRATA_TRY(auto reservation, backing->reserve(rounded));
    return VirtualBuffer(
        std::move(backing), std::move(charge), std::move(reservation), commit_ahead);
  }

  VirtualBuffer(VirtualBuffer&& other) noexcept
      : backing_(std::move(other.backing_)),
        charge_(std::move(other.charge_)),
        reservation_(std::move(other.reservation_)),
        segments_(std::move(other.segments_)),
        length_(std::exchange(other.length_, Bytes{})),
        ready_end_(std::exchange(other.ready_end_, Bytes{})),
        capacity_(std::exchange(other.capacity_, Bytes{})),
        granule_(other.granule_),
        commit_ahead_(other.commit_ahead_) {}

  VirtualBuffer& operator=(VirtualBuffer&& other) noexcept {
    // The old memory must go before the old lease, so it is swapped out and destroyed as a whole.
    VirtualBuffer moved(std::move(other));
    std::swap(backing_, moved.backing_);
    std::swap(charge_, moved.charge_);
    std::swap(reservation_, moved.reservation_);
    std::swap(segments_, moved.segments_);
    std::swap(length_, moved.length_);
    std::swap(ready_end_, moved.ready_end_);
    std::swap(capacity_, moved.capacity_);
    std::swap(granule_, moved.granule_);
    std::swap(commit_ahead_, moved.commit_ahead_);
    return *this;
  }

  VirtualBuffer(const VirtualBuffer&) = delete;
  VirtualBuffer& operator=(const VirtualBuffer&) = delete;
  ~VirtualBuffer() = default;

  /// First address; the same for the whole life.
  [[nodiscard]] DeviceAddress base() const noexcept { return reservation_.base(); }

  /// Bytes in use.
  [[nodiscard]] Bytes length() const noexcept { return length_; }

  [[nodiscard]] bool empty() const noexcept { return length_ == Bytes{}; }

  /// Private bytes behind the buffer, whole granules; what is leased, unless the backing pays.
  [[nodiscard]] Bytes committed() const noexcept { return segments_.committed(); }

  /// Bytes mapped from shared prefixes, whole granules; not leased here.
  [[nodiscard]] Bytes shared_bytes() const noexcept { return segments_.shared(); }

  /// Bytes leased now.
  [[nodiscard]] Bytes leased() const noexcept { return charge_.leased(); }

  /// The largest length, in whole granules.
  [[nodiscard]] Bytes capacity() const noexcept { return capacity_; }

  [[nodiscard]] Bytes granularity() const noexcept { return granule_; }

  /// What stands behind the buffer, lowest first.
  [[nodiscard]] const BufferSegments& segments() const noexcept { return segments_; }

  /// The memory itself, where the processor may touch it: `length()` bytes, of which shared ones are read-only.
  [[nodiscard]] std::byte* data() noexcept
    requires HostAddressable<B>
  {
    return reservation_.data();
  }

  /// Makes the first `bytes` usable. Never moves `base()`; less than `length()` is a no-op. New granules of host
  /// memory read as zero.
  ///
  /// On failure length, committed bytes and lease are as before. Only if the backing fails and then cannot undo
  /// its own work either, the granules concerned stay counted until they can be given back, as after a failed
  /// shrink.
  /// Errors: OverCapacity; those of the governor and of the backing, unchanged; PrefixRefused if the length ends
  /// inside a shared granule, because the new bytes must be writable: call `break_shared` first.
  /// Cost: inside what is committed one comparison, else one lease and one call of the backing.
  [[nodiscard]] Result<void, VirtualBufferError> grow_to(Bytes bytes) {
    if (bytes <= ready_end_) [[likely]] {
      length_ = std::max(length_, bytes);
      return {};
    }
    return grow_beyond_ready(bytes);
  }

  /// Lowers the length to `bytes` and gives back every granule above the one that holds its last byte, topmost
  /// segment first, one call for each segment. A length that is not less is a no-op. Shared granules are
  /// unmapped, which refunds nothing.
  ///
  /// On failure of the backing the length is `bytes` all the same; what could not be returned stays counted in
  /// `committed()`, `shared_bytes()` and the lease, and every later growth, shrink or `trim` tries again.
  /// Errors: those of the backing; AllocationFailed without memory for records, and then nothing changed.
  [[nodiscard]] Result<void, VirtualBufferError> shrink_to(Bytes bytes) {
    if (bytes >= length_) {
      return {};
    }
    return cut_to(bytes);
  }

  /// Gives back what is committed ahead of the length or was left over by a failed shrink.
  /// Errors: as `shrink_to`.
  [[nodiscard]] Result<void, VirtualBufferError> trim() { return cut_to(length_); }

  /// Maps `part` of a sealed prefix read-only behind the last byte and raises the length by it. The length must
  /// end at a granule boundary. Neither `committed()` nor the lease changes, except that memory committed ahead
  /// of the length is given back first, to make place.
  ///
  /// On failure length and shared bytes are as before.
  /// Errors: Misaligned for the length or the part; OutOfRange for a part beyond the prefix; OverCapacity; those
  /// of the backing.
  template <class Prefix>
    requires SharedPlatformBacking<B> && std::same_as<Prefix, typename B::Prefix>
  [[nodiscard]] Result<void, VirtualBufferError> attach(const Prefix& prefix, ByteRange part) {
    const auto boundary = align_up(length_, granule_).value_or(length_);
    if (boundary != length_) {
      return fail(VirtualMemoryError(Misaligned{
          .what = "length", .value = length_, .granularity = granule_, .rounded = boundary}));
    }
    MEMSTRATA_TRY_VOID(check_granule_range(part, granule_, prefix.size()));
    const Bytes raised = saturating_add(length_, part.size);
    if (raised > capacity_) {
      return fail(OverCapacity{.requested = raised, .capacity = capacity_});
    }
    MEMSTRATA_TRY_VOID(cut_to(length_));
    MEMSTRATA_TRY_VOID(make_room(2, part.size));
    MEMSTRATA_TRY_VOID(backing_->map_shared(reservation_, length_, prefix, part));
    segments_.append(part.size, SegmentKind::shared);
    length_ = raised;
    find_ready_end();
    return {};
  }

  /// The same for the whole prefix.
  template <class Prefix>
    requires SharedPlatformBacking<B> && std::same_as<Prefix, typename B::Prefix>
  [[nodiscard]] Result<void, VirtualBufferError> attach(const Prefix& prefix) {
    return attach(prefix, {.offset = Bytes{}, .size = prefix.size()});
  }

  /// Replaces the shared granules that `range` touches by private, writable copies, which are leased first.
  /// Private granules are passed over. Returns the bytes that became private.
  ///
  /// On failure granules of lower prefixes that were replaced already stay private and leased, everything else is
  /// as before; with one prefix under `range` that means that nothing changed. Only if the backing fails and in
  /// doing so loses granules, the length is lowered to the first byte of the piece, so that it covers nothing
  /// that is gone.
  /// Errors: OutOfRange beyond `length()`; those of the governor and of the backing.
  [[nodiscard]] Result<Bytes, VirtualBufferError> break_shared(ByteRange range)
    requires SharedPlatformBacking<B>
  {
    MEMSTRATA_TRY_VOID(check_inside(range, length_));
    if (range.empty()) {
      return Bytes{};
    }
    const Bytes start = align_down(range.offset, granule_);
    const Bytes stop = align_up(range.end(), granule_).value_or(segments_.end());
    const ByteRange touched{.offset = start, .size = stop - start};
    const Bytes wanted = segments_.shared_in(touched);
    MEMSTRATA_TRY_VOID(make_room(2, wanted));
    MEMSTRATA_TRY_VOID(charge_.charge(wanted));
    Bytes broken;
    while (const auto part = segments_.first_shared(touched)) {
      const Bytes before = backing_->shared(reservation_);
      if (auto done = backing_->break_shared(reservation_, *part); !done) {
        charge_.refund(wanted - broken);
        find_ready_end();
        if (backing_->shared(reservation_) != before) {
          MEMSTRATA_TRY_VOID(cut_to(part->offset));
        }
        return fail(std::move(done).error());
      }
      segments_.make_private(*part);
      broken += part->size;
    }
    find_ready_end();
    return broken;
  }

  /// Whether the books, the lease and the backing agree; for tests and checked builds.
  [[nodiscard]] bool validate() const {
    const Bytes owed = charge_.is_paid_by_backing() ? Bytes{} : committed();
    if constexpr (SharedPlatformBacking<B>) {
      // Shared granules that the backing lost stay counted until what is stranded is gone.
      const Bytes mapped = backing_->shared(reservation_);
      if (mapped > shared_bytes() || (mapped != shared_bytes() && !segments_.has_stranded())) {
        return false;
      }
    }
    return segments_.validate() && backing_->committed(reservation_) == committed() &&
           leased() == owed && length_ <= ready_end_ && ready_end_ <= segments_.end() &&
           segments_.end() <= capacity_;
  }

  /// Range, totals and segments; no contents.
  [[nodiscard]] friend std::string to_string(const VirtualBuffer& buffer) {
    return describe_buffer({.base = buffer.base(),
                            .capacity = buffer.capacity(),
                            .granule = buffer.granularity(),
                            .length = buffer.length(),
                            .committed = buffer.committed(),
                            .shared = buffer.shared_bytes(),
                            .leased = buffer.leased()},
                           buffer.segments_);
  }

 private:
  VirtualBuffer(std::shared_ptr<B> backing,
                PhysicalCharge charge,
                Reservation reservation,
                Bytes commit_ahead) noexcept
      : backing_(std::move(backing)),
        charge_(std::move(charge)),
        reservation_(std::move(reservation)),
        capacity_(reservation_.size()),
        granule_(backing_->granularity()),
        commit_ahead_(commit_ahead) {}

  [[gnu::noinline]] Result<void, VirtualBufferError> grow_beyond_ready(Bytes bytes) {
    if (bytes > capacity_) [[unlikely]] {
      return fail(OverCapacity{.requested = bytes, .capacity = capacity_});
    }
    if (ready_end_ != segments_.end()) [[unlikely]] {
      return fail(VirtualMemoryError(
          PrefixRefused{.operation = "growth",
                        .reason = "the length ends inside a shared granule, which is read-only; "
                                  "make that granule private with break_shared first"}));
    }
    if (segments_.has_stranded()) [[unlikely]] {
      MEMSTRATA_TRY_VOID(release_stranded());
    }
    const Bytes from = segments_.end();
    // Fits: `bytes` is at most the capacity, which is a whole number of granules.
    const Bytes needed = whole_granules(bytes, granule_);
    MEMSTRATA_TRY_VOID(make_room(2, needed - from));
    Bytes end = commit_ahead_of(from, needed);
    if (end == from) {
      if (segments_.has_stranded()) [[unlikely]] {
        MEMSTRATA_TRY_VOID(release_stranded());
      }
      MEMSTRATA_TRY_VOID(charge_and_commit({.offset = from, .size = needed - from}));
      end = needed;
    }
    segments_.append(end - from, SegmentKind::committed);
    length_ = bytes;
    ready_end_ = end;
    return {};
  }

  /// Commits from `from` to beyond `needed`, as the option asks, and returns the new end; `from` if there is
  /// nothing to commit ahead or no memory for it.
  [[nodiscard]] Bytes commit_ahead_of(Bytes from, Bytes needed) {
    if (commit_ahead_ == Bytes{}) {
      return from;
    }
    const Bytes wished = align_up(saturating_add(needed, commit_ahead_), granule_).value_or(needed);
    const Bytes end = std::min(wished, capacity_);
    if (end <= needed || !charge_and_commit({.offset = from, .size = end - from})) {
      return from;
    }
    return end;
  }

  [[nodiscard]] Result<void, VirtualBufferError> charge_and_commit(ByteRange range) {
    MEMSTRATA_TRY_VOID(charge_.charge(range.size));
    if (auto done = backing_->commit(reservation_, range); !done) {
      const Bytes before = segments_.committed();
      detail::undo_failed_commit(*backing_, reservation_, range, before, [this](ByteRange granule) {
        MEMSTRATA_VERIFY(segments_.make_room(2), "no memory to record what cannot be released");
        segments_.strand(granule, SegmentKind::committed);
      });
      charge_.refund(range.size - (segments_.committed() - before));
      return fail(std::move(done).error());
    }
    return {};
  }

  /// Lowers the length to `bytes`, at most what it is, and gives back the granules above.
  [[nodiscard]] Result<void, VirtualBufferError> cut_to(Bytes bytes) {
    MEMSTRATA_TRY_VOID(make_room(1, bytes));
    length_ = bytes;
    segments_.strand_from(whole_granules(bytes, granule_));
    find_ready_end();
    return release_stranded();
  }

  /// Gives back the stranded segments, topmost first, and stops at the first failure.
  [[nodiscard]] Result<void, VirtualBufferError> release_stranded() {
    while (segments_.has_stranded()) {
      MEMSTRATA_TRY_VOID(release_top());
    }
    return {};
  }

  /// Gives back the topmost stranded segment; on failure, its front as far as the backing got.
  [[nodiscard]] Result<void, VirtualMemoryError> release_top() {
    const BufferSegment top = segments_.stranded().back();
    auto done = release_piece(top.kind, top.range);
    if (!done && detail::is_not_mapped(done.error())) {
      // The backing lost some of it while failing earlier, so that only single granules tell.
      done = {};
      for (Bytes at = top.range.offset; done && at < top.range.end(); at += granule_) {
        done = release_piece(top.kind, {.offset = at, .size = granule_});
        if (!done && detail::is_not_mapped(done.error())) {
          done = {};
          forget_front(top.kind, granule_);
        }
      }
    }
    return done;
  }

  [[nodiscard]] Result<void, VirtualMemoryError> release_piece(SegmentKind kind, ByteRange range) {
    const Bytes before = held(kind);
    auto done = give_back(kind, range);
    forget_front(kind, done ? range.size : before - held(kind));
    return done;
  }

  /// The lowest `gone` bytes of the topmost stranded segment are not there any more.
  void forget_front(SegmentKind kind, Bytes gone) noexcept {
    segments_.release_stranded_front(gone);
    if (kind == SegmentKind::committed) {
      charge_.refund(gone);
    }
  }

  [[nodiscard]] Result<void, VirtualMemoryError> give_back(SegmentKind kind, ByteRange range) {
    if constexpr (SharedPlatformBacking<B>) {
      if (kind == SegmentKind::shared) {
        MEMSTRATA_TRY_VOID(backing_->unmap_shared(reservation_, range));
        return {};
      }
    }
    return backing_->decommit(reservation_, range);
  }

  /// What the backing says is there.
  [[nodiscard]] Bytes held(SegmentKind kind) const noexcept {
    if constexpr (SharedPlatformBacking<B>) {
      if (kind == SegmentKind::shared) {
        return backing_->shared(reservation_);
      }
    }
    return backing_->committed(reservation_);
  }

  [[nodiscard]] Result<void, VirtualBufferError> make_room(std::size_t segments, Bytes requested) {
    if (!segments_.make_room(segments)) {
      return fail(no_memory_for_records(charge_.tier(), requested));
    }
    return {};
  }

  /// How far the length may be raised without a call: never into the rest of a shared granule.
  void find_ready_end() noexcept {
    const bool ends_in_shared =
        !is_whole_granules(length_, granule_) && segments_.kind_at(length_) == SegmentKind::shared;
    ready_end_ = ends_in_shared ? length_ : segments_.end();
  }

  std::shared_ptr<B> backing_;
  PhysicalCharge charge_;
  Reservation reservation_;  // after the charge: destroyed first, so that the budget returns last
  BufferSegments segments_;
  Bytes length_;
  Bytes ready_end_;
  Bytes capacity_;
  Bytes granule_;
  Bytes commit_ahead_;
};

}  // namespace memstrata
