// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "memstrata/core/bytes.hpp"

namespace memstrata {

/// How well a space is used at one instant.
struct Fragmentation {
  Bytes total;           ///< The whole space.
  Bytes used;            ///< Covered by blocks.
  Bytes requested;       ///< What the users of the blocks asked for.
  Bytes free;            ///< `total` - `used`.
  Bytes largest_free;    ///< The largest gap: what the next request could get at most.
  std::uint64_t blocks;  ///< Blocks.
  std::uint64_t gaps;    ///< Gaps between, before and behind them.

  /// The part of the used bytes that nobody asked for: rounding. 0 to 1; 0 if nothing is used.
  [[nodiscard]] double internal() const noexcept;

  /// The part of the free bytes that lies outside the largest gap: scattering. 0 to 1; 0 if nothing is free.
  [[nodiscard]] double external() const noexcept;

  /// Calls `field(name, value)` for each field, for text, JSON and other reporters alike.
  template <class Field>
  void for_each(Field&& field) const {
    field("total_bytes", total.value);
    field("used_bytes", used.value);
    field("requested_bytes", requested.value);
    field("free_bytes", free.value);
    field("largest_free_bytes", largest_free.value);
    field("blocks", blocks);
    field("gaps", gaps);
  }
};

/// Measures a space of `total` bytes whose used blocks are `used`: sorted, disjoint, inside the space, none empty
/// (checked; anything else stops the program). `requested` is at most their sum. Linear in the blocks.
[[nodiscard]] Fragmentation measure_fragmentation(Bytes total,
                                                  std::span<const ByteRange> used,
                                                  Bytes requested) noexcept;

}  // namespace memstrata
