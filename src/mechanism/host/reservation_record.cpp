// SPDX-License-Identifier: Apache-2.0
#include "mechanism/host/reservation_record.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "mechanism/host/backing_state.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host::detail {
namespace {

[[nodiscard]] Result<void, VirtualMemoryError> misaligned(const char* what,
                                                          Bytes value,
                                                          Bytes granule) {
  const auto rounded = value == Bytes{} ? std::optional(granule) : align_up(value, granule);
  if (!rounded) {
    return fail(
        TooLarge{.what = what, .value = value, .largest = align_down(Bytes::max(), granule)});
  }
  return fail(
      Misaligned{.what = what, .value = value, .granularity = granule, .rounded = *rounded});
}

}  // namespace

Result<void, VirtualMemoryError> check_length(const char* what, Bytes value, Bytes granule) {
  if (value == Bytes{} || !is_multiple(value, granule)) {
    return misaligned(what, value, granule);
  }
  return {};
}

Result<void, VirtualMemoryError> check_inside(ByteRange range, Bytes whole, Bytes granule) {
  if (!is_multiple(range.offset, granule)) {
    return misaligned("offset", range.offset, granule);
  }
  MEMSTRATA_TRY_VOID(check_length("length", range.size, granule));
  const Bytes end = saturating_add(range.offset, range.size);
  if (end > whole) {
    return fail(OutOfRange{
        .offset = range.offset, .length = range.size, .reserved = whole, .overrun = end - whole});
  }
  return {};
}

void ReservationRecord::settle() noexcept {
  const std::uint64_t needed = needed_mappings();
  if (needed > counted_mappings) {
    process_mappings().add(needed - counted_mappings);
  } else if (needed < counted_mappings) {
    process_mappings().subtract(counted_mappings - needed);
  }
  counted_mappings = needed;
  if (lease) {
    lease->shrink(saturating_sub(lease->bytes(), held()));
  }
}

Result<void, VirtualMemoryError> ReservationRecord::check_range(ByteRange range) const {
  if (state->is_whole(range.offset) && state->is_whole(range.size) && !range.empty() &&
      range.offset <= place.size && range.size <= place.size - range.offset) [[likely]] {
    return {};
  }
  return check_inside(range, place.size, state->granule());
}

Result<void, VirtualMemoryError> ReservationRecord::check_vacant(ByteRange range) const {
  const auto private_one = committed.first_set(range);
  const auto shared_one = first_shared(range);
  if (private_one || shared_one) {
    return fail(AlreadyMapped{
        .offset = std::min(private_one.value_or(Bytes::max()), shared_one.value_or(Bytes::max()))});
  }
  return {};
}

std::optional<Bytes> ReservationRecord::first_shared(ByteRange range) const noexcept {
  if (pieces.empty()) {
    return std::nullopt;
  }
  auto piece = pieces.upper_bound(range.offset.value);
  if (piece != pieces.begin()) {
    const auto before = std::prev(piece);
    if (Bytes{before->first} + before->second.size > range.offset) {
      return range.offset;
    }
  }
  if (piece != pieces.end() && Bytes{piece->first} < range.end()) {
    return Bytes{piece->first};
  }
  return std::nullopt;
}

Result<void, VirtualMemoryError> ReservationRecord::check_shared(ByteRange range) const {
  Bytes at = range.offset;
  while (at < range.end()) {
    if (first_shared({.offset = at, .size = range.end() - at}) != at) {
      return fail(NotMapped{.offset = at});
    }
    const auto piece = std::prev(pieces.upper_bound(at.value));
    at = Bytes{piece->first} + piece->second.size;
  }
  return {};
}

Result<void, VirtualMemoryError> ReservationRecord::claim(const char* operation, Bytes extra) {
  if (lease) {
    if (auto grown = lease->grow(extra); !grown) {
      return fail(VirtualMemoryError::delegated(operation, std::move(grown).error()));
    }
  }
  return {};
}

Result<void, VirtualMemoryError> ReservationRecord::discard_retained() noexcept {
  if (!retained.empty()) {
    if (const SystemResult gone = advise(retained, Advice::discard); !gone.is_ok()) {
      return fail(refused(SystemCallKind::advise, gone.error));
    }
    retained = {};
    settle();
  }
  return {};
}

}  // namespace memstrata::host::detail
