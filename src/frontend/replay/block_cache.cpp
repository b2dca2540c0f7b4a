// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/block_cache.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "frontend/replay/replay_input.hpp"
#include "memstrata/core/check.hpp"

namespace memstrata::replay_detail {

std::size_t BlockCache::hit_run(std::span<const BlockIndex> path) const noexcept {
  const auto end =
      std::ranges::find_if_not(path, [this](BlockIndex block) { return blocks_[block].present; });
  return static_cast<std::size_t>(end - path.begin());
}

void BlockCache::create(BlockIndex block, std::uint32_t depth, std::int64_t ready_ns) noexcept {
  Block& made = blocks_[block];
  MEMSTRATA_VERIFY(!made.present && made.users == 0, "a present block is made again", block);
  made.present = true;
  made.depth = depth;
  made.ready_ns = ready_ns;
  ++idle_;
}

std::uint32_t BlockCache::use(BlockIndex block) noexcept {
  Block& used = blocks_[block];
  if (used.users == 0) {
    --idle_;
  }
  return used.users++;
}

void BlockCache::stamp(std::span<const BlockIndex> path) noexcept {
  ++clock_;
  for (const BlockIndex block : path) {
    blocks_[block].stamp = clock_;
  }
}

std::uint32_t BlockCache::unuse(BlockIndex block) {
  Block& used = blocks_[block];
  MEMSTRATA_VERIFY(used.users > 0, "a block without users is given back", block);
  if (--used.users == 0) {
    ++idle_;
    if (order_.size() > 1024 && order_.size() > 2 * idle_) {
      drop_outdated();
    }
    order_.push_back({.stamp = used.stamp, .depth = used.depth, .block = block});
    std::ranges::push_heap(order_, GoesAfter());
  }
  return used.users;
}

std::optional<BlockIndex> BlockCache::evict() noexcept {
  while (!order_.empty()) {
    std::ranges::pop_heap(order_, GoesAfter());
    const Candidate candidate = order_.back();
    order_.pop_back();
    if (is_current(candidate)) {
      blocks_[candidate.block].present = false;
      --idle_;
      return candidate.block;
    }
  }
  return std::nullopt;
}

void BlockCache::drop_outdated() {
  std::erase_if(order_, [this](const Candidate& candidate) { return !is_current(candidate); });
  std::ranges::make_heap(order_, GoesAfter());
}

}  // namespace memstrata::replay_detail
