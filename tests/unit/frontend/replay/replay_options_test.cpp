// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "memstrata/core/error/replay_error.hpp"
#include "replay_rig.hpp"

namespace memstrata::test {
namespace {

using std::chrono::seconds;

std::vector<TraceRecord> one_request() {
  return {record(seconds(0), 1'000, 10, {1, 2})};
}

ReplayOptions sound() {
  return toy_options(ReplayPolicy::virtual_memory, g * 10);
}

/// The option that a run is refused for.
std::string refused(const ReplayOptions& options,
                    const std::vector<TraceRecord>& records = one_request()) {
  const auto report = run_replay(records, options);
  if (report) {
    return "none";
  }
  const auto* bad = std::get_if<BadReplayOption>(&report.error().kind);
  EXPECT_TRUE(report.error().is_usage_error());
  return bad == nullptr ? report.error().message() : bad->option;
}

template <class Change>
std::string refused_with(Change change) {
  ReplayOptions options = sound();
  change(options);
  return refused(options);
}

TEST(ReplayOptions, AreRefusedByName) {
  using Options = ReplayOptions;

  EXPECT_EQ(refused(sound()), "none");
  EXPECT_EQ(refused_with([](Options& o) { o.decode_tps = 0; }), "decode-tps");
  EXPECT_EQ(refused_with([](Options& o) { o.prefill_tps = 0; }), "prefill-tps");
  EXPECT_EQ(refused_with([](Options& o) { o.granule = Bytes{}; }), "granule");
  EXPECT_EQ(refused_with([](Options& o) { o.policies.clear(); }), "policy");
  EXPECT_EQ(refused_with([](Options& o) { o.context_tokens = 1'009; }), "context");
  EXPECT_EQ(refused_with([](Options& o) { o.context_tokens = std::uint64_t{1} << 60U; }),
            "context");
  EXPECT_EQ(refused_with([](Options& o) { o.verify = true; }), "verify");
  EXPECT_EQ(refused_with([](Options& o) { o.corrupt_write = 7; }), "corrupt");
  EXPECT_EQ(refused_with([](Options& o) { o.record_calls = "calls"; }), "record");
}

TEST(ReplayOptions, NeedMoreForRealMemory) {
  const auto real_with = [](auto change) {
    return refused_with([&](ReplayOptions& options) {
      options.backing = ReplayBacking::real;
      change(options);
    });
  };

  EXPECT_EQ(real_with([](ReplayOptions& o) { o.limit.reset(); }), "limit");
  EXPECT_EQ(real_with([](ReplayOptions& o) { o.granule = Bytes{1'000}; }), "granule");
  EXPECT_EQ(real_with([](ReplayOptions& o) { o.corrupt_write = 0; }), "corrupt");
  EXPECT_EQ(real_with([](ReplayOptions& o) {
              o.record_calls = "calls";
              o.policies = {ReplayPolicy::paged, ReplayPolicy::virtual_memory};
            }),
            "record");
}

TEST(ReplayOptions, KeepConcatInTheSimulation) {
  ReplayOptions options = toy_options(ReplayPolicy::concat, g * 10);
  options.backing = ReplayBacking::real;

  const auto report = run_replay(one_request(), options);

  ASSERT_FALSE(report.has_value());
  EXPECT_NE(std::get_if<PolicyNeedsSimulation>(&report.error().kind), nullptr);
  EXPECT_EQ(policies_for_all(ReplayBacking::real).size(), 4U);
  EXPECT_EQ(policies_for_all(ReplayBacking::sim).size(), 5U);
}

TEST(ReplayRecords, AreRefusedIfTheyMakeNoSense) {
  EXPECT_EQ(refused(sound(), {record(seconds(1), 5, 1, {}), record(seconds(0), 5, 1, {})}),
            "trace");
  EXPECT_EQ(refused(sound(), {record(seconds(0), 0, 1, {})}), "trace");
  EXPECT_EQ(refused(sound(),
                    {record(seconds(0), 1'024, 1, {1, 2}), record(seconds(0), 1'024, 1, {2, 1})}),
            "trace");
}

TEST(ReplayRecords, MustNotBeMissing) {
  const auto report = run_replay({}, sound());

  ASSERT_FALSE(report.has_value());
  EXPECT_NE(std::get_if<EmptySelection>(&report.error().kind), nullptr);
}

TEST(ReplayNames, AreReadWithoutRegardToCase) {
  for (const ReplayPolicy policy : all_replay_policies) {
    EXPECT_EQ(parse_replay_policy(to_string(policy)), policy);
    EXPECT_FALSE(systems_of(policy).empty());
  }
  EXPECT_EQ(parse_replay_policy("Virtual"), ReplayPolicy::virtual_memory);
  EXPECT_EQ(parse_replay_policy("RESERVE-MAX"), ReplayPolicy::reserve_max);
  EXPECT_EQ(parse_replay_policy("vllm"), std::nullopt);
  EXPECT_EQ(parse_replay_backing("SIM"), ReplayBacking::sim);
  EXPECT_EQ(parse_replay_backing("real"), ReplayBacking::real);
  EXPECT_EQ(parse_replay_backing("cuda"), std::nullopt);
}

// The report says what was run: the context is filled in, the layouts are there by arithmetic.
TEST(ReplayReport, SaysWhatWasRun) {
  const auto report = run_replay(one_request(), sound()).value();

  EXPECT_EQ(report.options.context_tokens, 1'010U);
  EXPECT_EQ(report.requests, 1U);
  EXPECT_TRUE(report.has_ids);
  EXPECT_EQ(report.layouts.size(), 3U);
  EXPECT_FALSE(report.policies.front().bytes.peak_kernel.has_value());
}

}  // namespace
}  // namespace memstrata::test
