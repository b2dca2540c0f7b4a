// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/holding.hpp"

#include <cstdint>

#include "replay_rig.hpp"

namespace memstrata::replay_detail {
namespace {

using test::tokens;
using test::toy_geometry;

// A block of 128 KiB and granules of 48 KiB: block 0 touches granules 0 to 2, block 1 granules 2 to 5, block 2
// granules 5 to 7. Each granule is mapped from the object that completes it.
class UnevenGranules : public testing::Test {
 protected:
  static constexpr Bytes granule{49'152};
  Holding holding{ReplayPolicy::virtual_memory, toy_geometry(), granule, 4'096};
};

TEST_F(UnevenGranules, GiveEachObjectEveryGranuleItTouches) {
  EXPECT_EQ(holding.object(0), granule * 3);
  EXPECT_EQ(holding.object(1), granule * 4);
  EXPECT_EQ(holding.object(2), granule * 3);
}

TEST_F(UnevenGranules, MapEachGranuleOnce) {
  EXPECT_EQ(holding.mapped(0), granule * 2);
  EXPECT_EQ(holding.mapped(1), granule * 3);
  EXPECT_EQ(holding.mapped(2), granule * 3);
}

// R4: of a run of hits the largest multiple of the granule is mapped, the rest copied.
TEST_F(UnevenGranules, CopyTheRestOfARun) {
  EXPECT_EQ(holding.seam(1), tokens(512) - granule * 2);
  EXPECT_EQ(holding.seam(2), tokens(1'024) - granule * 5);
  EXPECT_EQ(holding.seam(3), Bytes{});
}

TEST_F(UnevenGranules, CountWhollyMappedBlocksOnly) {
  EXPECT_EQ(holding.mapped_blocks(1), 0U);
  EXPECT_EQ(holding.mapped_blocks(2), 1U);
  EXPECT_EQ(holding.mapped_blocks(3), 3U);
}

// Its own part begins at the granule in which its blocks end: 512 tokens end in granule 2, 600 in granule 3.
TEST_F(UnevenGranules, ChargeTheStraddlingGranuleToTheRequest) {
  EXPECT_EQ(holding.private_bytes(1, 512), granule);
  EXPECT_EQ(holding.private_bytes(1, 600), granule * 2);
}

TEST(HoldingPages, AreWholeMachinePages) {
  KvGeometry geometry = toy_geometry();
  geometry.head_dim = 20;  // 80 bytes a token, 1,280 bytes a page of 16 tokens
  const Holding holding(ReplayPolicy::paged, geometry, Bytes{65'536}, 64);

  EXPECT_EQ(holding.page(), Bytes{4'096});
  EXPECT_EQ(holding.private_bytes(0, 17), Bytes{8'192});
}

// R9: a room of 300 tokens doubles to 600 and 1,200; the last copy holds 3 g and 5 g.
TEST(HoldingAlone, IsTheLargestCopyOfADoublingRoom) {
  const Holding holding(ReplayPolicy::realloc, toy_geometry(), Bytes{65'536}, 4'096);

  EXPECT_EQ(holding.alone(0, 300, 700), Bytes{65'536} * 8);
  EXPECT_EQ(holding.alone(0, 300, 0), Bytes{65'536} * 2);
  EXPECT_EQ(holding.doubled_capacity(300, 601), 1'200U);
}

// R16: a sliding layer holds min(n, window) tokens in a range of its own.
TEST(HoldingWindows, EndTheGrowthOfSlidingLayers) {
  KvGeometry geometry = toy_geometry();
  geometry.layers = 2;
  geometry.sliding_layers = 1;
  geometry.window = 300;
  const Holding holding(ReplayPolicy::virtual_memory, geometry, Bytes{65'536}, 4'096);

  EXPECT_EQ(holding.private_bytes(0, 256), Bytes{65'536} * 2);
  EXPECT_EQ(holding.private_bytes(0, 300), Bytes{65'536} * 4);
  EXPECT_EQ(holding.private_bytes(0, 600), Bytes{65'536} * 5);
  EXPECT_EQ(holding.live_private(0, 600), tokens(600) + tokens(300));
  EXPECT_EQ(holding.live_token(299), tokens(2));
  EXPECT_EQ(holding.live_token(300), tokens(1));
}

}  // namespace
}  // namespace memstrata::replay_detail
