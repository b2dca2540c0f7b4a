// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/frontend/replay/geometry.hpp"
#include "memstrata/frontend/replay/replay.hpp"
#include "memstrata/frontend/trace/trace_reader.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata {
namespace {

/// The published conversation trace, where the environment names the folder of traces.
class GoldenValues : public testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("MEMSTRATA_TRACES");
    if (folder == nullptr) {
      GTEST_SKIP() << "MEMSTRATA_TRACES does not name the folder of the traces";
    }
    const auto path = std::filesystem::path(folder) / "mooncake_conversation.jsonl";
    auto reader = TraceReader::open(path.string(), {});
    ASSERT_TRUE(reader.has_value()) << path;
    while (true) {
      auto record = reader->next();
      ASSERT_TRUE(record.has_value());
      if (!record->has_value()) {
        break;
      }
      records_.push_back(**std::move(record));
    }
    ASSERT_EQ(records_.size(), 12'031U);
  }

  [[nodiscard]] ReplayReport run(ReplayPolicy policy,
                                 std::optional<Bytes> limit,
                                 std::optional<std::uint64_t> prefill_tps,
                                 std::uint64_t decode_tps) const {
    ReplayOptions options;
    options.geometry = find_geometry("llama-3-8b").value();
    options.policies = {policy};
    options.limit = limit;
    options.prefill_tps = prefill_tps;
    options.decode_tps = decode_tps;
    return run_replay(records_, options).value();
  }

  std::vector<TraceRecord> records_;
};

TEST_F(GoldenValues, HitEveryRepeatedFullBlockWithoutALimit) {
  for (const ReplayPolicy policy : {ReplayPolicy::virtual_memory, ReplayPolicy::paged}) {
    for (const std::optional<std::uint64_t> speed :
         {std::optional<std::uint64_t>(10'000), std::optional<std::uint64_t>()}) {
      const PolicyResult result = run(policy, std::nullopt, speed, 20).policies.front();
      EXPECT_EQ(result.prefix.hit_blocks, 105'592U);
      EXPECT_EQ(result.prefix.hit_tokens, 54'063'104U);
    }
  }
}

TEST_F(GoldenValues, PeakAtThePublishedLoad) {
  const PolicyResult slow =
      run(ReplayPolicy::virtual_memory, std::nullopt, std::nullopt, 20).policies.front();
  const PolicyResult fast =
      run(ReplayPolicy::virtual_memory, std::nullopt, std::nullopt, 50).policies.front();

  EXPECT_NEAR(static_cast<double>(slow.peak_live_tokens), 1'336'304, 101);
  EXPECT_EQ(slow.peak_concurrent, 101U);
  EXPECT_NEAR(static_cast<double>(fast.peak_live_tokens), 869'289, 101);
  EXPECT_EQ(fast.peak_concurrent, 56U);
}

struct Row {
  ReplayPolicy policy;
  double preempted;
  double peak_concurrent;
  double hit_blocks;
  double wait_p50;
  double wait_p99;
  double end;
};

// An independent model's figures for a budget of 96 GiB: within 2 %, preemptions within 10 %.
TEST_F(GoldenValues, AgreeWithAnIndependentModel) {
  constexpr std::array rows{
      Row{ReplayPolicy::virtual_memory, 334, 106, 13'841, 266, 431, 4'002},
      Row{ReplayPolicy::paged, 365, 106, 13'840, 267, 433, 4'005},
      Row{ReplayPolicy::realloc, 25'229, 69, 0, 2'439, 4'393, 8'000},
      Row{ReplayPolicy::reserve_max, 0, 6, 0, 16'776, 32'884, 36'777},
  };
  for (const Row& row : rows) {
    const PolicyResult result = run(row.policy, 96_GiB, 10'000, 20).policies.front();
    const auto near = [](double value, double expected, double share) {
      EXPECT_NEAR(value, expected, expected * share);
    };
    const auto in_seconds = [](std::chrono::nanoseconds time) {
      return std::chrono::duration<double>(time).count();
    };
    EXPECT_EQ(result.completed, 12'031U) << to_string(row.policy);
    near(static_cast<double>(result.preempted), row.preempted, 0.10);
    near(static_cast<double>(result.peak_concurrent), row.peak_concurrent, 0.02);
    near(static_cast<double>(result.prefix.hit_blocks), row.hit_blocks, 0.02);
    near(in_seconds(result.wait.p50), row.wait_p50, 0.02);
    near(in_seconds(result.wait.p99), row.wait_p99, 0.02);
    near(in_seconds(result.end), row.end, 0.02);
  }
}

}  // namespace
}  // namespace memstrata
