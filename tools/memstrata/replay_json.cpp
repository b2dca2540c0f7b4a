// SPDX-License-Identifier: Apache-2.0
#include "replay_json.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/frontend/replay/find_limit.hpp"
#include "memstrata/frontend/replay/geometry.hpp"
#include "memstrata/frontend/replay/release_injection.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"
#include "memstrata/frontend/trace/trace_statistics.hpp"
#include "replay_outcome.hpp"
#include "units.hpp"

namespace memstrata::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view replay_schema = "memstrata.replay/1";

/// What is not known is null, never 0.
Json or_null(const std::optional<std::uint64_t>& value) {
  return value ? Json(*value) : Json();
}

Json or_null(const std::optional<Bytes>& value) {
  return value ? Json(value->value) : Json();
}

Json trace_json(const ReplayOutcome& outcome) {
  const TraceStatistics& statistics = outcome.trace.statistics;
  Json curve = Json::array();
  for (const auto& [blocks, hits] : statistics.hit_curve) {
    curve.push_back({{"blocks", blocks}, {"hits", hits}});
  }
  return {{"path", outcome.trace.path},
          {"format", to_string(outcome.trace.format)},
          {"requests", statistics.requests},
          {"input_tokens", statistics.input_tokens},
          {"output_tokens", statistics.output_tokens},
          {"block_refs", statistics.block_refs},
          {"unique_blocks", statistics.unique_blocks},
          {"hit_curve", std::move(curve)},
          {"skipped", outcome.trace.skipped},
          {"synthetic", outcome.trace.header.synthetic}};
}

Json model_json(const KvGeometry& geometry) {
  return {{"name", geometry.name},
          {"layers", geometry.layers},
          {"kv_heads", geometry.kv_heads},
          {"head_dim", geometry.head_dim},
          {"dtype", to_string(geometry.dtype)},
          {"kv_bytes_per_token", geometry.kv_bytes_per_token().value},
          {"scale", geometry.scale},
          {"sliding_layers", geometry.sliding_layers},
          {"window", geometry.window},
          {"latent_dim", geometry.latent_dim},
          {"rope_dim", geometry.rope_dim}};
}

Json options_json(const ReplayOutcome& outcome) {
  const ReplayOptions& options = outcome.request.options;
  Json policies = Json::array();
  for (const ReplayPolicy policy : options.policies) {
    policies.push_back(to_string(policy));
  }
  Json injections = Json::array();
  for (const auto& [fault, release] : options.inject) {
    injections.push_back({{"fault", to_string(fault)}, {"release", release}});
  }
  return {{"policies", std::move(policies)},
          {"backing", to_string(options.backing)},
          {"limit_bytes", or_null(options.limit)},
          {"granule_bytes", options.granule.value},
          {"layout", to_string(KvLayout::token_major)},
          {"context_tokens",
           options.context_tokens == 0 ? outcome.trace.statistics.largest_request_tokens
                                       : options.context_tokens},
          {"prefill_tps", or_null(options.prefill_tps)},
          {"decode_tps", options.decode_tps},
          {"cache_blocks", or_null(options.cache_blocks)},
          {"requests", or_null(outcome.request.requests)},
          {"skip_bad", outcome.request.skip_bad},
          {"verify", options.verify},
          {"corrupt_write", or_null(options.corrupt_write)},
          {"inject", std::move(injections)},
          {"seed", options.seed}};
}

Json bytes_json(const ReplayBytes& bytes) {
  return {{"peak_reserved", bytes.peak_reserved.value},
          {"peak_leased", bytes.peak_leased.value},
          {"peak_committed", bytes.peak_committed.value},
          {"peak_live", bytes.peak_live.value},
          {"peak_cached", bytes.peak_cached.value},
          {"peak_kernel", or_null(bytes.peak_kernel)},
          {"copied", bytes.copied.value},
          {"shared_saved", bytes.shared_saved.value}};
}

Json op_json(const OpTimes& times) {
  const bool is_known = times.calls != 0;
  const auto figure = [is_known](std::uint64_t value) { return is_known ? Json(value) : Json(); };
  return {{"calls", times.calls},
          {"p50", figure(times.p50_ns)},
          {"p99", figure(times.p99_ns)},
          {"max", figure(times.max_ns)}};
}

Json ops_json(const ReplayOps& ops) {
  return {{"reserve", op_json(ops.reserve)},
          {"commit", op_json(ops.commit)},
          {"grow", op_json(ops.grow)},
          {"share", op_json(ops.share)},
          {"release", op_json(ops.release)}};
}

Json verify_json(const ReplayVerify& verify) {
  Json first = Json::array();
  for (const ReplayMismatch& at : verify.first) {
    first.push_back({{"request", at.request},
                     {"incarnation", at.incarnation},
                     {"block", or_null(at.block)},
                     {"offset", at.offset.value},
                     {"sequence_offset", at.sequence_offset.value},
                     {"expected", at.expected},
                     {"found", at.found}});
  }
  return {{"bytes_checked", verify.bytes_checked.value},
          {"mismatches", verify.mismatches},
          {"writes", verify.writes},
          {"corrupted", verify.corrupted},
          {"first", std::move(first)}};
}

