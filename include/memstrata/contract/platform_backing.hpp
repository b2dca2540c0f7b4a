// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// Who charges the physical bytes behind a backing: the buffer that commits them (the usual case), or the backing
/// itself, because it keeps memory after a decommit. A buffer over the latter holds no lease of its own.
class PhysicalMemoryAccounting {
 public:
  [[nodiscard]] static constexpr PhysicalMemoryAccounting buffer() noexcept {
    return PhysicalMemoryAccounting(std::nullopt);
  }

  [[nodiscard]] static constexpr PhysicalMemoryAccounting backing(
      MemoryAuthorityId authority) noexcept {
    return PhysicalMemoryAccounting(authority);
  }

  /// The books that the backing charges, or nothing if the buffer must.
  [[nodiscard]] constexpr const std::optional<MemoryAuthorityId>& authority() const noexcept {
    return authority_;
  }

  [[nodiscard]] friend constexpr bool operator==(PhysicalMemoryAccounting,
                                                 PhysicalMemoryAccounting) noexcept = default;

 private:
  explicit constexpr PhysicalMemoryAccounting(std::optional<MemoryAuthorityId> authority) noexcept
      : authority_(authority) {}

  std::optional<MemoryAuthorityId> authority_;
};

/// An owning range of address space: move-only, destruction returns the addresses and all that is committed.
template <class R>
concept BackingReservation = std::movable<R> && std::is_nothrow_move_constructible_v<R> &&
                             std::is_nothrow_destructible_v<R> && requires(const R& reservation) {
                               { reservation.base() } noexcept -> std::same_as<DeviceAddress>;
                               { reservation.size() } noexcept -> std::same_as<Bytes>;
                             };

/// What a platform must offer under a `VirtualBuffer`. One backing serves many reservations and is thread-safe;
/// one reservation is used by one thread at a time.
///
/// - `granularity()`: a power of two or a multiple of the page, constant for life.
/// - `reserve(length)`: address space only; `length` is a multiple of the granule and not zero.
/// - `commit(reservation, range)`: on success every byte of the range is usable and, on the host, reads as zero.
///   All or nothing. Overlap with anything committed is `AlreadyMapped`.
/// - `commit(reservation, ranges)`: the same for many ranges, all or nothing together.
/// - `decommit(reservation, range)`: really returns exactly this range, however it was committed. A granule that
///   is not committed is `NotMapped` and nothing changes. On another failure the error is returned and the
///   range still counts as committed from the first granule that failed; `committed` says how much.
/// - `physical_memory_accounting()`: who pays.
template <class B>
concept PlatformBacking =
    BackingReservation<typename B::Reservation> && requires(B& backing,
                                                            const B& constant,
                                                            typename B::Reservation& reservation,
                                                            const typename B::Reservation& read,
                                                            Bytes length,
                                                            ByteRange range,
                                                            std::span<const ByteRange> ranges) {
      { constant.granularity() } noexcept -> std::same_as<Bytes>;
      {
        backing.reserve(length)
      } -> std::same_as<Result<typename B::Reservation, VirtualMemoryError>>;
      { backing.commit(reservation, range) } -> std::same_as<Result<void, VirtualMemoryError>>;
      { backing.commit(reservation, ranges) } -> std::same_as<Result<void, VirtualMemoryError>>;
      { backing.decommit(reservation, range) } -> std::same_as<Result<void, VirtualMemoryError>>;
      { constant.committed(read) } noexcept -> std::same_as<Bytes>;
      { constant.physical_memory_accounting() } noexcept -> std::same_as<PhysicalMemoryAccounting>;
    };

/// A platform backing that can also map sealed prefixes read-only into a reservation.
///
/// `B::Prefix` is a copyable handle that shares ownership of sealed physical bytes; `size()` is a multiple of the
/// granule.
/// - `map_shared(reservation, offset, prefix, part)`: maps `part` of the prefix at `offset`, read-only; both are
///   granule-aligned and the place holds nothing. All or nothing. Owns nothing more.
/// - `break_shared(reservation, range)`: replaces the shared granules of `range` by private, writable copies. All
///   or nothing. The caller has charged the bytes.
/// - `unmap_shared(reservation, range)`: unmaps shared granules; returns the bytes whose last reference went.
/// - `shared(reservation)`: bytes mapped from prefixes now.
template <class B>
concept SharedPlatformBacking = PlatformBacking<B> && std::copyable<typename B::Prefix> &&
                                requires(B& backing,
                                         const B& constant,
                                         typename B::Reservation& reservation,
                                         const typename B::Reservation& read,
                                         const typename B::Prefix& prefix,
                                         Bytes offset,
                                         ByteRange range) {
                                  { prefix.size() } noexcept -> std::same_as<Bytes>;
                                  {
                                    backing.map_shared(reservation, offset, prefix, range)
                                  } -> std::same_as<Result<void, VirtualMemoryError>>;
                                  {
                                    backing.break_shared(reservation, range)
                                  } -> std::same_as<Result<void, VirtualMemoryError>>;
                                  {
                                    backing.unmap_shared(reservation, range)
                                  } -> std::same_as<Result<Bytes, VirtualMemoryError>>;
                                  { constant.shared(read) } noexcept -> std::same_as<Bytes>;
                                };

/// A backing whose committed memory the processor may touch through a pointer.
template <class B>
concept HostAddressable =
    PlatformBacking<B> && requires(const typename B::Reservation& reservation) {
      { reservation.data() } noexcept -> std::same_as<std::byte*>;
    };

}  // namespace memstrata
