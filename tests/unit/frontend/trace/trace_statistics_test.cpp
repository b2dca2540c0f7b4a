// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/trace/trace_statistics.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/trace/stack_distance.hpp"
#include "memstrata/frontend/trace/trace_reader.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata {
namespace {

using std::chrono::milliseconds;

TraceRecord request(std::uint64_t ms,
                    std::uint64_t input,
                    std::uint64_t output,
                    std::vector<std::uint64_t> blocks) {
  TraceRecord record;
  record.arrival = milliseconds(ms);
  record.input_tokens = input;
  record.output_tokens = output;
  record.blocks = std::move(blocks);
  return record;
}

// Four requests, worked out by hand. References in order: 1 2 3 | 1 2 4 | 1 5 | 1 2 3.
//   distances: - - - | 2 2 - | 2 - | 1 3 4  (different others since the last use)
//   e.g. the last 3 was used before 1 2 4 5, which are 4 different ones.
TraceAnalyzer four_requests() {
  TraceAnalyzer analyzer;
  TraceRecord first = request(0, 1100, 10, {1, 2, 3});
  first.tenant = "a";
  first.session = "x";
  EXPECT_TRUE(analyzer.add(first).has_value());
  TraceRecord second = request(1000, 1536, 30, {1, 2, 4});
  second.tenant = "a";
  second.session = "y";
  EXPECT_TRUE(analyzer.add(second).has_value());
  EXPECT_TRUE(analyzer.add(request(1000, 700, 20, {1, 5})).has_value());
  EXPECT_TRUE(analyzer.add(request(5000, 1100, 40, {1, 2, 3})).has_value());
  return analyzer;
}

TEST(TraceAnalyzerHits, FollowTheStackDistances) {
  const TraceAnalyzer analyzer = four_requests();

  EXPECT_EQ(analyzer.hits(0), 0U);
  EXPECT_EQ(analyzer.hits(1), 0U);
  EXPECT_EQ(analyzer.hits(2), 1U);
  EXPECT_EQ(analyzer.hits(3), 4U);
  EXPECT_EQ(analyzer.hits(4), 5U);
  EXPECT_EQ(analyzer.hits(5), 6U);
  EXPECT_EQ(analyzer.hits(1'000'000), 6U);
}

TEST(TraceAnalyzerStatistics, AreThoseOfTheHandWrittenTrace) {
  const std::array<std::uint64_t, 3> sizes = {5, 2, 3};

  const TraceStatistics statistics = four_requests().statistics(sizes);

  EXPECT_EQ(statistics.requests, 4U);
  EXPECT_EQ(statistics.input_tokens, 4436U);
  EXPECT_EQ(statistics.output_tokens, 100U);
  EXPECT_EQ(statistics.largest_request_tokens, 1566U);
  EXPECT_EQ(statistics.block_refs, 11U);
  EXPECT_EQ(statistics.unique_blocks, 5U);
  EXPECT_EQ(statistics.unlimited_hits, 6U);
  EXPECT_EQ(statistics.unlimited_full_hits, 5U);  // The last 3 holds 76 tokens.
  EXPECT_EQ(statistics.blocks_used_once, 2U);     // 4 and 5.
  EXPECT_EQ(statistics.distinct_arrivals, 3U);
  EXPECT_EQ(statistics.tenants, 1U);
  EXPECT_EQ(statistics.sessions, 2U);
  EXPECT_EQ(statistics.span, milliseconds(5000));
  EXPECT_EQ(statistics.hit_curve,
            (std::vector<TraceHitPoint>{
                {.blocks = 5, .hits = 6}, {.blocks = 2, .hits = 1}, {.blocks = 3, .hits = 4}}));
}

TEST(TraceAnalyzerStatistics, PercentilesAreNearestRank) {
  const TraceStatistics statistics = four_requests().statistics();

  EXPECT_EQ(statistics.input.p50, 1100U);
  EXPECT_EQ(statistics.input.p90, 1536U);
  EXPECT_EQ(statistics.input.max, 1536U);
  EXPECT_DOUBLE_EQ(statistics.input.mean, 1109.0);
  EXPECT_EQ(statistics.output.p50, 20U);
  EXPECT_EQ(statistics.output.p99, 40U);
  // Gaps: 1000 1000 | 0 | 4000 4000 5000.
  EXPECT_EQ(statistics.reuse_gap_p50, milliseconds(1000));
  EXPECT_EQ(statistics.reuse_gap_p90, milliseconds(5000));
}

TEST(TraceAnalyzerStatistics, ATraceWithoutIdsHasNoReferences) {
  TraceAnalyzer analyzer;
  ASSERT_TRUE(analyzer.add(request(0, 700, 5, {})).has_value());

  const TraceStatistics statistics = analyzer.statistics();

  EXPECT_EQ(statistics.requests, 1U);
  EXPECT_EQ(statistics.block_refs, 0U);
  EXPECT_EQ(statistics.unlimited_hits, 0U);
  ASSERT_EQ(statistics.hit_curve.size(), default_hit_curve_sizes().size());
  EXPECT_EQ(statistics.hit_curve.front(), (TraceHitPoint{.blocks = 1000, .hits = 0}));
}

TEST(TraceAnalyzerStatistics, NothingReadIsAllZero) {
  const TraceStatistics statistics = TraceAnalyzer().statistics();

  EXPECT_EQ(statistics.requests, 0U);
  EXPECT_EQ(statistics.input.max, 0U);
  EXPECT_EQ(statistics.input.mean, 0.0);
  EXPECT_EQ(statistics.reuse_gap_p90, milliseconds(0));
}

// A least-recently-used cache as everybody would write it.
class NaiveCache {
 public:
  explicit NaiveCache(std::size_t room) : room_(room) {}

