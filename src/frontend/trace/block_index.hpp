// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace memstrata::detail {

/// Numbers keys densely in order of first appearance: an open hash table of 4-byte slots over an array of keys,
/// about 16 bytes per key. Takes less than 2^32 - 1 keys. Single-threaded; const calls in parallel.
class BlockIndex {
 public:
  struct Place {
    std::uint32_t index = 0;
    bool is_new = false;
  };

  /// The number of `key`, which is given one if it has none. Strong guarantee if memory runs out.
  /// Throws std::bad_alloc, and std::length_error above the largest number of keys.
  [[nodiscard]] Place insert(std::uint64_t key);
  /// The number of `key`, if it has one.
  [[nodiscard]] std::optional<std::uint32_t> find(std::uint64_t key) const noexcept;
  /// Forgets the key that was given a number last. There is at least one.
  void pop() noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return keys_.size(); }

  [[nodiscard]] std::uint64_t key(std::uint32_t index) const noexcept { return keys_[index]; }

 private:
  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const noexcept;
  void grow();

  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t>
      slots_;  // Index + 1, or 0; size is 0 or a power of two; at most 3/4 full.
};

}  // namespace memstrata::detail
