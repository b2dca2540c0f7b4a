// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "frontend/replay/real_executor.hpp"
#include "frontend/replay/replay_input.hpp"
#include "frontend/replay/replay_run.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "real_rig.hpp"
#include "support/breaking_system_calls.hpp"

namespace memstrata::test {
namespace {

using Reason = QuarantineReason::Kind;

constexpr std::uint64_t requests = 6;

/// The small trace under a limit that makes blocks go and requests wait.
PolicyResult injected(ReplayPolicy policy,
                      std::vector<ReleaseInjection> injections,
                      Bytes limit = {}) {
  ReplayOptions options = real_options(policy, limit == Bytes{} ? tight_limit(policy) * 2 : limit);
  options.inject = std::move(injections);
  return replayed(small_trace(), options);
}

class ReplayReleasesOf : public testing::TestWithParam<ReplayPolicy> {};

INSTANTIATE_TEST_SUITE_P(Policies,
                         ReplayReleasesOf,
                         testing::Values(ReplayPolicy::reserve_max,
                                         ReplayPolicy::realloc,
                                         ReplayPolicy::paged,
                                         ReplayPolicy::virtual_memory),
                         [](const auto& policy) {
                           std::string name(to_string(policy.param));
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(ReplayReleasesOf, AreQueuedExecutedAndCompleteInASoundRun) {
  const ReplayReleases releases = injected(GetParam(), {}).releases;

  EXPECT_GE(releases.queued, 1U);
  EXPECT_EQ(releases.executed, releases.queued);
  EXPECT_EQ(releases.released, releases.queued);
  EXPECT_EQ(releases.quarantined, 0U);
  EXPECT_TRUE(releases.residuals.empty());
  EXPECT_EQ(releases.residual_charged, Bytes{});
}

// Whichever release fails: it is named, exactly its bytes stay charged, and every other request ends as it must.
TEST_P(ReplayReleasesOf, LoseNothingIfOneFails) {
  const std::uint64_t all = injected(GetParam(), {}).releases.queued;
  for (std::uint64_t number = 1; number <= all; ++number) {
    const auto result = injected(GetParam(), {{.fault = ReleaseFault::fail, .release = number}});

    ASSERT_EQ(result.violations, 0U) << number << ": " << result.violation_texts.front();
    ASSERT_EQ(result.verify.mismatches, 0U);
    ASSERT_EQ(result.completed + result.refused, requests) << number;
    const ReplayReleases& releases = result.releases;
    ASSERT_EQ(releases.injected, 1U) << number;
    ASSERT_EQ(releases.executed, releases.queued);
    ASSERT_EQ(releases.released, releases.queued - 1);
    ASSERT_EQ(releases.quarantined, 1U);
    ASSERT_EQ(releases.residuals.size(), 1U);
    const ReplayResidual& residual = releases.residuals.front();
    EXPECT_EQ(residual.release, number);
    EXPECT_EQ(residual.state, AllocationReleaseState::quarantined);
    EXPECT_EQ(residual.reason.kind(), Reason::allocator_refused);
    EXPECT_EQ(residual.retained, residual.bytes);
    EXPECT_EQ(result.final_leased, residual.charged);
    EXPECT_EQ(result.final_leased, releases.residual_charged);
  }
}

// Some of it is gone and refunded, the rest is charged: not more and not less.
TEST_P(ReplayReleasesOf, KeepTheRestIfOneStopsMidway) {
  const auto run = [](std::vector<ReleaseInjection> injections) {
    ReplayOptions options = real_options(GetParam(), tight_limit(GetParam()) * 2);
    options.granule = p;
    options.inject = std::move(injections);
    return replayed(small_trace(), options);
  };
  const std::uint64_t all = run({}).releases.queued;
  std::uint64_t stopped = 0;
  for (std::uint64_t number = 1; number <= all; ++number) {
    const auto result = run({{.fault = ReleaseFault::midway, .release = number}});

    ASSERT_EQ(result.violations, 0U) << number << ": " << result.violation_texts.front();
    ASSERT_EQ(result.completed + result.refused, requests) << number;
    const ReplayReleases& releases = result.releases;
    if (releases.injected == 0) {
      EXPECT_EQ(releases.quarantined, 0U);  // no later release has two granules of its own
      continue;
    }
    ++stopped;
    ASSERT_EQ(releases.quarantined, 1U);
    const ReplayResidual& residual = releases.residuals.front();
    EXPECT_GE(residual.release, number);
    EXPECT_EQ(residual.state, AllocationReleaseState::partially_unmapped);
    EXPECT_EQ(residual.reason.kind(), Reason::partial_release);
    EXPECT_GT(residual.retained, Bytes{});
    EXPECT_LE(residual.retained, residual.charged);
    EXPECT_EQ(result.final_leased, residual.charged);
  }
  EXPECT_GE(stopped, 1U);
}

// The run ends where the device is lost: nothing is refunded, and the end of the context discharges everything.
TEST_P(ReplayReleasesOf, AreAllChargedAfterTheLossOfTheDevice) {
  const auto sound = injected(GetParam(), {});
  for (std::uint64_t number = 1; number <= sound.releases.queued; ++number) {
    const auto result = injected(GetParam(), {{.fault = ReleaseFault::lose, .release = number}});

    ASSERT_EQ(result.violations, 0U) << number << ": " << result.violation_texts.front();
    const ReplayReleases& releases = result.releases;
    ASSERT_TRUE(releases.device_lost);
    EXPECT_EQ(releases.queued, number);
    EXPECT_LT(releases.executed, number);
    EXPECT_EQ(releases.released, releases.executed);
    EXPECT_EQ(releases.quarantined, number - releases.executed);
    ASSERT_FALSE(releases.residuals.empty());
    EXPECT_EQ(releases.residuals.back().release, number);
    for (const ReplayResidual& residual : releases.residuals) {
      EXPECT_EQ(residual.state, AllocationReleaseState::device_lost);
      EXPECT_EQ(residual.reason.kind(), Reason::device_lost);
    }
    EXPECT_EQ(result.final_leased, releases.residual_charged + releases.live_charged);
    EXPECT_GT(result.final_leased, Bytes{});
    EXPECT_LE(result.completed, sound.completed);
  }
}

// Every release fails one after the other until nothing fits: each request is completed or refused with the limit
// that was left, and the run ends.
TEST_P(ReplayReleasesOf, LeaveLessForTheRequestsThatFollow) {
  std::vector<ReleaseInjection> every;
  for (std::uint64_t number = 1; number <= 200; ++number) {
    every.push_back({.fault = ReleaseFault::fail, .release = number});
  }
  const Bytes limit = tight_limit(GetParam());
  const auto result = injected(GetParam(), every, limit);

  EXPECT_EQ(result.violations, 0U) << result.violation_texts.front();
  EXPECT_EQ(result.completed + result.refused, requests);
  EXPECT_EQ(result.releases.quarantined, result.releases.queued);
  EXPECT_EQ(result.final_leased, result.releases.residual_charged);
  EXPECT_LE(result.bytes.peak_leased, limit);
  for (const RefusedRequest& refusal : result.refusals) {
    EXPECT_GT(refusal.needed, refusal.limit);
    EXPECT_LT(refusal.limit, limit);
  }
}

// An eviction that fails frees nothing: the next idle block goes instead, before the request is admitted.
TEST(ReplayQuarantine, MakesAnAdmissionEvictOneMore) {
  ReplayOptions options = real_options(ReplayPolicy::virtual_memory, g * 9);
  options.inject = {
      {.fault = ReleaseFault::fail, .release = 2}};  // after the first request's buffer
  const std::vector<TraceRecord> two{record(milliseconds(0), 1'024, 10, {1, 2}),
                                     record(milliseconds(10'000), 1'536, 10, {5, 6, 7})};

  const auto result = replayed(two, options);

  EXPECT_EQ(result.completed, 2U);
  EXPECT_EQ(result.violations, 0U) << result.violation_texts.front();
  ASSERT_EQ(result.releases.residuals.size(), 1U);
  EXPECT_EQ(result.releases.residuals.front().kind, ReplayAllocationKind::block);
  EXPECT_EQ(result.final_leased, g * 2);
  EXPECT_EQ(result.bytes.peak_leased, g * 9);
}

// Hits of a request that cannot be admitted after all are idle again.
TEST(ReplayQuarantine, LetsGoOfTheHitsOfARequestThatIsRefused) {
  ReplayOptions options = real_options(ReplayPolicy::virtual_memory, g * 9);
  options.inject = {{.fault = ReleaseFault::fail, .release = 3}};  // the first eviction
  const std::vector<TraceRecord> three{record(milliseconds(0), 1'024, 10, {1, 2}),
                                       record(milliseconds(10'000), 1'024, 10, {7, 8}),
                                       record(milliseconds(20'000), 2'048, 10, {1, 3, 4, 5})};

  const auto result = replayed(three, options);

  EXPECT_EQ(result.completed, 2U);
  EXPECT_EQ(result.violations, 0U) << result.violation_texts.front();
  ASSERT_EQ(result.refusals.size(), 1U);
  EXPECT_EQ(result.refusals.front().needed, g * 9);
  EXPECT_EQ(result.refusals.front().limit, g * 7);
  EXPECT_EQ(result.final_leased, g * 2);
}

// A buffer in quarantine keeps its blocks mapped: an evicted block is charged as long as its bytes are there.
TEST(ReplayQuarantine, KeepsTheChargeOfBlocksThatItMaps) {
  ReplayOptions options = real_options(ReplayPolicy::virtual_memory, g * 30);
  options.cache_blocks = 0;  // a block goes with its last request
  options.inject = {{.fault = ReleaseFault::fail, .release = 1}};
  const std::vector<TraceRecord> one{record(milliseconds(0), 1'100, 40, {1, 2, 3})};

  const auto result = replayed(one, options);

  EXPECT_EQ(result.violations, 0U) << result.violation_texts.front();
  ASSERT_EQ(result.releases.residuals.size(), 1U);
  EXPECT_EQ(result.releases.residuals.front().kind, ReplayAllocationKind::sequence);
  // Two blocks of two granules, and the private tail of 116 tokens.
  EXPECT_EQ(result.releases.residuals.front().charged, g * 5);
  EXPECT_EQ(result.final_leased, g * 5);
}

TEST(ReplayQuarantine, ListsTheFirstResidualsAndCountsAll) {
  std::vector<TraceRecord> many;
  std::vector<ReleaseInjection> every;
  for (std::uint64_t number = 1; number <= 40; ++number) {
    many.push_back(record(milliseconds(10'000 * number), 100, 5, {number}));
    every.push_back({.fault = ReleaseFault::fail, .release = number});
  }
  ReplayOptions options = real_options(ReplayPolicy::virtual_memory, g * 100);
  options.inject = every;

  const auto result = replayed(many, options);

  EXPECT_EQ(result.releases.quarantined, 40U);
  EXPECT_EQ(result.releases.residuals.size(), most_listed);
  EXPECT_EQ(result.releases.residual_charged, g * 40);
  EXPECT_EQ(result.violations, 0U);
}

/// A run whose system calls may be refused.
struct RefusableRun {
  PolicyResult run() {
    ReplayOptions options = real_options(ReplayPolicy::virtual_memory, g * 18);
    options.context_tokens = 2'000;
    const auto input = replay_detail::ReplayInput::prepare(records).value();
    const auto executor =
        replay_detail::RealExecutor::create(input, options, ReplayPolicy::virtual_memory, calls)
            .value();
    auto result =
        replay_detail::run_policy(input, options, ReplayPolicy::virtual_memory, executor.get(), {})
            .value();
    calls->mend();  // so that nothing is left when the backing ends
    return result;
  }

  /// Numbers of the calls, from 1, that unmap what is as long as a sequence's reservation or longer.
  [[nodiscard]] std::vector<std::size_t> unmappings() const {
    std::vector<std::size_t> numbers;
    const auto all = calls->calls();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].kind == host::SystemCallKind::unmap && all[i].length >= (g * 8).value) {
        numbers.push_back(i + 1);
      }
    }
    return numbers;
  }

  std::vector<TraceRecord> records = small_trace();
  std::shared_ptr<BreakingSystemCalls> calls = std::make_shared<BreakingSystemCalls>();
};

// Refused once: the bytes stay charged until the backing has given them back, and then the record is discharged.
TEST(ReplayQuarantine, EndsWhenTheKernelTakesTheMemoryBackAfterAll) {
  RefusableRun sound;
  ASSERT_EQ(sound.run().releases.quarantined, 0U);
  const auto numbers = sound.unmappings();
  ASSERT_EQ(numbers.size(), requests);
  for (const std::size_t number : numbers) {
    RefusableRun refused;
    refused.calls->break_nth(number, Breakage::before);

    const auto result = refused.run();

    EXPECT_EQ(result.completed, requests);
    EXPECT_EQ(result.violations, 0U) << number << ": " << result.violation_texts.front();
    EXPECT_EQ(result.releases.quarantined, 1U) << number;
    EXPECT_EQ(result.releases.reconciled, 1U);
    EXPECT_TRUE(result.releases.residuals.empty());
    EXPECT_EQ(result.final_leased, Bytes{});
  }
}

// Refused for good: it is named, charged, and a broken promise of the machine.
TEST(ReplayQuarantine, HoldsWhatTheKernelNeverTakesBack) {
  RefusableRun sound;
  ASSERT_EQ(sound.run().releases.quarantined, 0U);
  RefusableRun refused;
  refused.calls->break_from(sound.unmappings().back());

  const auto result = refused.run();

  EXPECT_EQ(result.completed, requests);
  ASSERT_EQ(result.releases.residuals.size(), 1U);
  const ReplayResidual& residual = result.releases.residuals.front();
  EXPECT_EQ(residual.state, AllocationReleaseState::partially_unmapped);
  EXPECT_GT(residual.charged, Bytes{});
  EXPECT_LE(residual.retained, residual.charged);  // the blocks that it maps are charged too
  EXPECT_EQ(result.final_leased, residual.charged);
  EXPECT_EQ(result.releases.reconciled, 0U);
  EXPECT_GE(result.violations, 1U);
}

}  // namespace
}  // namespace memstrata::test
