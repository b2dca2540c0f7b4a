// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/replay/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "frontend/replay/engine.hpp"
#include "frontend/replay/executor.hpp"
#include "frontend/replay/holding.hpp"
#include "frontend/replay/real_executor.hpp"
#include "frontend/replay/replay_input.hpp"
#include "frontend/replay/replay_run.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/geometry.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata {
namespace replay_detail {
namespace {

ReplayError bad_option(const char* option, std::uint64_t value, const char* expected) {
  return BadReplayOption{.option = option,
                         .value = ErrorText::copy(fmt::format("{}", value)),
                         .expected = ErrorText::copy(expected)};
}

Result<void, ReplayError> check_sizes(const ReplayInput& input, const ReplayOptions& options) {
  if (options.context_tokens < input.longest()) {
    return fail(ReplayError(BadReplayOption{
        .option = "context",
        .value = ErrorText::copy(fmt::format("{}", options.context_tokens)),
        .expected = ErrorText::copy(fmt::format(
            "at least {} tokens, the largest input + output in the selection", input.longest()))}));
  }
  // A quarter of the address space of 64 bits: sums of a few such sizes do not wrap.
  constexpr Bytes most = Bytes{std::uint64_t{1} << 62U};
  if (options.geometry.sequence_bytes(options.context_tokens) > most) {
    return fail(
        bad_option("context", options.context_tokens, "a context of fewer than 2^62 bytes"));
  }
  return {};
}

Result<void, ReplayError> check_real(const ReplayOptions& options) {
  if (options.backing == ReplayBacking::real) {
    if (!options.limit) {
      return fail(bad_option("limit", 0, "a limit for real memory"));
    }
    if (std::ranges::find(options.policies, ReplayPolicy::concat) != options.policies.end()) {
      return fail(ReplayError(PolicyNeedsSimulation{.policy = "concat"}));
    }
    if (!options.inject.empty() && !options.record_calls.empty()) {
      return fail(bad_option("inject",
                             options.inject.size(),
                             "no recording: the calls of a failed release are missing"));
    }
    if (!is_multiple(options.granule, machine_page)) {
      return fail(bad_option("granule", options.granule.value, "a multiple of 4096 bytes"));
    }
    if (!options.record_calls.empty() && options.policies.size() != 1) {
      return fail(bad_option(
          "record", options.policies.size(), "exactly one policy, whose calls are recorded"));
    }
    return {};
  }
  if (options.verify) {
    return fail(bad_option("verify", 1, "the backing real: the simulation has no bytes to check"));
  }
  if (options.corrupt_write) {
    return fail(bad_option("corrupt",
                           *options.corrupt_write,
                           "the backing real: the simulation has no bytes to damage"));
  }
  if (!options.inject.empty()) {
    return fail(bad_option("inject",
                           options.inject.size(),
                           "the backing real: the simulation has no releases that can fail"));
  }
  if (!options.record_calls.empty()) {
    return fail(bad_option("record", 1, "the backing real: the simulation makes no system calls"));
  }
  return {};
}

}  // namespace

Result<void, ReplayError> check_options(const ReplayInput& input, const ReplayOptions& options) {
  MEMSTRATA_TRY_VOID(options.geometry.check());
  if (options.granule == Bytes{} || options.granule > Bytes{std::uint64_t{1} << 40U}) {
    return fail(bad_option("granule", options.granule.value, "1 byte to 1 TiB"));
  }
  if (options.decode_tps == 0) {
    return fail(bad_option("decode-tps", 0, "at least 1 token per second"));
  }
  if (options.prefill_tps && *options.prefill_tps == 0) {
    return fail(bad_option("prefill-tps", 0, "at least 1 token per second, or inf"));
  }
  if (options.policies.empty()) {
    return fail(bad_option("policy", 0, "at least one policy"));
  }
  if (options.corrupt_write && *options.corrupt_write == 0) {
    return fail(bad_option("corrupt", 0, "a write counted from 1"));
  }
  MEMSTRATA_TRY_VOID(check_real(options));
  return check_sizes(input, options);
}

Result<PolicyResult, ReplayError> run_policy(const ReplayInput& input,
                                             const ReplayOptions& options,
                                             ReplayPolicy policy,
                                             ReplayExecutor* executor,
                                             const ReplayProgress& progress) {
  const Clock& clock = steady_clock();
  const auto start = clock.now();
  ReplayEngine engine(input, options, policy, executor);
  MEMSTRATA_TRY(PolicyResult result, engine.run(progress));
  result.wall = clock.now() - start;
  if (executor != nullptr) {
    ExecutionFigures figures = executor->figures();
    result.bytes.peak_kernel = figures.peak_kernel;
    result.bytes.peak_leased = figures.peak_leased.value_or(result.bytes.peak_leased);
    result.kernel_samples = std::move(figures.kernel_samples);
    result.op_ns = figures.op_ns;
    result.verify = std::move(figures.verify);
    result.releases = std::move(figures.releases);
    result.final_leased = figures.final_leased;
    result.violations += figures.violations;
    std::ranges::move(figures.violation_texts, std::back_inserter(result.violation_texts));
  }
  return result;
}

}  // namespace replay_detail

Result<ReplayReport, ReplayError> run_replay(std::span<const TraceRecord> records,
                                             const ReplayOptions& options,
                                             const ReplayProgress& progress) {
  MEMSTRATA_TRY(const replay_detail::ReplayInput input,
                replay_detail::ReplayInput::prepare(records));
  ReplayReport report;
  report.options = options;
  if (report.options.context_tokens == 0) {
    report.options.context_tokens = input.longest();
  }
  MEMSTRATA_TRY_VOID(replay_detail::check_options(input, report.options));
  report.requests = input.size();
  report.has_ids = input.has_ids();
  std::vector<std::uint64_t> lengths;
  lengths.reserve(input.size());
  for (const TraceRecord& record : records) {
    lengths.push_back(record.input_tokens + record.output_tokens);
  }
  for (const KvLayout layout :
       {KvLayout::token_major, KvLayout::layer_major, KvLayout::layer_kv_major}) {
    report.layouts.push_back(layout_figures(options.geometry, layout, options.granule, lengths));
  }
  for (const ReplayPolicy policy : options.policies) {
    std::unique_ptr<replay_detail::ReplayExecutor> executor;
    if (options.backing == ReplayBacking::real) {
      MEMSTRATA_TRY(executor,
                    replay_detail::RealExecutor::create(
                        input, report.options, policy, host::real_system_calls()));
    }
    MEMSTRATA_TRY(
        PolicyResult result,
        replay_detail::run_policy(input, report.options, policy, executor.get(), progress));
    report.policies.push_back(std::move(result));
  }
  return report;
}

}  // namespace memstrata
