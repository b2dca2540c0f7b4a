// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace memstrata::detail {

/// Counts, for every use of a key, the different keys used since its last use. Keys are dense numbers from 0.
///
/// Each key has a mark at the position of its last use; a Fenwick tree over the positions counts the marks behind
/// one. When the positions run out, the marks are moved together. Cost: O(log keys) per use, spread evenly; 16 to
/// 32 bytes per key. Single-threaded.
class StackDistance {
 public:
  /// Uses `key`, which is at most the number of different keys so far. The number of different other keys since
  /// its last use, or nothing at its first. Throws std::bad_alloc with nothing changed but room made.
  [[nodiscard]] std::optional<std::uint64_t> use(std::uint32_t key);

 private:
  void move_together();
  void add(std::size_t position, std::int32_t change) noexcept;
  [[nodiscard]] std::uint64_t marks_up_to(std::size_t position) const noexcept;

  std::vector<std::uint64_t> position_;  // By key: where its mark is, from 1.
  std::vector<std::uint32_t> owner_;     // By position - 1: the key that was used there.
  std::vector<std::uint32_t> tree_;      // By position - 1.
  std::size_t used_ = 0;                 // Positions given out.
};

}  // namespace memstrata::detail
