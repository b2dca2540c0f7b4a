// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/buffer_segments.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"

namespace memstrata {
namespace {

constexpr SegmentKind owned = SegmentKind::committed;
constexpr SegmentKind shared = SegmentKind::shared;

[[nodiscard]] BufferSegment segment(Bytes from, Bytes to, SegmentKind kind) {
  return {.range = {.offset = from, .size = to - from}, .kind = kind};
}

[[nodiscard]] std::vector<BufferSegment> live_of(const BufferSegments& segments) {
  return {segments.live().begin(), segments.live().end()};
}

[[nodiscard]] std::vector<BufferSegment> stranded_of(const BufferSegments& segments) {
  return {segments.stranded().begin(), segments.stranded().end()};
}

/// private [0, 4), shared [4, 8), shared [8, 12), private [12, 16)
[[nodiscard]] BufferSegments four() {
  BufferSegments segments;
  EXPECT_TRUE(segments.make_room(8));
  segments.append(4_B, owned);
  segments.append(4_B, shared);
  segments.append(4_B, shared);
  segments.append(4_B, owned);
  return segments;
}

TEST(BufferSegmentsAppend, PrivateNeighboursJoinAndPrefixesDoNot) {
  BufferSegments segments = four();
  segments.append(4_B, owned);

  EXPECT_EQ(live_of(segments),
            (std::vector{segment(0_B, 4_B, owned),
                         segment(4_B, 8_B, shared),
                         segment(8_B, 12_B, shared),
                         segment(12_B, 20_B, owned)}));
  EXPECT_EQ(segments.committed(), 12_B);
  EXPECT_EQ(segments.shared(), 8_B);
  EXPECT_EQ(segments.end(), 20_B);
  EXPECT_TRUE(segments.validate());
}

TEST(BufferSegmentsStrand, CutsTheSegmentAtTheOffset) {
  BufferSegments segments = four();

  segments.strand_from(10_B);

  EXPECT_EQ(segments.end(), 10_B);
  EXPECT_EQ(segments.live().back(), segment(8_B, 10_B, shared));
  EXPECT_EQ(stranded_of(segments),
            (std::vector{segment(10_B, 12_B, shared), segment(12_B, 16_B, owned)}));
  EXPECT_EQ(segments.committed(), 8_B);
  EXPECT_EQ(segments.shared(), 8_B);
  EXPECT_TRUE(segments.validate());
}

TEST(BufferSegmentsStrand, BeyondTheEndNothingIsStranded) {
  BufferSegments segments = four();

  segments.strand_from(16_B);
  segments.strand_from(100_B);

  EXPECT_FALSE(segments.has_stranded());
  EXPECT_EQ(segments.end(), 16_B);
}

TEST(BufferSegmentsRelease, TakesTheFrontOfTheTopmostUntilItIsGone) {
  BufferSegments segments = four();
  segments.strand_from(8_B);

  segments.release_stranded_front(1_B);
  EXPECT_EQ(segments.stranded().back(), segment(13_B, 16_B, owned));
  EXPECT_TRUE(segments.validate());
  segments.release_stranded_front(3_B);
  EXPECT_EQ(stranded_of(segments), (std::vector{segment(8_B, 12_B, shared)}));
  segments.release_stranded_front(4_B);

  EXPECT_FALSE(segments.has_stranded());
  EXPECT_EQ(segments.committed(), 4_B);
  EXPECT_EQ(segments.shared(), 4_B);
  EXPECT_TRUE(segments.validate());
}

TEST(BufferSegmentsStrand, AddedMemoryJoinsItsNeighbourAbove) {
  BufferSegments segments;
  ASSERT_TRUE(segments.make_room(4));
  segments.append(4_B, owned);

  segments.strand({.offset = 8_B, .size = 2_B}, owned);
  segments.strand({.offset = 10_B, .size = 2_B}, owned);
  segments.strand({.offset = 14_B, .size = 2_B}, owned);

  EXPECT_EQ(stranded_of(segments),
            (std::vector{segment(8_B, 12_B, owned), segment(14_B, 16_B, owned)}));
  EXPECT_EQ(segments.committed(), 10_B);
  EXPECT_EQ(segments.end(), 4_B);
  EXPECT_TRUE(segments.validate());
}

TEST(BufferSegmentsPrivate, AMiddlePartSplitsItsPrefixInThree) {
  BufferSegments segments = four();

  segments.make_private({.offset = 5_B, .size = 2_B});

  EXPECT_EQ(live_of(segments),
            (std::vector{segment(0_B, 4_B, owned),
                         segment(4_B, 5_B, shared),
                         segment(5_B, 7_B, owned),
                         segment(7_B, 8_B, shared),
                         segment(8_B, 12_B, shared),
                         segment(12_B, 16_B, owned)}));
  EXPECT_EQ(segments.committed(), 10_B);
  EXPECT_EQ(segments.shared(), 6_B);
  EXPECT_TRUE(segments.validate());
}

TEST(BufferSegmentsPrivate, WholePrefixesJoinWithWhatIsPrivateBesideThem) {
  BufferSegments segments = four();

  segments.make_private({.offset = 4_B, .size = 4_B});
  EXPECT_EQ(segments.live().front(), segment(0_B, 8_B, owned));
  segments.make_private({.offset = 8_B, .size = 4_B});

  EXPECT_EQ(live_of(segments), (std::vector{segment(0_B, 16_B, owned)}));
  EXPECT_EQ(segments.shared(), Bytes{});
  EXPECT_TRUE(segments.validate());
}

TEST(BufferSegmentsPrivate, WorksBelowWhatIsStrandedAndLeavesItAlone) {
  BufferSegments segments = four();
  segments.strand_from(12_B);

  segments.make_private({.offset = 8_B, .size = 4_B});

  EXPECT_EQ(stranded_of(segments), (std::vector{segment(12_B, 16_B, owned)}));
  EXPECT_EQ(segments.live().back(), segment(8_B, 12_B, owned));
  EXPECT_TRUE(segments.validate());
}

TEST(BufferSegmentsQuery, KindAndSharedPartsAreFoundInsideARange) {
  const BufferSegments segments = four();

  EXPECT_EQ(segments.kind_at(3_B), owned);
  EXPECT_EQ(segments.kind_at(4_B), shared);
  EXPECT_EQ(segments.kind_at(16_B), std::nullopt);
  EXPECT_EQ(segments.shared_in({.offset = 2_B, .size = 8_B}), 6_B);
  EXPECT_EQ(segments.first_shared({.offset = 2_B, .size = 8_B}),
            (ByteRange{.offset = 4_B, .size = 4_B}));
  EXPECT_EQ(segments.first_shared({.offset = 9_B, .size = 8_B}),
            (ByteRange{.offset = 9_B, .size = 3_B}));
  EXPECT_EQ(segments.first_shared({.offset = 12_B, .size = 4_B}), std::nullopt);
}

TEST(BufferSegmentsMove, LeavesNothingBehind) {
  BufferSegments first = four();

  BufferSegments second = std::move(first);

  EXPECT_EQ(second.end(), 16_B);
  EXPECT_EQ(first.end(), Bytes{});  // NOLINT(bugprone-use-after-move): what a moved one says
  EXPECT_TRUE(first.validate());
  second = BufferSegments{};
  EXPECT_EQ(second.committed(), Bytes{});
}

TEST(BufferSegmentsMove, AssignmentBringsEveryTotalAlong) {
  BufferSegments target;
  ASSERT_TRUE(target.make_room(1));
  target.append(100_B, shared);
  BufferSegments source = four();
  source.strand_from(12_B);

  target = std::move(source);

  EXPECT_EQ(target.end(), 12_B);
  EXPECT_EQ(target.committed(), 8_B);
  EXPECT_EQ(target.shared(), 8_B);
  EXPECT_EQ(stranded_of(target), (std::vector{segment(12_B, 16_B, owned)}));
  EXPECT_TRUE(target.validate());
}

TEST(BufferSegmentsValidate, FindsAnOwnerThatBrokeTheRules) {
  BufferSegments twice = four();
  twice.make_private({.offset = 12_B, .size = 4_B});  // private already
  BufferSegments hollow = four();
  hollow.append(Bytes{}, shared);

  EXPECT_FALSE(twice.validate());
  EXPECT_FALSE(hollow.validate());
}

TEST(BufferSegmentsDeathTest, BrokenRulesStopTheProgram) {
  BufferSegments segments = four();
  segments.strand_from(12_B);

  EXPECT_DEATH(segments.append(4_B, owned), "append below stranded");
  EXPECT_DEATH(segments.strand({.offset = 14_B, .size = 4_B}, owned), "must lie above");
  EXPECT_DEATH(segments.release_stranded_front(5_B), "not stranded");
}

}  // namespace
}  // namespace memstrata
