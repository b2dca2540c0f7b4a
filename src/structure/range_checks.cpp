// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/range_checks.hpp"

#include <algorithm>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {
namespace {

[[nodiscard]] VirtualMemoryError too_large(const char* what, Bytes value, Bytes granule) noexcept {
  return TooLarge{.what = what, .value = value, .largest = align_down(Bytes::max(), granule)};
}

[[nodiscard]] Result<void, VirtualMemoryError> check_aligned(const char* what,
                                                             Bytes value,
                                                             Bytes granule) noexcept {
  if (is_whole_granules(value, granule)) {
    return {};
  }
  const auto rounded = align_up(value, granule);
  if (!rounded) {
    return fail(too_large(what, value, granule));
  }
  return fail(VirtualMemoryError(
      Misaligned{.what = what, .value = value, .granularity = granule, .rounded = *rounded}));
}

[[nodiscard]] Result<void, VirtualMemoryError> check_size(const char* what,
                                                          Bytes value,
                                                          Bytes granule) noexcept {
  if (value == Bytes{}) {
    return fail(VirtualMemoryError(
        Misaligned{.what = what, .value = value, .granularity = granule, .rounded = granule}));
  }
  return check_aligned(what, value, granule);
}

}  // namespace

Result<void, VirtualMemoryError> check_reservation_length(Bytes length, Bytes granule) noexcept {
  return check_size("reservation length", length, granule);
}

Result<void, VirtualMemoryError> check_granule_range(ByteRange range,
                                                     Bytes granule,
                                                     Bytes reserved) noexcept {
  MEMSTRATA_TRY_VOID(check_aligned("offset", range.offset, granule));
  MEMSTRATA_TRY_VOID(check_size("length", range.size, granule));
  return check_inside(range, reserved);
}

Result<void, VirtualMemoryError> check_inside(ByteRange range, Bytes reserved) noexcept {
  const Bytes overrun = saturating_sub(saturating_add(range.offset, range.size), reserved);
  if (overrun != Bytes{}) {
    return fail(VirtualMemoryError(OutOfRange{
        .offset = range.offset, .length = range.size, .reserved = reserved, .overrun = overrun}));
  }
  return {};
}

Result<Bytes, VirtualMemoryError> rounded_capacity(Bytes capacity, Bytes granule) noexcept {
  const auto rounded = align_up(std::max(capacity, Bytes{1}), granule);
  if (!rounded) {
    return fail(too_large("capacity", capacity, granule));
  }
  return *rounded;
}

}  // namespace memstrata
