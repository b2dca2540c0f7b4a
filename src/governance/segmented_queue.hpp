// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "memstrata/core/check.hpp"

namespace memstrata::detail {

/// A queue of values in segments of `N`, none of which ever moves while it is in the queue: who has the address of a
/// value may use it while others push. It grows by `add` only, so that pushing neither allocates nor fails; segments
/// that are empty again are used again. Single-threaded, but for values in hand.
template <class T, std::size_t N>
class SegmentedQueue {
 public:
  struct Segment {
    /// Room for one value.
    struct alignas(T) Slot {
      std::array<std::byte, sizeof(T)> bytes;
    };

    std::array<Slot, N> slots;
    std::unique_ptr<Segment> next;
  };

  SegmentedQueue() noexcept = default;
  SegmentedQueue(const SegmentedQueue&) = delete;
  SegmentedQueue& operator=(const SegmentedQueue&) = delete;
  SegmentedQueue(SegmentedQueue&&) = delete;
  SegmentedQueue& operator=(SegmentedQueue&&) = delete;

  ~SegmentedQueue() {
    for_each([](T& value) { std::destroy_at(&value); });
    while (head_ != nullptr) {  // one after the other: a chain may be longer than the stack is deep
      head_ = std::move(head_->next);
    }
  }

  /// A segment for `add`, or null without memory for it.
  [[nodiscard]] static std::unique_ptr<Segment> make_segment() noexcept {
    try {
      return std::make_unique_for_overwrite<Segment>();
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  /// Whether `push` may be called.
  [[nodiscard]] bool has_room() const noexcept { return first_ + size_ < segments_ * N; }

  /// Room for `N` more.
  void add(std::unique_ptr<Segment> segment) noexcept {
    Segment* const raw = segment.get();
    (last_ == nullptr ? head_ : last_->next) = std::move(segment);
    last_ = raw;
    tail_ = tail_ == nullptr ? raw : tail_;
    ++segments_;
  }

  /// A new last value made of `parts`. There is room.
  template <class... Parts>
  void push(Parts&&... parts) noexcept {
    MEMSTRATA_ASSERT(has_room(), "a push without room", size_);
    if (tail_end_ == N) {
      tail_ = tail_->next.get();
      tail_end_ = 0;
    }
    ::new (static_cast<void*>(&tail_->slots[tail_end_++])) T{std::forward<Parts>(parts)...};
    ++size_;
  }

  /// Calls `use` for the values from the first on, for `most` of them or all.
  template <class Use>
  void for_each(Use&& use, std::size_t most = static_cast<std::size_t>(-1)) {
    Segment* segment = head_.get();
    std::size_t at = first_;
    for (std::size_t left = std::min(most, size_); left != 0; --left) {
      use(*std::launder(reinterpret_cast<T*>(&segment->slots[at])));
      if (++at == N) {
        segment = segment->next.get();
        at = 0;
      }
    }
  }

  /// The first `count` values, which exist, are gone: their owner has destroyed them.
  void drop_destroyed(std::size_t count) noexcept {
    first_ += count;
    size_ -= count;
    while (first_ >= N && segments_ > 1) {
      first_ -= N;
      recycle_head();
    }
    if (size_ == 0) {  // so that short bursts use one segment again and again
      first_ = 0;
      tail_ = head_.get();
      tail_end_ = 0;
    }
  }

  void swap(SegmentedQueue& other) noexcept {
    std::swap(head_, other.head_);
    std::swap(last_, other.last_);
    std::swap(tail_, other.tail_);
    std::swap(segments_, other.segments_);
    std::swap(first_, other.first_);
    std::swap(tail_end_, other.tail_end_);
    std::swap(size_, other.size_);
  }

 private:
  /// The first segment, whose values are gone, becomes the last one; there is another.
  void recycle_head() noexcept {
    std::unique_ptr<Segment> segment = std::move(head_);
    head_ = std::move(segment->next);
    Segment* const raw = segment.get();
    last_->next = std::move(segment);
    last_ = raw;
  }

  std::unique_ptr<Segment> head_;  // owns all, in the order of their values; empty ones at the end
  Segment* last_ = nullptr;
  Segment* tail_ = nullptr;  // of the last value
  std::size_t segments_ = 0;
  std::size_t first_ = 0;     // in the head
  std::size_t tail_end_ = 0;  // values of the tail end there
  std::size_t size_ = 0;
};

}  // namespace memstrata::detail
