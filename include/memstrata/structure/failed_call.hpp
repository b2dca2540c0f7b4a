// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <variant>

#include "memstrata/contract/platform_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata::detail {

/// Whether the refusal says that a granule was not there to be given back.
[[nodiscard]] inline bool is_not_mapped(const VirtualMemoryError& error) noexcept {
  return std::holds_alternative<NotMapped>(error.kind);
}

/// After a commit of `range` failed: a backing whose kernel refused even to undo it still holds some of these
/// granules. Gives them back one by one and calls `stuck(granule)`, which must not throw, for each that stays
/// committed, lowest first. `before` is what the reservation had committed before the commit.
template <PlatformBacking B, class Stuck>
void undo_failed_commit(B& backing,
                        typename B::Reservation& reservation,
                        ByteRange range,
                        Bytes before,
                        Stuck&& stuck) {
  if (backing.committed(reservation) == before) {
    return;
  }
  const Bytes granule = backing.granularity();
  for (Bytes at = range.offset; at < range.end(); at += granule) {
    const ByteRange one{.offset = at, .size = granule};
    const auto undone = backing.decommit(reservation, one);
    if (!undone && !is_not_mapped(undone.error())) {
      stuck(one);
    }
  }
}

}  // namespace memstrata::detail
