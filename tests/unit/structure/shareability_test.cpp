// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/shareability.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "memstrata/core/bytes.hpp"

namespace memstrata {
namespace {

constexpr std::array all_layouts{KvLayout::head_major, KvLayout::seq_major, KvLayout::token_major};
constexpr KvShape large{.layers = 48, .kv_heads = 8, .head_dim = 128, .element = 2_B};
constexpr KvShape small{.layers = 24, .kv_heads = 2, .head_dim = 64, .element = 2_B};

// G-049
TEST(PrefixFragments, EveryLayoutHoldsTheSameBytesPerToken) {
  for (const KvLayout layout : all_layouts) {
    const PrefixFragments parts = prefix_fragments(large, layout);

    EXPECT_EQ(parts.contiguous_bytes_per_token * parts.fragments, 196608_B);
  }
  EXPECT_EQ(bytes_per_token(large), 196608_B);
}

// G-050
TEST(Shareability, TwoMebibyteGranulesRoundDownPerFragment) {
  const auto head = shareability(large, KvLayout::head_major, 2000, 2_MiB);
  const auto seq = shareability(large, KvLayout::seq_major, 2000, 2_MiB);
  const auto token = shareability(large, KvLayout::token_major, 2000, 2_MiB);

  EXPECT_EQ(head.fragments, 768U);
  EXPECT_EQ(head.fragment_bytes, 512000_B);
  EXPECT_FALSE(head.is_shareable());
  EXPECT_FALSE(head.reason().empty());
  EXPECT_EQ(head.map_operations, 0U);
  EXPECT_EQ(seq.fragments, 96U);
  EXPECT_EQ(seq.fragment_bytes, 4096000_B);
  EXPECT_EQ(seq.granules_per_fragment, 1U);
  EXPECT_EQ(seq.map_operations, 96U);
  EXPECT_EQ(token.fragments, 1U);
  EXPECT_EQ(token.fragment_bytes, 393216000_B);
  EXPECT_EQ(token.granules_per_fragment, 187U);
  EXPECT_EQ(token.map_operations, 187U);
}

// G-051
TEST(Shareability, SmallGranulesMakeEveryLayoutShareable) {
  const auto head = shareability(large, KvLayout::head_major, 2000, 64_KiB);
  const auto seq = shareability(large, KvLayout::seq_major, 2000, 64_KiB);

  EXPECT_TRUE(head.is_shareable());
  EXPECT_TRUE(head.reason().empty());
  EXPECT_EQ(head.granules_per_fragment, 7U);
  EXPECT_EQ(head.map_operations, 5376U);
  EXPECT_EQ(seq.granules_per_fragment, 62U);
}

// G-052
TEST(Shareability, OneTokenDecidesAtTheBoundary) {
  const auto below = shareability(large, KvLayout::head_major, 8191, 2_MiB);
  const auto exact = shareability(large, KvLayout::head_major, 8192, 2_MiB);

  EXPECT_FALSE(below.is_shareable());
  EXPECT_TRUE(exact.is_shareable());
  EXPECT_EQ(exact.fragment_bytes, 2_MiB);
  EXPECT_EQ(exact.granules_per_fragment, 1U);
  EXPECT_EQ(exact.waste, Bytes{});
  EXPECT_EQ(exact.shared_bytes(), 2_MiB * 768);
}

// G-053
TEST(Shareability, ASmallModelSharesOnlyTokenMajor) {
  EXPECT_FALSE(shareability(small, KvLayout::head_major, 2000, 2_MiB).is_shareable());
  EXPECT_FALSE(shareability(small, KvLayout::seq_major, 2000, 2_MiB).is_shareable());
  EXPECT_EQ(shareability(small, KvLayout::token_major, 2000, 2_MiB).granules_per_fragment, 11U);
}

// G-054
TEST(Shareability, SixtyFourTokensFillAPageInEveryLayout) {
  for (const KvLayout layout : all_layouts) {
    EXPECT_TRUE(shareability(large, layout, 64, 4_KiB).is_shareable());
  }
}

// G-055
TEST(Shareability, TheWasteIsWhatEachSequenceKeepsOfThePrefix) {
  EXPECT_EQ(shareability(large, KvLayout::head_major, 2000, 2_MiB).waste, 512000_B * 768);
  EXPECT_EQ(shareability(large, KvLayout::token_major, 2000, 2_MiB).waste,
            393216000_B - 2_MiB * 187);
}

// G-056
TEST(Shareability, AGranuleOfZeroSharesNothingAndSaysWhy) {
  const auto none = shareability(large, KvLayout::token_major, 2000, Bytes{});

  EXPECT_FALSE(none.is_shareable());
  EXPECT_EQ(none.granules_per_fragment, 0U);
  EXPECT_EQ(none.map_operations, 0U);
  EXPECT_EQ(none.waste, 393216000_B);
  EXPECT_NE(none.reason().find("granule"), std::string::npos);
}

TEST(Shareability, TheReasonNamesTheNumbers) {
  const std::string reason = shareability(large, KvLayout::head_major, 2000, 2_MiB).reason();

  EXPECT_NE(reason.find("768"), std::string::npos) << reason;
  EXPECT_NE(reason.find("512000"), std::string::npos) << reason;
  EXPECT_NE(reason.find("2097152"), std::string::npos) << reason;
}

TEST(Shareability, ProductsSaturateInsteadOfWrapping) {
  constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();

  const auto figures = shareability(huge, Bytes{huge}, 4_KiB);

  EXPECT_EQ(figures.map_operations, huge);
  EXPECT_EQ(figures.waste, Bytes::max());
  EXPECT_EQ(figures.shared_bytes(), Bytes::max());
  EXPECT_EQ(bytes_per_token({.layers = huge, .kv_heads = 2, .head_dim = 2, .element = 2_B}),
            Bytes::max());
}

TEST(SequencesInABudget, SharingChargesThePrefixOnce) {
  EXPECT_EQ(sequences_without_sharing(100_MiB, 30_MiB, 10_MiB), 2U);
  EXPECT_EQ(sequences_with_sharing(100_MiB, 30_MiB, 10_MiB), 8U);
  EXPECT_EQ(sequences_with_sharing(20_MiB, 30_MiB, 10_MiB), 0U);
}

TEST(SequencesInABudget, APrefixThatJustFitsIsKeptByOneSequence) {
  EXPECT_EQ(sequences_with_sharing(30_MiB, 30_MiB, 10_MiB), 1U);
  EXPECT_EQ(sequences_with_sharing(40_MiB - 1_B, 30_MiB, 10_MiB), 1U);
  EXPECT_EQ(sequences_with_sharing(40_MiB, 30_MiB, 10_MiB), 2U);
  EXPECT_EQ(sequences_with_sharing(30_MiB - 1_B, 30_MiB, 10_MiB), 0U);
  EXPECT_EQ(sequences_without_sharing(40_MiB - 1_B, 30_MiB, 10_MiB), 0U);
  EXPECT_EQ(sequences_without_sharing(40_MiB, 30_MiB, 10_MiB), 1U);
}

}  // namespace
}  // namespace memstrata
