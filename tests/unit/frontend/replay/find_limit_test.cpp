// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/replay/find_limit.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "replay_rig.hpp"

namespace memstrata::test {
namespace {

using std::chrono::seconds;

/// Ten requests at once: whoever does not fit waits for one to end, 10 s later.
std::vector<TraceRecord> burst() {
  std::vector<TraceRecord> records;
  for (std::uint64_t index = 0; index < 10; ++index) {
    records.push_back(record(seconds(0), 1'000, 10, {}));
  }
  return records;
}

LimitCondition condition(std::string_view text) {
  return parse_limit_condition(text).value();
}

LimitFound found(std::string_view text, ReplayPolicy policy, Bytes step = g) {
  auto options = toy_options(policy, g);
  return std::move(find_limit(burst(), options, condition(text), step).value().front());
}

// A request holds 4 g. With 5 in memory the other 5 wait 10 s; with 10 nobody waits.
TEST(FindLimit, IsTheSmallestStepThatMeetsTheCondition) {
  EXPECT_EQ(found("wait_p99<=10s", ReplayPolicy::virtual_memory).limit, g * 20);
  EXPECT_EQ(found("wait_p99<=9.99s", ReplayPolicy::virtual_memory).limit, g * 40);
  EXPECT_EQ(found("wait_p50<=0s", ReplayPolicy::virtual_memory).limit, g * 20);
  EXPECT_EQ(found("refused<=0", ReplayPolicy::virtual_memory).limit, g * 4);
}

TEST(FindLimit, MissesTheConditionOneStepBelow) {
  const auto answer = found("wait_p99<=10s", ReplayPolicy::virtual_memory);
  auto options = toy_options(ReplayPolicy::virtual_memory, *answer.limit - g);

  EXPECT_TRUE(condition("wait_p99<=10s").is_met(answer.at_limit));
  EXPECT_FALSE(condition("wait_p99<=10s").is_met(replayed(burst(), options)));
}

// Coarser steps round the answer up.
TEST(FindLimit, IsAWholeNumberOfSteps) {
  EXPECT_EQ(found("wait_p99<=10s", ReplayPolicy::virtual_memory, g * 16).limit, g * 32);
}

// A budget that refuses everybody has no preemptions either; it does not count.
TEST(FindLimit, DoesNotTakeRefusalsForAnAnswer) {
  EXPECT_EQ(found("preempted<=0", ReplayPolicy::realloc).limit->value % g.value, 0U);
  EXPECT_EQ(found("preempted<=0", ReplayPolicy::realloc).at_limit.completed, 10U);
}

TEST(FindLimit, RefusesAStepThatCutsGranules) {
  const auto options = toy_options(ReplayPolicy::virtual_memory, g);

  const auto answer = find_limit(burst(), options, condition("refused<=0"), g + Bytes{1});

  ASSERT_FALSE(answer.has_value());
  EXPECT_NE(std::get_if<BadReplayOption>(&answer.error().kind), nullptr);
}

TEST(LimitCondition, IsReadWithUnitsAndBlanks) {
  EXPECT_EQ(condition("wait_p99<=5s"),
            (LimitCondition{.metric = LimitMetric::wait_p99, .bound = 5'000'000'000}));
  EXPECT_EQ(condition("wait_p95 <= 250ms").bound, 250'000'000U);
  EXPECT_EQ(condition(" WAIT_P50<=1.5min ").bound, 90'000'000'000U);
  EXPECT_EQ(condition("wait_p50<=7us").bound, 7'000U);
  EXPECT_EQ(condition("wait_p50<=7ns").bound, 7U);
  EXPECT_EQ(condition("preempted<=12"),
            (LimitCondition{.metric = LimitMetric::preempted, .bound = 12}));
  EXPECT_EQ(condition("refused<=0"), (LimitCondition{.metric = LimitMetric::refused, .bound = 0}));
}

struct BadText {
  std::string_view text;
  std::uint64_t column;
};

TEST(LimitCondition, IsRefusedWithTheColumn) {
  constexpr std::array texts{BadText{"", 1},
                             BadText{"wait_p98<=5s", 1},
                             BadText{"wait_p99", 9},
                             BadText{"wait_p99<5s", 9},
                             BadText{"wait_p99>=5s", 9},
                             BadText{"wait_p99<=", 11},
                             BadText{"wait_p99<=-1s", 11},
                             BadText{"wait_p99<=5", 12},
                             BadText{"wait_p99<=5h", 12},
                             BadText{"wait_p99<=nan", 11},
                             BadText{"wait_p99<=99999999999999999999s", 11},
                             BadText{"preempted<=0.5", 13},
                             BadText{"preempted<=x", 12},
                             BadText{"refused<=99999999999999999999", 10},
                             BadText{"refused<=0 requests", 12}};

  for (const BadText& bad : texts) {
    const auto parsed = parse_limit_condition(bad.text);
    ASSERT_FALSE(parsed.has_value()) << bad.text;
    const auto* error = std::get_if<BadCondition>(&parsed.error().kind);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->column, bad.column) << bad.text;
    EXPECT_EQ(error->text.view(), bad.text);
  }
}

}  // namespace
}  // namespace memstrata::test
