// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/commit_map.hpp"

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "memstrata/core/bytes.hpp"

namespace memstrata {
namespace {

constexpr Bytes granule = 64_KiB;

[[nodiscard]] ByteRange granules(std::uint64_t first, std::uint64_t count) {
  return {.offset = granule * first, .size = granule * count};
}

void set(CommitMap& map, ByteRange range) {
  map.prepare(range);
  map.insert(range);
}

TEST(CommitMapInsert, NeighboursJoinIntoOneRun) {
  CommitMap map(granule);

  set(map, granules(0, 1));
  set(map, granules(2, 1));
  EXPECT_EQ(map.runs(), 2U);
  EXPECT_EQ(map.runs_after_insert(granules(1, 1)), 1U);
  set(map, granules(1, 1));

  EXPECT_EQ(map.runs(), 1U);
  EXPECT_EQ(map.total(), granule * 3);
  EXPECT_TRUE(map.validate());
}

TEST(CommitMapRemove, AHoleInTheMiddleMakesTwoRuns) {
  CommitMap map(granule);
  set(map, granules(10, 200));

  EXPECT_EQ(map.runs_after_remove(granules(60, 70)), 2U);
  map.remove(granules(60, 70));

  EXPECT_EQ(map.runs(), 2U);
  EXPECT_EQ(map.total(), granule * 130);
  EXPECT_EQ(map.set_runs(granules(0, 300)),
            (std::vector<ByteRange>{granules(10, 50), granules(130, 80)}));
  EXPECT_EQ(map.clear_runs(granules(0, 300)),
            (std::vector<ByteRange>{granules(0, 10), granules(60, 70), granules(210, 90)}));
}

TEST(CommitMapRemove, AWholeRunLeavesNothing) {
  CommitMap map(granule);
  set(map, granules(64, 64));

  EXPECT_EQ(map.runs_after_remove(granules(64, 64)), 0U);
  map.remove(granules(64, 64));

  EXPECT_EQ(map.total(), Bytes{});
  EXPECT_FALSE(map.first_set(granules(0, 1000)).has_value());
  EXPECT_TRUE(map.validate());
}

TEST(CommitMapFirst, FindsAcrossLeavesThatDoNotExist) {
  CommitMap map(granule);
  const std::uint64_t far = 5ULL * 512 * 64 + 7;
  set(map, granules(far, 3));

  EXPECT_EQ(map.first_set(granules(0, far + 10)), granule * far);
  EXPECT_EQ(map.first_clear(granules(far, 10)), granule * (far + 3));
  EXPECT_EQ(map.count(granules(0, far + 2)), granule * 2);
  EXPECT_FALSE(map.first_set(granules(0, far)).has_value());
  EXPECT_FALSE(map.first_clear(granules(far, 3)).has_value());
}

// The bitmap grows in pieces of 512 words of 64 granules.
TEST(CommitMapPrepare, OneRangeMayFillManyPiecesOfTheBitmap) {
  constexpr std::uint64_t piece = 512ULL * 64;
  const ByteRange three = granules(piece - 1, piece * 2 + 2);
  CommitMap map(granule);

  set(map, three);

  EXPECT_EQ(map.total(), three.size);
  EXPECT_EQ(map.runs(), 1U);
  EXPECT_EQ(map.set_runs(granules(0, piece * 5)), std::vector<ByteRange>{three});
  EXPECT_EQ(map.count(granules(piece, piece)), granule * piece);
  EXPECT_EQ(map.count(granules(0, piece * 5)), three.size);
  EXPECT_TRUE(map.validate());
  map.remove(three);
  EXPECT_EQ(map.total(), Bytes{});
  EXPECT_TRUE(map.validate());
}

TEST(CommitMapPrepare, ARangeThatEndsWithItsPieceTouchesNoOther) {
  constexpr std::uint64_t piece = 512ULL * 64;
  CommitMap map(granule);
  set(map, granules(piece * 2, 1));  // so that the piece between is known to be missing

  set(map, granules(piece - 4, 4));
  EXPECT_EQ(map.set_runs(granules(0, piece * 3)),
            (std::vector<ByteRange>{granules(piece - 4, 4), granules(piece * 2, 1)}));
  EXPECT_EQ(map.runs_after_remove(granules(piece - 4, 4)), 1U);
  map.remove(granules(piece - 4, 4));

  EXPECT_EQ(map.total(), granule);
  EXPECT_TRUE(map.validate());
}

TEST(CommitMapPrepare, PreparingAgainKeepsWhatIsSet) {
  CommitMap map(granule);
  set(map, granules(5, 3));

  map.prepare(granules(0, 1ULL << 17U));

  EXPECT_EQ(map.set_runs(granules(0, 1ULL << 17U)), std::vector<ByteRange>{granules(5, 3)});
  EXPECT_TRUE(map.validate());
}

TEST(CommitMapInsert, AnEmptyRangeChangesNothing) {
  CommitMap map(granule);
  set(map, granules(3, 0));
  map.remove(granules(3, 0));

  EXPECT_EQ(map.runs_after_insert(granules(3, 0)), 0U);
  EXPECT_EQ(map.runs_after_remove(granules(3, 0)), 0U);
  EXPECT_EQ(map.runs(), 0U);
  EXPECT_TRUE(map.validate());
}

TEST(CommitMapGranule, NeedNotBeAPowerOfTwo) {
  for (const Bytes unit : {12_KiB, 1_B, 3_B}) {
    SCOPED_TRACE(unit.value);
    const auto units = [unit](std::uint64_t first, std::uint64_t count) {
      return ByteRange{.offset = unit * first, .size = unit * count};
    };
    CommitMap map(unit);

    set(map, units(3, 70));
    set(map, units(100, 2));
    map.remove(units(10, 60));

    EXPECT_EQ(map.granule(), unit);
    EXPECT_EQ(map.total(), unit * 12);
    EXPECT_EQ(map.count(units(9, 92)), unit * 5);
    EXPECT_EQ(map.first_set(units(10, 200)), unit * 70);
    EXPECT_EQ(map.first_clear(units(3, 200)), unit * 10);
    EXPECT_EQ(map.set_runs(units(0, 200)),
              (std::vector<ByteRange>{units(3, 7), units(70, 3), units(100, 2)}));
    EXPECT_TRUE(map.is_plain_extension(units(73, 5)));
    EXPECT_TRUE(map.validate());
  }
}

TEST(CommitMapInsertDeathTest, SettingWhatIsSetStopsTheProgram) {
  CommitMap map(granule);
  set(map, granules(4, 4));

  EXPECT_DEATH(map.insert(granules(7, 2)), "set already");
  EXPECT_DEATH(map.remove(granules(7, 2)), "not set");
  EXPECT_DEATH(map.insert(granules(1ULL << 30, 1)), "not prepared");
  EXPECT_DEATH(map.insert(granules(512ULL * 64, 1)), "not prepared");  // the next piece
}

TEST(CommitMapIsPlainExtension, OnlyWhatLengthensARunInsideOneWord) {
  CommitMap map(granule);
  set(map, granules(3, 2));
  set(map, granules(20, 1));
  set(map, granules(62, 2));

  EXPECT_TRUE(map.is_plain_extension(granules(5, 1)));
  EXPECT_TRUE(map.is_plain_extension(granules(5, 14)));
  EXPECT_FALSE(map.is_plain_extension(granules(5, 15)));  // would join the next run
  EXPECT_FALSE(map.is_plain_extension(granules(4, 2)));   // overlaps
  EXPECT_FALSE(map.is_plain_extension(granules(6, 1)));   // begins a run
  EXPECT_FALSE(map.is_plain_extension(granules(7, 1)));
  EXPECT_FALSE(map.is_plain_extension(granules(0, 1)));
  EXPECT_FALSE(map.is_plain_extension(granules(64, 1)));  // the run ends in the word before
  EXPECT_FALSE(map.is_plain_extension(granules(21, 0)));
  EXPECT_FALSE(map.is_plain_extension(granules(21, 43)));
}

TEST(CommitMapIsPlainExtension, UpToTheEndOfAWordItMayJoinWhatFollows) {
  CommitMap map(granule);
  set(map, granules(3, 2));
  set(map, granules(64, 1));

  EXPECT_FALSE(map.is_plain_extension(granules(5, 59)));
  EXPECT_EQ(map.runs_after_insert(granules(5, 59)), 1U);
  EXPECT_TRUE(map.is_plain_extension(granules(5, 58)));
  EXPECT_EQ(map.runs_after_insert(granules(5, 58)), 2U);
}

struct Model {
  std::vector<bool> bits;

