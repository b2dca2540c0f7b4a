// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/block_cache.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace memstrata::replay_detail {
namespace {

/// Makes and uses a path that is absent so far.
void hold(BlockCache& cache, const std::vector<BlockIndex>& path) {
  for (std::uint32_t depth = 0; depth < path.size(); ++depth) {
    if (!cache.is_present(path[depth])) {
      cache.create(path[depth], depth, 0);
    }
    cache.use(path[depth]);
  }
  cache.stamp(path);
}

void let_go(BlockCache& cache, const std::vector<BlockIndex>& path) {
  for (const BlockIndex block : path) {
    cache.unuse(block);
  }
}

TEST(BlockCacheHitRun, EndsAtTheFirstAbsentBlock) {
  BlockCache cache(4);
  hold(cache, {0, 1});

  EXPECT_EQ(cache.hit_run(std::vector<BlockIndex>{0, 1, 2}), 2U);
  EXPECT_EQ(cache.hit_run(std::vector<BlockIndex>{3, 1}), 0U);
}

TEST(BlockCacheEvict, TakesTheDeepestOfEqualStampsFirst) {
  BlockCache cache(3);
  hold(cache, {0, 1, 2});
  let_go(cache, {0, 1, 2});

  EXPECT_EQ(cache.evict(), std::optional<BlockIndex>(2));
  EXPECT_EQ(cache.evict(), std::optional<BlockIndex>(1));
  EXPECT_EQ(cache.evict(), std::optional<BlockIndex>(0));
  EXPECT_EQ(cache.evict(), std::nullopt);
}

TEST(BlockCacheEvict, TakesTheOldestStampFirst) {
  BlockCache cache(3);
  hold(cache, {0, 1});
  let_go(cache, {0, 1});
  hold(cache, {2});
  let_go(cache, {2});
  hold(cache, {0});
  let_go(cache, {0});

  EXPECT_EQ(cache.evict(), std::optional<BlockIndex>(1));
  EXPECT_EQ(cache.evict(), std::optional<BlockIndex>(2));
  EXPECT_EQ(cache.evict(), std::optional<BlockIndex>(0));
}

TEST(BlockCacheEvict, NeverTakesABlockInUse) {
  BlockCache cache(2);
  hold(cache, {0, 1});
  hold(cache, {0});
  let_go(cache, {0, 1});

  EXPECT_EQ(cache.idle(), 1U);
  EXPECT_EQ(cache.evict(), std::optional<BlockIndex>(1));
  EXPECT_EQ(cache.evict(), std::nullopt);
}

// A request that loses its place does not stamp: its blocks keep the time of their last admission or completion.
TEST(BlockCacheEvict, GoesByTheLastStampNotByTheTimeOfRelease) {
  BlockCache cache(2);
  hold(cache, {0});
  hold(cache, {1});
  let_go(cache, {1});
  let_go(cache, {0});

  EXPECT_EQ(cache.evict(), std::optional<BlockIndex>(0));
}

TEST(BlockCacheEvict, ForgetsTheOldPlaceOfABlockThatWasUsedAgain) {
  BlockCache cache(2);
  hold(cache, {0});
  let_go(cache, {0});
  hold(cache, {1});
  let_go(cache, {1});
  hold(cache, {0});

  EXPECT_EQ(cache.evict(), std::optional<BlockIndex>(1));
  EXPECT_EQ(cache.evict(), std::nullopt);
  EXPECT_TRUE(cache.is_present(0));
}

// The order is a heap with outdated entries, which is cleaned when these prevail.
TEST(BlockCacheEvict, KeepsItsOrderOverManyUses) {
  BlockCache cache(8);
  for (int round = 0; round < 5'000; ++round) {
    for (BlockIndex block = 0; block < 8; ++block) {
      hold(cache, {block});
      let_go(cache, {block});
    }
  }

  for (BlockIndex block = 0; block < 8; ++block) {
    EXPECT_EQ(cache.evict(), std::optional(block));
  }
}

}  // namespace
}  // namespace memstrata::replay_detail