Json releases_json(const ReplayReleases& releases) {
  Json residuals = Json::array();
  for (const ReplayResidual& residual : releases.residuals) {
    residuals.push_back({{"release", residual.release},
                         {"kind", to_string(residual.kind)},
                         {"request", residual.request},
                         {"state", to_string(residual.state)},
                         {"reason", residual.reason.phrase()},
                         {"address", residual.address.value()},
                         {"bytes", residual.bytes.value},
                         {"retained_bytes", residual.retained.value},
                         {"charged_bytes", residual.charged.value}});
  }
  return {{"queued", releases.queued},
          {"executed", releases.executed},
          {"released", releases.released},
          {"quarantined", releases.quarantined},
          {"reconciled", releases.reconciled},
          {"injected", releases.injected},
          {"device_lost", releases.device_lost},
          {"live", releases.live},
          {"live_charged_bytes", releases.live_charged.value},
          {"residual_charged_bytes", releases.residual_charged.value},
          {"residuals", std::move(residuals)}};
}

Json policy_json(const PolicyResult& result) {
  Json samples = Json::array();
  for (const auto& [committed, kernel] : result.kernel_samples) {
    samples.push_back({{"committed", committed.value}, {"kernel", kernel.value}});
  }
  Json refusals = Json::array();
  for (const auto& [request, needed, limit] : result.refusals) {
    refusals.push_back({{"request", request}, {"needed", needed.value}, {"limit", limit.value}});
  }
  const ReplayPrefix& prefix = result.prefix;
  return {{"policy", to_string(result.policy)},
          {"completed", result.completed},
          {"refused", result.refused},
          {"preempted", result.preempted},
          {"preempted_requests", result.preempted_requests},
          {"peak_concurrent", result.peak_concurrent},
          {"peak_live_tokens", result.peak_live_tokens},
          {"wait_s",
           {{"p50", in_seconds(result.wait.p50)},
            {"p95", in_seconds(result.wait.p95)},
            {"p99", in_seconds(result.wait.p99)}}},
          {"bytes", bytes_json(result.bytes)},
          {"kernel_samples", std::move(samples)},
          {"waste_ratio", result.waste_ratio},
          {"prefix",
           {{"hit_blocks", prefix.hit_blocks},
            {"hit_tokens", prefix.hit_tokens},
            {"mapped_blocks", prefix.mapped_blocks},
            {"hit_ratio_blocks", prefix.hit_ratio_blocks},
            {"partial", prefix.partial}}},
          {"op_ns", ops_json(result.op_ns)},
          {"verify", verify_json(result.verify)},
          {"releases", releases_json(result.releases)},
          {"violations", result.violations},
          {"final_leased_bytes", result.final_leased.value},
          {"wall_s", in_seconds(result.wall)},
          {"end_s", in_seconds(result.end)},
          {"refusals", std::move(refusals)},
          {"violation_texts", result.violation_texts},
          {"systems", systems_of(result.policy)}};
}

Json limits_json(const ReplayOutcome& outcome) {
  Json found = Json::array();
  for (const LimitFound& limit : outcome.limits) {
    found.push_back({{"policy", to_string(limit.policy)},
                     {"limit_bytes", or_null(limit.limit)},
                     {"granularity_bytes", limit.granularity.value},
                     {"runs", limit.runs}});
  }
  const LimitCondition& condition = *outcome.request.find_limit;
  const bool is_wait =
      condition.metric != LimitMetric::preempted && condition.metric != LimitMetric::refused;
  return {{"metric", to_string(condition.metric)},
          {"at_most",
           is_wait ? Json(static_cast<double>(condition.bound) * 1e-9) : Json(condition.bound)},
          {"policies", std::move(found)}};
}

Json layouts_json(const std::vector<LayoutFigures>& layouts) {
  Json all = Json::array();
  for (const LayoutFigures& layout : layouts) {
    all.push_back({{"layout", to_string(layout.layout)},
                   {"ranges", layout.ranges},
                   {"floor_bytes", layout.floor.value},
                   {"whole_granule_block", layout.whole_granule_block},
                   {"mean_waste_bytes", layout.mean_waste_bytes}});
  }
  return all;
}

}  // namespace

nlohmann::ordered_json to_json(const ReplayOutcome& outcome) {
  Json policies = Json::array();
  for (const PolicyResult* const result : outcome.results()) {
    policies.push_back(policy_json(*result));
  }
  Json json{{"schema", replay_schema},
            {"tier", tier_sentence},
            {"trace", trace_json(outcome)},
            {"model", model_json(outcome.request.options.geometry)},
            {"options", options_json(outcome)},
            {"policies", std::move(policies)},
            {"layouts", layouts_json(outcome.report.layouts)},
            {"notes", notes_of(outcome)}};
  if (outcome.request.find_limit) {
    json["find_limit"] = limits_json(outcome);
  }
  return json;
}

}  // namespace memstrata::tool
