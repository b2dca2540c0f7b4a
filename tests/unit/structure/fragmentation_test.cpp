// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/fragmentation.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

#include "memstrata/core/bytes.hpp"

namespace memstrata {
namespace {

TEST(Fragmentation, CountsBlocksGapsAndTheLargestGap) {
  const std::array used{ByteRange{.offset = 10_B, .size = 20_B},
                        ByteRange{.offset = 30_B, .size = 10_B},
                        ByteRange{.offset = 70_B, .size = 10_B}};

  const Fragmentation figures = measure_fragmentation(100_B, used, 30_B);

  EXPECT_EQ(figures.total, 100_B);
  EXPECT_EQ(figures.used, 40_B);
  EXPECT_EQ(figures.free, 60_B);
  EXPECT_EQ(figures.largest_free, 30_B);
  EXPECT_EQ(figures.blocks, 3U);
  EXPECT_EQ(figures.gaps, 3U);
  EXPECT_DOUBLE_EQ(figures.internal(), 0.25);
  EXPECT_DOUBLE_EQ(figures.external(), 0.5);
}

TEST(Fragmentation, AnEmptySpaceIsNotFragmented) {
  const Fragmentation empty = measure_fragmentation(100_B, {}, Bytes{});

  EXPECT_EQ(empty.largest_free, 100_B);
  EXPECT_EQ(empty.gaps, 1U);
  EXPECT_EQ(empty.internal(), 0.0);
  EXPECT_EQ(empty.external(), 0.0);
}

TEST(Fragmentation, AFullSpaceHasNoGapAndIsNotScattered) {
  const std::array used{ByteRange{.offset = {}, .size = 100_B}};

  const Fragmentation full = measure_fragmentation(100_B, used, 100_B);

  EXPECT_EQ(full.gaps, 0U);
  EXPECT_EQ(full.free, Bytes{});
  EXPECT_EQ(full.internal(), 0.0);
  EXPECT_EQ(full.external(), 0.0);
}

TEST(Fragmentation, EveryFieldIsReportedUnderItsName) {
  const std::array used{ByteRange{.offset = 8_B, .size = 4_B}};
  std::map<std::string, std::uint64_t> fields;

  measure_fragmentation(32_B, used, 3_B).for_each([&](const char* name, std::uint64_t value) {
    fields[name] = value;
  });

  EXPECT_EQ(fields,
            (std::map<std::string, std::uint64_t>{{"total_bytes", 32},
                                                  {"used_bytes", 4},
                                                  {"requested_bytes", 3},
                                                  {"free_bytes", 28},
                                                  {"largest_free_bytes", 20},
                                                  {"blocks", 1},
                                                  {"gaps", 2}}));
}

TEST(FragmentationDeathTest, BlocksThatOverlapOrLeaveTheSpaceStopTheProgram) {
  const std::array overlap{ByteRange{.offset = {}, .size = 20_B},
                           ByteRange{.offset = 10_B, .size = 20_B}};
  const std::array beyond{ByteRange{.offset = 90_B, .size = 20_B}};
  const std::array nothing{ByteRange{.offset = 10_B, .size = {}}};

  EXPECT_DEATH(static_cast<void>(measure_fragmentation(100_B, overlap, Bytes{})), "disjoint");
  EXPECT_DEATH(static_cast<void>(measure_fragmentation(100_B, beyond, Bytes{})), "inside");
  EXPECT_DEATH(static_cast<void>(measure_fragmentation(100_B, nothing, Bytes{})), "sorted");
  EXPECT_DEATH(static_cast<void>(measure_fragmentation(100_B, {}, 1_B)), "more was requested");
}

}  // namespace
}  // namespace memstrata
