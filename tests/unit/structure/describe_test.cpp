// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/describe.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"

namespace memstrata {
namespace {

TEST(Describe, ALongListIsCutAndCounted) {
  std::vector<ByteRange> runs;
  for (std::uint64_t i = 0; i < 20; ++i) {
    runs.push_back({.offset = 8_B * i, .size = 4_B});
  }

  const std::string text = describe_range({.base = DeviceAddress{0x1000},
                                           .size = 160_B,
                                           .granule = 4_B,
                                           .committed = 80_B,
                                           .leased = 80_B},
                                          runs);

  EXPECT_NE(text.find("at 0x1000"), std::string::npos) << text;
  EXPECT_NE(text.find("[120, 124) and 4 more"), std::string::npos) << text;
  EXPECT_EQ(text.find("[128,"), std::string::npos) << text;
}

TEST(Describe, AListThatJustFitsIsWhole) {
  std::vector<ByteRange> runs;
  for (std::uint64_t i = 0; i < 16; ++i) {
    runs.push_back({.offset = 8_B * i, .size = 4_B});
  }

  const std::string text = describe_range(
      {.base = {}, .size = 160_B, .granule = 4_B, .committed = 64_B, .leased = 64_B}, runs);

  EXPECT_TRUE(text.ends_with("[112, 116), [120, 124)")) << text;
}

TEST(Describe, NothingCommittedIsSaid) {
  const std::string text =
      describe_range({.base = {}, .size = 4_B, .granule = 4_B, .committed = {}, .leased = {}}, {});

  EXPECT_NE(text.find("committed: none"), std::string::npos) << text;
}

}  // namespace
}  // namespace memstrata
