// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "frontend/replay/replay_input.hpp"

namespace memstrata::replay_detail {

/// Which full prompt blocks are present, who uses them and in what order the idle ones go (R3, R6).
///
/// A request holds whole paths from the root, so an idle block never has a used child; and a path is stamped as a
/// whole, so no block is older than its child. The order "oldest stamp first, then deepest" therefore never names
/// a block with a present child. O(log n) per change. Single-threaded.
class BlockCache {
 public:
  explicit BlockCache(std::size_t blocks) : blocks_(blocks) {}

  /// Length of the longest run of present blocks from the root.
  [[nodiscard]] std::size_t hit_run(std::span<const BlockIndex> path) const noexcept;

  /// When the block's content exists.
  [[nodiscard]] std::int64_t ready_ns(BlockIndex block) const noexcept {
    return blocks_[block].ready_ns;
  }

  [[nodiscard]] bool is_present(BlockIndex block) const noexcept { return blocks_[block].present; }

  [[nodiscard]] std::uint32_t users(BlockIndex block) const noexcept {
    return blocks_[block].users;
  }

  /// Position of a present block in its path.
  [[nodiscard]] std::uint32_t depth(BlockIndex block) const noexcept {
    return blocks_[block].depth;
  }

  /// Blocks that are present and used by nobody.
  [[nodiscard]] std::size_t idle() const noexcept { return idle_; }

  /// Makes an absent block present, with no user yet; `stamp` and `use` follow.
  void create(BlockIndex block, std::uint32_t depth, std::int64_t ready_ns) noexcept;

  /// One more user; returns how many there were.
  std::uint32_t use(BlockIndex block) noexcept;

  /// A new last use for a whole path. Stamps grow with every call.
  void stamp(std::span<const BlockIndex> path) noexcept;

  /// One user less; returns how many are left. The block becomes idle with the last one.
  std::uint32_t unuse(BlockIndex block);

  /// Takes the idle block that goes first and makes it absent, or nothing if none is idle.
  [[nodiscard]] std::optional<BlockIndex> evict() noexcept;

 private:
  struct Block {
    std::uint64_t stamp = 0;
    std::int64_t ready_ns = 0;
    std::uint32_t users = 0;
    std::uint32_t depth = 0;
    bool present = false;
  };

  struct Candidate {
    std::uint64_t stamp;
    std::uint32_t depth;
    BlockIndex block;
  };

  /// Whether `a` goes after `b`: the order of a heap whose front goes first.
  struct GoesAfter {
    [[nodiscard]] bool operator()(const Candidate& a, const Candidate& b) const noexcept {
      return a.stamp != b.stamp ? a.stamp > b.stamp : a.depth < b.depth;
    }
  };

  [[nodiscard]] bool is_current(const Candidate& candidate) const noexcept {
    const Block& block = blocks_[candidate.block];
    return block.present && block.users == 0 && block.stamp == candidate.stamp;
  }

  void drop_outdated();

  std::vector<Block> blocks_;
  std::vector<Candidate>
      order_;  // a heap that also holds outdated entries; cleaned when they prevail
  std::uint64_t clock_ = 0;
  std::size_t idle_ = 0;
};

}  // namespace memstrata::replay_detail