  [[nodiscard]] bool use(std::uint64_t key) {
    const auto known = where_.find(key);
    const bool is_hit = known != where_.end();
    if (is_hit) {
      order_.erase(known->second);
    }
    order_.push_front(key);
    where_[key] = order_.begin();
    if (order_.size() > room_) {
      where_.erase(order_.back());
      order_.pop_back();
    }
    return is_hit;
  }

 private:
  std::size_t room_;
  std::list<std::uint64_t> order_;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> where_;
};

TEST(TraceAnalyzerProperty, HitsAgreeWithANaiveCacheOfEverySize) {
  constexpr std::uint64_t seed = 7;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::array<std::size_t, 7> sizes = {1, 2, 10, 100, 700, 1500, 4000};
  std::vector<NaiveCache> caches(sizes.begin(), sizes.end());
  std::vector<std::uint64_t> hits(sizes.size(), 0);
  TraceAnalyzer analyzer;

  for (std::uint64_t i = 0; i < 20'000; ++i) {
    // Few keys often, many keys seldom, and keys that drift, so that marks are moved together many times.
    const std::uint64_t spread = random() % 3 == 0 ? 3'000 : 60;
    const std::uint64_t key = 1'000'000 + i / 10 + random() % spread;
    ASSERT_TRUE(analyzer.add(request(i, 1, 1, {key})).has_value());
    for (std::size_t cache = 0; cache < caches.size(); ++cache) {
      hits[cache] += caches[cache].use(key) ? 1U : 0U;
    }
  }

  for (std::size_t cache = 0; cache < caches.size(); ++cache) {
    EXPECT_EQ(analyzer.hits(sizes[cache]), hits[cache]) << sizes[cache] << " blocks";
  }
}

TEST(StackDistanceUse, SurvivesMovingItsMarksTogether) {
  detail::StackDistance distance;
  ASSERT_FALSE(distance.use(0).has_value());
  ASSERT_FALSE(distance.use(1).has_value());
  ASSERT_FALSE(distance.use(2).has_value());

  for (int i = 0; i < 5'000; ++i) {
    ASSERT_EQ(distance.use(1), i == 0 ? 1U : 0U) << i;
  }

  EXPECT_EQ(distance.use(0), 2U);
  EXPECT_EQ(distance.use(2), 2U);
}

TEST(TraceAnalyzerGolden, TheConversationTraceGivesThePublishedHits) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing else runs
  const char* const folder = std::getenv("MEMSTRATA_TRACES");
  if (folder == nullptr) {
    GTEST_SKIP() << "MEMSTRATA_TRACES names no folder with mooncake_conversation.jsonl";
  }
  auto reader = TraceReader::open(std::string(folder) + "/mooncake_conversation.jsonl");
  ASSERT_TRUE(reader.has_value()) << reader.error().message();
  TraceAnalyzer analyzer;
  while (true) {
    const auto record = reader->next();
    ASSERT_TRUE(record.has_value()) << record.error().message();
    if (!*record) {
      break;
    }
    ASSERT_TRUE(analyzer.add(**record).has_value());
  }

  const TraceStatistics statistics = analyzer.statistics();

  EXPECT_EQ(statistics.requests, 12'031U);
  EXPECT_EQ(statistics.block_refs, 288'500U);
  EXPECT_EQ(statistics.unique_blocks, 182'790U);
  EXPECT_EQ(statistics.unlimited_hits, 105'710U);
  EXPECT_EQ(statistics.unlimited_full_hits, 105'592U);
  EXPECT_EQ(statistics.hit_curve,
            (std::vector<TraceHitPoint>{{.blocks = 1'000, .hits = 12'831},
                                        {.blocks = 3'000, .hits = 18'761},
                                        {.blocks = 10'000, .hits = 60'921},
                                        {.blocks = 30'000, .hits = 93'967},
                                        {.blocks = 50'000, .hits = 102'290}}));
  EXPECT_EQ(statistics.distinct_arrivals, 1'180U);
  EXPECT_EQ(statistics.input.p50, 6'909U);
  EXPECT_EQ(statistics.input.max, 126'195U);
}

}  // namespace
}  // namespace memstrata
