// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "memstrata/core/check.hpp"

namespace memstrata::detail {

/// A queue of movable values in one array that is used round and round. It grows by `move_into` only, so that pushing
/// neither allocates nor fails. Its capacity is a power of two, or 0. Single-threaded.
template <class T>
class Ring {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  [[nodiscard]] std::size_t capacity() const noexcept { return slots_.size(); }

  /// Moves everything into `wider`, which is empty, at least as large and as long as a power of two, and takes its
  /// array; the old array stays in `wider`.
  void move_into(std::vector<std::optional<T>>& wider) noexcept {
    MEMSTRATA_ASSERT(std::has_single_bit(wider.size()), "a ring of an odd length", wider.size());
    for (std::size_t i = 0; i < size_; ++i) {
      wider[i] = std::move(slots_[index(i)]);
      slots_[index(i)].reset();
    }
    std::swap(slots_, wider);
    first_ = 0;
  }

  /// There is room.
  void push_back(T&& value) noexcept {
    slots_[index(size_)].emplace(std::move(value));
    ++size_;
  }

  /// There is room.
  void push_front(T&& value) noexcept {
    first_ = index(slots_.size() - 1);
    slots_[first_].emplace(std::move(value));
    ++size_;
  }

  /// Moves the first value, which exists, into `into`, which is empty.
  void pop_front(std::optional<T>& into) noexcept {
    into.emplace(*std::move(slots_[first_]));
    slots_[first_].reset();
    first_ = index(1);
    --size_;
  }

  /// Calls `use` for every value, from the first to the last.
  template <class Use>
  void for_each(Use&& use) {
    for (std::size_t i = 0; i < size_; ++i) {
      use(*slots_[index(i)]);
    }
  }

 private:
  [[nodiscard]] std::size_t index(std::size_t at) const noexcept {
    return (first_ + at) & (slots_.size() - 1);
  }

  std::vector<std::optional<T>> slots_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace memstrata::detail
