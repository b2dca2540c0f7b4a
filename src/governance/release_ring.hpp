// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace memstrata::detail {

/// A queue of movable values in one array that is used round and round. It grows by `reserve` only, so that pushing
/// neither allocates nor fails. Single-threaded.
template <class T>
class Ring {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  [[nodiscard]] std::size_t capacity() const noexcept { return slots_.size(); }

  /// Moves everything into `wider`, which is empty and at least as large, and takes its array; the old array stays
  /// in `wider`.
  void move_into(std::vector<std::optional<T>>& wider) noexcept {
    for (std::size_t i = 0; i < size_; ++i) {
      wider[i] = std::move(slots_[index(i)]);
      slots_[index(i)].reset();
    }
    std::swap(slots_, wider);
    first_ = 0;
  }

  /// There is room.
  void push_back(T value) noexcept {
    slots_[index(size_)].emplace(std::move(value));
    ++size_;
  }

  /// There is room.
  void push_front(T value) noexcept {
    first_ = (first_ + slots_.size() - 1) % slots_.size();
    slots_[first_].emplace(std::move(value));
    ++size_;
  }

  /// The first value, which exists.
  [[nodiscard]] T pop_front() noexcept {
    T value = *std::move(slots_[first_]);
    slots_[first_].reset();
    first_ = (first_ + 1) % slots_.size();
    --size_;
    return value;
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
    return (first_ + at) % slots_.size();
  }

  std::vector<std::optional<T>> slots_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace memstrata::detail
