// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/replay/find_limit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "frontend/replay/replay_input.hpp"
#include "frontend/replay/replay_run.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata {
namespace {

std::uint64_t measured(const PolicyResult& result, LimitMetric metric) noexcept {
  switch (metric) {
    case LimitMetric::wait_p50:
      return static_cast<std::uint64_t>(result.wait.p50.count());
    case LimitMetric::wait_p95:
      return static_cast<std::uint64_t>(result.wait.p95.count());
    case LimitMetric::wait_p99:
      return static_cast<std::uint64_t>(result.wait.p99.count());
    case LimitMetric::preempted:
      return result.preempted;
    case LimitMetric::refused:
      return result.refused;
  }
  std::unreachable();
}

/// The search for the limit of one policy.
class LimitSearch {
 public:
  LimitSearch(const replay_detail::ReplayInput& input,
              ReplayOptions options,
              const LimitCondition& condition,
              Bytes granularity,
              const ReplayProgress& progress)
      : input_(input),
        options_(std::move(options)),
        condition_(condition),
        granularity_(granularity),
        progress_(progress) {}

  /// Bisects between a budget that misses the condition and one that meets it.
  [[nodiscard]] Result<LimitFound, ReplayError> find(ReplayPolicy policy) {
    LimitFound found{.policy = policy,
                     .limit = std::nullopt,
                     .granularity = granularity_,
                     .at_limit = {},
                     .runs = 0};
    MEMSTRATA_TRY(found.at_limit, run(policy, std::nullopt, found));
    if (!condition_.is_met(found.at_limit)) {
      return found;
    }
    // A budget that the unlimited run never exceeded changes nothing, so it meets the condition too.
    std::uint64_t meets = steps_above(found.at_limit.bytes.peak_committed);
    std::uint64_t misses = 0;
    MEMSTRATA_TRY(found.at_limit, run(policy, granularity_ * meets, found));
    while (meets - misses > 1) {
      const std::uint64_t middle = misses + (meets - misses) / 2;
      MEMSTRATA_TRY(PolicyResult result, run(policy, granularity_ * middle, found));
      if (condition_.is_met(result)) {
        meets = middle;
        found.at_limit = std::move(result);
      } else {
        misses = middle;
      }
    }
    found.limit = granularity_ * meets;
    return found;
  }

 private:
  [[nodiscard]] std::uint64_t steps_above(Bytes bytes) const noexcept {
    return std::max<std::uint64_t>(
        bytes.value / granularity_.value + (is_multiple(bytes, granularity_) ? 0 : 1), 1);
  }

  [[nodiscard]] Result<PolicyResult, ReplayError> run(ReplayPolicy policy,
                                                      std::optional<Bytes> limit,
                                                      LimitFound& found) {
    ++found.runs;
    options_.limit = limit;
    return replay_detail::run_policy(input_, options_, policy, nullptr, progress_);
  }

  const replay_detail::ReplayInput& input_;
  ReplayOptions options_;
  LimitCondition condition_;
  Bytes granularity_;
  const ReplayProgress& progress_;
};

}  // namespace

bool LimitCondition::is_met(const PolicyResult& result) const noexcept {
  const bool all_ran = metric == LimitMetric::refused || result.refused == 0;
  return all_ran && measured(result, metric) <= bound;
}

Result<std::vector<LimitFound>, ReplayError> find_limit(std::span<const TraceRecord> records,
                                                        const ReplayOptions& options,
                                                        const LimitCondition& condition,
                                                        Bytes granularity,
                                                        const ReplayProgress& progress) {
  MEMSTRATA_TRY(const auto input, replay_detail::ReplayInput::prepare(records));
  ReplayOptions simulated = options;
  simulated.backing = ReplayBacking::sim;
  simulated.limit.reset();
  simulated.verify = false;
  simulated.corrupt_write.reset();
  simulated.record_calls.clear();
  simulated.inject.clear();
  if (simulated.context_tokens == 0) {
    simulated.context_tokens = input.longest();
  }
  MEMSTRATA_TRY_VOID(replay_detail::check_options(input, simulated));
  if (granularity == Bytes{} || !is_multiple(granularity, options.granule)) {
    return fail(ReplayError(BadReplayOption{
        .option = "find-limit",
        .value = ErrorText::copy(fmt::format("a step of {} bytes", granularity.value)),
        .expected = ErrorText::copy(
            fmt::format("a multiple of the granule of {} bytes", options.granule.value))}));
  }
  LimitSearch search(input, simulated, condition, granularity, progress);
  std::vector<LimitFound> answers;
  for (const ReplayPolicy policy : simulated.policies) {
    MEMSTRATA_TRY(LimitFound found, search.find(policy));
    answers.push_back(std::move(found));
  }
  return answers;
}

}  // namespace memstrata
