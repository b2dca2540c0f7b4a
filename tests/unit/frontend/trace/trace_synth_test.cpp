// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/trace/trace_synth.hpp"

#include <chrono>
#include <cstdint>
#include <fstream>
#include <ios>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "memstrata/frontend/trace/trace_format.hpp"
#include "memstrata/frontend/trace/trace_reader.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"
#include "memstrata/frontend/trace/trace_statistics.hpp"
#include "memstrata/frontend/trace/trace_writer.hpp"

namespace memstrata {
namespace {

std::string written(const TraceSynthOptions& options) {
  std::ostringstream out;
  TraceWriter writer(
      out,
      "out",
      {.unit = TraceTimeUnit::milliseconds, .synthetic = true, .made_by = describe(options)});
  TraceSynth synth(options);
  while (const auto record = synth.next()) {
    const auto result = writer.write(*record);
    EXPECT_TRUE(result.has_value()) << result.error().message();
  }
  EXPECT_TRUE(writer.finish().has_value());
  return out.str();
}

TraceStatistics statistics_of(const TraceSynthOptions& options) {
  TraceAnalyzer analyzer;
  TraceSynth synth(options);
  while (const auto record = synth.next()) {
    EXPECT_TRUE(analyzer.add(*record).has_value());
  }
  return analyzer.statistics();
}

TEST(TraceSynthSample, TheSampleIsWhatTheGeneratorMakes) {
  std::ifstream file(MEMSTRATA_SOURCE_DIR "/samples/sample.trace.jsonl", std::ios::binary);
  const std::string sample((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());

  const std::string made = written({});

  EXPECT_EQ(sample.substr(0, 300), made.substr(0, 300));
  EXPECT_TRUE(sample == made) << "samples/sample.trace.jsonl must be made again by `"
                              << describe({}) << "`";
}

TEST(TraceSynthSample, SaysThatItIsSyntheticAndIsSmall) {
  auto reader = TraceReader::open(MEMSTRATA_SOURCE_DIR "/samples/sample.trace.jsonl");

  ASSERT_TRUE(reader.has_value());
  EXPECT_TRUE(reader->header().synthetic);
  EXPECT_EQ(reader->header().made_by, describe({}));
  const auto records = read_all(*reader);
  ASSERT_TRUE(records.has_value()) << records.error().message();
  EXPECT_GE(records->size(), 200U);
  EXPECT_LT(reader->consumed().value, 200'000U);
}

TEST(TraceSynthNext, EqualSeedsGiveEqualTracesAndOthersDoNot) {
  const std::string first = written({.seed = 5, .sessions = 20});

  EXPECT_EQ(first, written({.seed = 5, .sessions = 20}));
  EXPECT_NE(first, written({.seed = 6, .sessions = 20}));
}

class TraceSynthOptionsRange : public testing::TestWithParam<TraceSynthOptions> {};

TEST_P(TraceSynthOptionsRange, GivesAGoodTrace) {
  std::istringstream text(written(GetParam()));

  auto reader = TraceReader::from(text, "synthetic");

  ASSERT_TRUE(reader.has_value());
  const auto records = read_all(*reader);
  ASSERT_TRUE(records.has_value()) << records.error().message();
  EXPECT_FALSE(records->empty());
}

INSTANTIATE_TEST_SUITE_P(
    Options,
    TraceSynthOptionsRange,
    testing::Values(TraceSynthOptions{.seed = 0,
                                      .sessions = 0,
                                      .scale = 0,
                                      .session_gap_ms = 0,
                                      .max_input_tokens = 0,
                                      .tenants = 0},
                    TraceSynthOptions{.seed = 9,
                                      .sessions = 50,
                                      .scale = 3,
                                      .session_gap_ms = 0,
                                      .max_input_tokens = 1024,
                                      .tenants = 1},
                    TraceSynthOptions{.seed = std::numeric_limits<std::uint64_t>::max(),
                                      .sessions = 3,
                                      .scale = 1,
                                      .session_gap_ms = 10'000'000,
                                      .max_input_tokens = std::numeric_limits<std::uint64_t>::max(),
                                      .tenants = std::numeric_limits<std::uint64_t>::max()},
                    TraceSynthOptions{.seed = 3,
                                      .sessions = 300,
                                      .scale = 1,
                                      .session_gap_ms = 10,
                                      .max_input_tokens = 100'000,
                                      .tenants = 9}));

TEST(TraceSynthNext, PromptsOfASessionGrowOnTopOfEachOther) {
  TraceSynth synth({});
  std::map<std::string, TraceRecord> last;
  std::uint64_t grown = 0;
  std::uint64_t repeated = 0;
  while (const auto record = synth.next()) {
    const auto before = last.find(record->session);
    if (before != last.end()) {
      const TraceRecord& earlier = before->second;
      ASSERT_GE(record->input_tokens, earlier.input_tokens);
      ASSERT_GT(record->arrival, earlier.arrival);
      ASSERT_EQ(record->tenant, earlier.tenant);
      for (std::uint64_t block = 0; block < earlier.input_tokens / trace_block_tokens; ++block) {
        ASSERT_EQ(record->blocks[block], earlier.blocks[block]);
      }
      const bool is_same = record->input_tokens == earlier.input_tokens;
      ASSERT_EQ(is_same, record->blocks == earlier.blocks);
      (is_same ? repeated : grown) += 1;
    }
    last[record->session] = *record;
  }
  EXPECT_GT(grown, 50U);
  EXPECT_GT(repeated, 5U);
}

TEST(TraceSynthNext, SessionsOfATenantShareTheirFirstBlocksAndOthersDoNot) {
  TraceSynth synth({.sessions = 200});
  std::map<std::string, std::set<std::uint64_t>> first_blocks;
  std::map<std::string, std::set<std::string>> sessions;
  while (const auto record = synth.next()) {
    first_blocks[record->tenant].insert(record->blocks.front());
    sessions[record->tenant].insert(record->session);
  }

  EXPECT_EQ(first_blocks.at("t0").size(), 1U);
  EXPECT_EQ(first_blocks.at("t1").size(), 1U);
  EXPECT_NE(first_blocks.at("t0"), first_blocks.at("t1"));
  // The system prompt of the fourth tenant is shorter than a block.
  EXPECT_GE(first_blocks.at("t3").size(), sessions.at("t3").size());
  EXPECT_GT(sessions.at("t0").size(), sessions.at("t3").size());
}

TEST(TraceSynthNext, ScaleMakesTheTraceLongerAndKeepsTheLoad) {
  const TraceStatistics once = statistics_of({.sessions = 2000});
  const TraceStatistics ten = statistics_of({.sessions = 2000, .scale = 10});

  EXPECT_EQ(ten.sessions, 20'000U);
  const double requests = static_cast<double>(ten.requests) / static_cast<double>(once.requests);
  const double time =
      static_cast<double>(ten.span.count()) / static_cast<double>(once.span.count());
  EXPECT_NEAR(requests, 10.0, 0.7);
  EXPECT_NEAR(time, 10.0, 1.5);
}

TEST(TraceSynthNext, TheMeanGapOfSessionsIsWhatWasAskedFor) {
  const TraceStatistics statistics = statistics_of({.sessions = 20'000, .session_gap_ms = 1000});

  const double seconds = std::chrono::duration<double>(statistics.span).count();
  EXPECT_NEAR(seconds / 20'000, 1.0, 0.05);
}

TEST(TraceSynthDescribe, IsTheCommandThatMakesTheTrace) {
  EXPECT_EQ(describe({.seed = 7, .scale = 10}),
            "memstrata trace synth --seed 7 --sessions 96 --scale 10 --session-gap-ms 1000 "
            "--max-input-tokens 4096 --tenants 4");
}

}  // namespace
}  // namespace memstrata
