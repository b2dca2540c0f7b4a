// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/describe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>

#include "memstrata/core/bytes.hpp"
#include "memstrata/structure/buffer_segments.hpp"

namespace memstrata {
namespace {

constexpr std::size_t most_listed = 16;

[[nodiscard]] std::string text(ByteRange range) {
  return fmt::format("[{}, {})", range.offset.value, range.end().value);
}

[[nodiscard]] std::string text(const BufferSegment& segment) {
  return fmt::format(
      "{} {}", segment.kind == SegmentKind::committed ? "private" : "shared", text(segment.range));
}

/// The items, separated, with a count of those that are left out.
template <class Item>
[[nodiscard]] std::string list(std::span<const Item> items) {
  std::string result;
  for (const Item& item : items.first(std::min(items.size(), most_listed))) {
    result += result.empty() ? "" : ", ";
    result += text(item);
  }
  if (items.size() > most_listed) {
    fmt::format_to(std::back_inserter(result), " and {} more", items.size() - most_listed);
  }
  return items.empty() ? "none" : result;
}

}  // namespace

std::string describe_range(const RangeFigures& figures, std::span<const ByteRange> runs) {
  return fmt::format(
      "VirtualRange at {:#x}: {} bytes in granules of {}, {} committed, {} leased; committed: {}",
      figures.base.value(),
      figures.size.value,
      figures.granule.value,
      figures.committed.value,
      figures.leased.value,
      list(runs));
}

std::string describe_buffer(const BufferFigures& figures, const BufferSegments& segments) {
  std::string result = fmt::format(
      "VirtualBuffer at {:#x}: length {} of {} bytes in granules of {}, {} committed, {} shared, "
      "{} leased; segments: {}",
      figures.base.value(),
      figures.length.value,
      figures.capacity.value,
      figures.granule.value,
      figures.committed.value,
      figures.shared.value,
      figures.leased.value,
      list(segments.live()));
  if (segments.has_stranded()) {
    result += "; not yet returned: " + list(segments.stranded());
  }
  return result;
}

}  // namespace memstrata
