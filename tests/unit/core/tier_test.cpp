// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/tier.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>

namespace memstrata {
namespace {

// B-001
TEST(Tier, IsListedInDemotionOrderWithStableNames) {
  ASSERT_EQ(all_tiers.size(), 3U);
  EXPECT_EQ(all_tiers[0], Tier::device);
  EXPECT_EQ(all_tiers[1], Tier::host);
  EXPECT_EQ(all_tiers[2], Tier::disk);
  EXPECT_EQ(to_string(Tier::device), "device");
  EXPECT_EQ(to_string(Tier::host), "host");
  EXPECT_EQ(to_string(Tier::disk), "disk");
}

TEST(Tier, ParsesItsOwnNamesAndNothingElse) {
  for (const Tier tier : all_tiers) {
    EXPECT_EQ(parse_tier(to_string(tier)), tier);
  }
  EXPECT_EQ(parse_tier("Device"), std::nullopt);
  EXPECT_EQ(parse_tier(""), std::nullopt);
}

TEST(Tier, IndexIsThePlaceInTheDemotionOrder) {
  for (std::size_t i = 0; i < tier_count; ++i) {
    EXPECT_EQ(index_of(all_tiers.at(i)), i);
  }
  EXPECT_LT(Tier::device, Tier::host);
  EXPECT_LT(Tier::host, Tier::disk);
}

}  // namespace
}  // namespace memstrata
