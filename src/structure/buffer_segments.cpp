// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/buffer_segments.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"

namespace memstrata {
namespace {

/// The common part of two ranges; empty if there is none.
[[nodiscard]] ByteRange common(ByteRange a, ByteRange b) noexcept {
  const Bytes start = std::max(a.offset, b.offset);
  return {.offset = start, .size = saturating_sub(std::min(a.end(), b.end()), start)};
}

}  // namespace

BufferSegments::BufferSegments(BufferSegments&& other) noexcept
    : segments_(std::exchange(other.segments_, {})),
      live_count_(std::exchange(other.live_count_, 0)),
      end_(std::exchange(other.end_, Bytes{})),
      committed_(std::exchange(other.committed_, Bytes{})),
      shared_(std::exchange(other.shared_, Bytes{})) {}

BufferSegments& BufferSegments::operator=(BufferSegments&& other) noexcept {
  BufferSegments moved(std::move(other));
  std::swap(segments_, moved.segments_);
  std::swap(live_count_, moved.live_count_);
  std::swap(end_, moved.end_);
  std::swap(committed_, moved.committed_);
  std::swap(shared_, moved.shared_);
  return *this;
}

std::span<const BufferSegment> BufferSegments::live() const noexcept {
  return std::span(segments_).first(live_count_);
}

std::span<const BufferSegment> BufferSegments::stranded() const noexcept {
  return std::span(segments_).subspan(live_count_);
}

std::optional<SegmentKind> BufferSegments::kind_at(Bytes offset) const noexcept {
  if (offset >= end_) {
    return std::nullopt;
  }
  return segments_[live_index_of(offset)].kind;
}

Bytes BufferSegments::shared_in(ByteRange range) const noexcept {
  Bytes sum;
  for (const BufferSegment& segment : live()) {
    if (segment.kind == SegmentKind::shared) {
      sum += common(segment.range, range).size;
    }
  }
  return sum;
}

std::optional<ByteRange> BufferSegments::first_shared(ByteRange range) const noexcept {
  for (const BufferSegment& segment : live()) {
    const ByteRange part = common(segment.range, range);
    if (segment.kind == SegmentKind::shared && !part.empty()) {
      return part;
    }
  }
  return std::nullopt;
}

bool BufferSegments::make_room(std::size_t more) noexcept {
  const std::size_t wanted = segments_.size() + more;
  if (wanted <= segments_.capacity()) {
    return true;
  }
  try {
    segments_.reserve(std::max(wanted, segments_.capacity() * 2));
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

void BufferSegments::append(Bytes size, SegmentKind kind) noexcept {
  MEMSTRATA_VERIFY(!has_stranded(), "append below stranded segments", end_.value);
  if (kind == SegmentKind::committed && !segments_.empty() && segments_.back().kind == kind) {
    segments_.back().range.size += size;
  } else {
    segments_.push_back({.range = {.offset = end_, .size = size}, .kind = kind});
    ++live_count_;
  }
  end_ += size;
  total(kind) += size;
}

void BufferSegments::strand_from(Bytes offset) noexcept {
  if (offset >= end_) {
    return;
  }
  std::size_t first = live_index_of(offset);
  if (segments_[first].range.offset != offset) {
    split(first, offset);
    ++first;
  }
  live_count_ = first;
  end_ = offset;
}

void BufferSegments::strand(ByteRange range, SegmentKind kind) noexcept {
  MEMSTRATA_VERIFY(
      range.offset >= end_ && (segments_.empty() || range.offset >= segments_.back().range.end()),
      "stranded memory must lie above what is known",
      range.offset.value,
      end_.value);
  total(kind) += range.size;
  if (has_stranded() && segments_.back().kind == kind &&
      segments_.back().range.end() == range.offset) {
    segments_.back().range.size += range.size;
  } else {
    segments_.push_back({.range = range, .kind = kind});
  }
}

void BufferSegments::release_stranded_front(Bytes gone) noexcept {
  BufferSegment& top = segments_.back();
  MEMSTRATA_VERIFY(has_stranded() && gone <= top.range.size,
                   "release of what is not stranded",
                   gone.value,
                   top.range.size.value);
  total(top.kind) -= gone;
  if (gone == top.range.size) {
    segments_.pop_back();
  } else {
    top.range = {.offset = top.range.offset + gone, .size = top.range.size - gone};
  }
}

void BufferSegments::make_private(ByteRange range) noexcept {
  std::size_t index = live_index_of(range.offset);
  if (segments_[index].range.offset != range.offset) {
    split(index, range.offset);
    ++index;
  }
  if (segments_[index].range.end() != range.end()) {
    split(index, range.end());
  }
  segments_[index].kind = SegmentKind::committed;
  shared_ -= range.size;
  committed_ += range.size;
  join_if_private(index);
  if (index > 0) {
    join_if_private(index - 1);
  }
}

bool BufferSegments::validate() const noexcept {
  Bytes next;
  Bytes committed;
  Bytes shared;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const auto& [range, kind] = segments_[i];
    const bool is_live = i < live_count_;
    if (range.empty() || range.offset < next || (is_live && range.offset != next)) {
      return false;
    }
    next = range.end();
    (kind == SegmentKind::committed ? committed : shared) += range.size;
    if (i + 1 == live_count_ && next != end_) {
      return false;
    }
  }
  return live_count_ <= segments_.size() && (live_count_ != 0 || end_ == Bytes{}) &&
         committed == committed_ && shared == shared_;
}

Bytes& BufferSegments::total(SegmentKind kind) noexcept {
  return kind == SegmentKind::committed ? committed_ : shared_;
}

std::size_t BufferSegments::live_index_of(Bytes offset) const noexcept {
  const auto all = live();
  const auto after = std::upper_bound(
      all.begin(), all.end(), offset, [](Bytes wanted, const BufferSegment& segment) {
        return wanted < segment.range.offset;
      });
  MEMSTRATA_VERIFY(after != all.begin(), "no live segment there", offset.value, end_.value);
  return static_cast<std::size_t>(std::distance(all.begin(), after)) - 1;
}

void BufferSegments::split(std::size_t index, Bytes offset) noexcept {
  BufferSegment& lower = segments_[index];
  const BufferSegment upper{.range = {.offset = offset, .size = lower.range.end() - offset},
                            .kind = lower.kind};
  lower.range.size = offset - lower.range.offset;
  // Cannot allocate: the caller made room.
  segments_.insert(segments_.begin() + static_cast<std::ptrdiff_t>(index) + 1, upper);
  ++live_count_;
}

void BufferSegments::join_if_private(std::size_t index) noexcept {
  if (index + 1 >= live_count_ || segments_[index].kind != SegmentKind::committed ||
      segments_[index + 1].kind != SegmentKind::committed) {
    return;
  }
  segments_[index].range.size += segments_[index + 1].range.size;
  segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(index) + 1);
  --live_count_;
}

}  // namespace memstrata
