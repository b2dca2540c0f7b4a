// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/replay/real_executor.hpp"
#include "frontend/replay/replay_input.hpp"
#include "frontend/replay/replay_run.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "real_rig.hpp"
#include "support/breaking_system_calls.hpp"
#include "support/process_view.hpp"

namespace memstrata::test {
namespace {

using replay_detail::RealExecutor;
using replay_detail::ReplayInput;

/// A run on real memory whose system calls can be made to fail.
struct FaultyRun {
  explicit FaultyRun(ReplayPolicy policy) : options(real_options(policy, tight_limit(policy))) {
    options.context_tokens = 2'000;
  }

  Result<PolicyResult, ReplayError> run() {
    const ReplayInput input = ReplayInput::prepare(records).value();
    auto executor = RealExecutor::create(input, options, options.policies.front(), calls);
    if (!executor) {
      return fail(std::move(executor).error());
    }
    governor = (*executor)->governor();
    return replay_detail::run_policy(input, options, options.policies.front(), executor->get(), {});
  }

  std::vector<TraceRecord> records = small_trace();
  ReplayOptions options;
  std::shared_ptr<BreakingSystemCalls> calls = std::make_shared<BreakingSystemCalls>();
  std::shared_ptr<MemoryGovernor> governor;
};

// A call that is refused is a typed error of the run or is made good by the library; in both cases every byte is given
// back to the budget, and no descriptor is left. Closing is left out: a descriptor whose `close` is refused stays open.
TEST(RealReplayFaults, LoseNothingWhicheverCallIsRefused) {
  for (const ReplayPolicy policy : {ReplayPolicy::virtual_memory,
                                    ReplayPolicy::paged,
                                    ReplayPolicy::realloc,
                                    ReplayPolicy::reserve_max}) {
    FaultyRun sound(policy);
    ASSERT_TRUE(sound.run().has_value());
    const std::vector<host::SystemCall> all = sound.calls->calls();
    const std::size_t descriptors = open_descriptors();
    std::size_t refused = 0;
    for (std::size_t number = 1; number <= all.size(); number += 1 + number / 40) {
      if (all[number - 1].kind == host::SystemCallKind::close_file) {
        continue;
      }
      FaultyRun faulty(policy);
      faulty.calls->break_nth(number, Breakage::before);
      const auto result = faulty.run();
      if (!result) {
        ++refused;
        ASSERT_NE(std::get_if<ExecutionFailed>(&result.error().kind), nullptr) << number;
        ASSERT_NE(result.error().cause.target<VirtualBufferError>(), nullptr) << number;
        ASSERT_FALSE(result.error().is_usage_error());
      } else {
        ASSERT_EQ(result->verify.mismatches, 0U) << number;
      }
      if (faulty.governor != nullptr) {
        ASSERT_EQ(faulty.governor->usage(Tier::host).used, Bytes{}) << number;
      }
      ASSERT_EQ(open_descriptors(), descriptors) << number;
    }
    EXPECT_GE(refused, 3U) << to_string(policy);
  }
}

// The first call of a run is the first reservation; the message ends with the library's own sentence.
TEST(RealReplayFaults, SayWhatWasTriedAndWhy) {
  FaultyRun faulty(ReplayPolicy::virtual_memory);
  faulty.calls->break_nth(1, Breakage::before);

  const auto result = faulty.run();

  ASSERT_FALSE(result.has_value());
  const auto* failed = std::get_if<ExecutionFailed>(&result.error().kind);
  ASSERT_NE(failed, nullptr);
  EXPECT_STREQ(failed->operation, "admission");
  EXPECT_EQ(failed->request, 0U);
  EXPECT_NE(result.error().message().find("admission failed on real memory for request 0"),
            std::string::npos);
  EXPECT_NE(result.error().message().find("mmap"), std::string::npos);
}

}  // namespace
}  // namespace memstrata::test