  [[nodiscard]] std::uint64_t count(std::uint64_t first, std::uint64_t n) const {
    std::uint64_t found = 0;
    for (std::uint64_t i = first; i < first + n; ++i) {
      found += bits[i] ? 1U : 0U;
    }
    return found;
  }

  [[nodiscard]] std::optional<std::uint64_t> first(std::uint64_t start,
                                                   std::uint64_t n,
                                                   bool want) const {
    for (std::uint64_t i = start; i < start + n; ++i) {
      if (bits[i] == want) {
        return i;
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] std::uint64_t runs() const {
    std::uint64_t found = 0;
    for (std::uint64_t i = 0; i < bits.size(); ++i) {
      found += (bits[i] && (i == 0 || !bits[i - 1])) ? 1U : 0U;
    }
    return found;
  }
};

TEST(CommitMapProperty, RandomRangesAgreeWithANaiveBitmap) {
  constexpr std::uint64_t size = 3ULL * 512 * 64;
  constexpr std::uint64_t seed = 20261130;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  CommitMap map(granule);
  Model model{std::vector<bool>(size)};

  for (int step = 0; step < 400; ++step) {
    const std::uint64_t length = 1 + random() % (step % 4 == 0 ? 40000 : 130);
    const std::uint64_t first = random() % (size - length);
    const ByteRange range = granules(first, length);
    ASSERT_EQ(map.count(range), granule * model.count(first, length));
    const auto set_at = model.first(first, length, true);
    const auto clear_at = model.first(first, length, false);
    ASSERT_EQ(map.first_set(range), set_at ? std::optional(granule * *set_at) : std::nullopt);
    ASSERT_EQ(map.first_clear(range), clear_at ? std::optional(granule * *clear_at) : std::nullopt);
    const bool setting = random() % 2 == 0;
    for (const ByteRange part : setting ? map.clear_runs(range) : map.set_runs(range)) {
      if (setting) {
        if (map.is_plain_extension(part)) {
          ASSERT_EQ(map.runs_after_insert(part), map.runs());
        }
        const std::uint64_t after = map.runs_after_insert(part);
        set(map, part);
        ASSERT_EQ(map.runs(), after);
      } else {
        const std::uint64_t after = map.runs_after_remove(part);
        map.remove(part);
        ASSERT_EQ(map.runs(), after);
      }
    }
    for (std::uint64_t i = first; i < first + length; ++i) {
      model.bits[i] = setting;
    }
    ASSERT_TRUE(map.validate()) << "step " << step;
    ASSERT_EQ(map.runs(), model.runs()) << "step " << step;
  }
}

}  // namespace
}  // namespace memstrata
