// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

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
