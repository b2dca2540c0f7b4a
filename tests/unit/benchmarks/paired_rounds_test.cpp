// SPDX-License-Identifier: Apache-2.0
#include "support/paired_rounds.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memstrata::bench {
namespace {

/// A side that returns `costs` in turn and writes its name into `order` each time.
Side scripted(const char* name, std::vector<double> costs, std::string* order = nullptr) {
  return {.name = name,
          .measure = [name, costs = std::move(costs), next = std::size_t{0}, order]() mutable {
            if (order != nullptr) {
              *order += name;
            }
            return Sample{.cost = costs.at(next++), .checksum = 1};
          }};
}

BenchResult with_ratio(Target::Bound bound, double q1) {
  BenchResult result;
  result.ratio = {.q1 = q1, .median = 3, .q3 = 9};
  result.target = Target{.bound = bound, .ratio = 2};
  return result;
}

TEST(QuartilesOf, InterpolatesBetweenNeighboursOfAnUnsortedSet) {
  const Quartiles quartiles = quartiles_of({4, 1, 3, 2});

  EXPECT_DOUBLE_EQ(quartiles.q1, 1.75);
  EXPECT_DOUBLE_EQ(quartiles.median, 2.5);
  EXPECT_DOUBLE_EQ(quartiles.q3, 3.25);
}

TEST(QuartilesOf, AreTheValueItselfForOneMeasurement) {
  const Quartiles quartiles = quartiles_of({7});

  EXPECT_DOUBLE_EQ(quartiles.q1, 7);
  EXPECT_DOUBLE_EQ(quartiles.q3, 7);
}

TEST(RunPaired, FormsRatiosInsideARoundAndNotOfTheMedians) {
  // Both sides drift alike: every ratio is 2, whatever the medians are of.
  const RoundOptions options{.rounds = 3, .dropped = 0, .warm = {}};

  const BenchResult result = run_paired(
      {.name = "drift"}, scripted("r", {1, 100, 3}), scripted("o", {2, 200, 6}), options);

  EXPECT_DOUBLE_EQ(result.ratio.q1, 2);
  EXPECT_DOUBLE_EQ(result.ratio.q3, 2);
  EXPECT_DOUBLE_EQ(result.raw.median, 3);
  EXPECT_DOUBLE_EQ(result.ours.median, 6);
  EXPECT_EQ(result.rounds, 3);
}

TEST(RunPaired, LeavesTheDroppedRoundsOut) {
  const RoundOptions options{.rounds = 2, .dropped = 1, .warm = {}};

  const BenchResult result =
      run_paired({.name = "cold"}, scripted("r", {1, 1, 1}), scripted("o", {500, 2, 2}), options);

  EXPECT_DOUBLE_EQ(result.ours.q3, 2);
  EXPECT_EQ(result.our_checksum, 2U);
}

TEST(RunRounds, AlternatesWhoGoesFirst) {
  std::string order;
  const std::vector<Side> sides{scripted("a", {1, 1}, &order), scripted("b", {1, 1}, &order)};

  const Rounds rounds = run_rounds(sides, {.rounds = 2, .dropped = 0, .warm = {}});

  EXPECT_EQ(order, "abba");
  EXPECT_EQ(rounds.count(), 2);
}

TEST(RunRounds, WarmsBeforeEachSideOfEachRound) {
  std::string order;
  const std::vector<Side> sides{scripted("a", {1, 1}, &order), scripted("b", {1, 1}, &order)};

  const Rounds rounds =
      run_rounds(sides, {.rounds = 1, .dropped = 1, .warm = [&order] { order += 'w'; }});

  EXPECT_EQ(order, "wbwawawb");
  EXPECT_EQ(rounds.count(), 1);
}

TEST(BenchResult, IsMetByTheLowerQuartile) {
  EXPECT_EQ(with_ratio(Target::Bound::at_most, 2.0).is_met(), true);
  EXPECT_EQ(with_ratio(Target::Bound::at_most, 2.1).is_met(), false);
  EXPECT_EQ(with_ratio(Target::Bound::at_least, 2.0).is_met(), true);
  EXPECT_EQ(with_ratio(Target::Bound::at_least, 1.9).is_met(), false);
  EXPECT_EQ(BenchResult{}.is_met(), std::nullopt);
}

TEST(BenchResult, IsNotMetWhereTheSidesWroteDifferentBytes) {
  BenchResult result = with_ratio(Target::Bound::at_most, 1);
  result.raw_checksum = 1;
  result.our_checksum = 2;

  EXPECT_EQ(result.is_met(), false);
}

}  // namespace
}  // namespace memstrata::bench
