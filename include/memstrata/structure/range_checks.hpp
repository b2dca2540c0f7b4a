// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// Whether `value` is a whole number of granules (above zero). Granules are powers of two nearly always, and then
/// this takes no division, which would cost as much as the rest of a check.
[[nodiscard]] constexpr bool is_whole_granules(Bytes value, Bytes granule) noexcept {
  return is_power_of_two(granule.value) ? (value.value & (granule.value - 1)) == 0
                                        : value.value % granule.value == 0;
}

/// `value` rounded up to whole granules, for a value whose rounded one is known to fit.
[[nodiscard]] constexpr Bytes whole_granules(Bytes value, Bytes granule) noexcept {
  return is_power_of_two(granule.value)
             ? Bytes{(value.value + granule.value - 1) & ~(granule.value - 1)}
             : align_up(value, granule).value_or(value);
}

/// Whether `length` can be reserved: a whole number of granules above zero.
/// Errors: Misaligned with the next legal length; TooLarge if there is none.
[[nodiscard]] Result<void, VirtualMemoryError> check_reservation_length(Bytes length,
                                                                        Bytes granule) noexcept;

/// Whether `range` names whole granules, at least one, inside the first `reserved` bytes. Checked in this order:
/// offset, length, end; sums do not wrap.
/// Errors: Misaligned (also for a length of zero), TooLarge, OutOfRange.
[[nodiscard]] Result<void, VirtualMemoryError> check_granule_range(ByteRange range,
                                                                   Bytes granule,
                                                                   Bytes reserved) noexcept;

/// Whether `range`, of any alignment, lies inside the first `reserved` bytes.
/// Errors: OutOfRange with the excess.
[[nodiscard]] Result<void, VirtualMemoryError> check_inside(ByteRange range,
                                                            Bytes reserved) noexcept;

/// `capacity`, or one byte if it is zero, rounded up to whole granules.
/// Errors: TooLarge if the rounded number does not fit.
[[nodiscard]] Result<Bytes, VirtualMemoryError> rounded_capacity(Bytes capacity,
                                                                 Bytes granule) noexcept;

}  // namespace memstrata
