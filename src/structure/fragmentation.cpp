// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/fragmentation.hpp"

#include <algorithm>
#include <span>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"

namespace memstrata {
namespace {

/// part / whole, or 0 for an empty whole.
[[nodiscard]] double share(Bytes part, Bytes whole) noexcept {
  return whole == Bytes{} ? 0.0
                          : static_cast<double>(part.value) / static_cast<double>(whole.value);
}

void add_gap(Fragmentation& figures, Bytes size) noexcept {
  if (size != Bytes{}) {
    figures.free += size;
    figures.largest_free = std::max(figures.largest_free, size);
    ++figures.gaps;
  }
}

}  // namespace

double Fragmentation::internal() const noexcept {
  return share(saturating_sub(used, requested), used);
}

double Fragmentation::external() const noexcept {
  return share(free - largest_free, free);
}

Fragmentation measure_fragmentation(Bytes total,
                                    std::span<const ByteRange> used,
                                    Bytes requested) noexcept {
  Fragmentation figures{.total = total,
                        .used = {},
                        .requested = requested,
                        .free = {},
                        .largest_free = {},
                        .blocks = used.size(),
                        .gaps = 0};
  Bytes at;
  for (const ByteRange& block : used) {
    MEMSTRATA_VERIFY(!block.empty() && block.offset >= at && block.end() <= total,
                     "blocks must be sorted, disjoint and inside the space",
                     block.offset.value,
                     block.size.value);
    add_gap(figures, block.offset - at);
    figures.used += block.size;
    at = block.end();
  }
  add_gap(figures, total - at);
  MEMSTRATA_VERIFY(requested <= figures.used,
                   "more was requested than is used",
                   requested.value,
                   figures.used.value);
  return figures;
}

}  // namespace memstrata
