// SPDX-License-Identifier: Apache-2.0
#include "replay_outcome.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "exit_code.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/frontend/replay/find_limit.hpp"
#include "memstrata/frontend/replay/geometry.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "units.hpp"

namespace memstrata::tool {
namespace {

constexpr std::size_t most_refusals_shown = 3;
constexpr std::size_t most_residuals_shown = 4;

void add_trace_notes(const ReplayOutcome& outcome, std::vector<std::string>& notes) {
  if (outcome.trace.header.synthetic) {
    notes.emplace_back("the trace is synthetic: " + outcome.trace.header.made_by);
  }
  if (outcome.trace.skipped != 0) {
    notes.push_back(
        fmt::format("{} bad records were skipped", format_count(outcome.trace.skipped)));
  }
  if (outcome.trace.statistics.block_refs == 0) {
    notes.emplace_back(
        "the trace has no block ids, so no prefix can be shared and there are no hits");
  }
}

void add_model_notes(const ReplayOutcome& outcome, std::vector<std::string>& notes) {
  const KvGeometry& geometry = outcome.request.options.geometry;
  if (geometry.scale != 1) {
    notes.push_back(fmt::format(
        "scaled: a token holds 1/{} of the model's bytes; limit and granule do not change",
        geometry.scale));
  }
  if (geometry.sliding_layers != 0) {
    notes.push_back(
        fmt::format("{} of {} layers keep only the last {} tokens; these stay private, so a hit is "
                    "a partial one",
                    geometry.sliding_layers,
                    geometry.layers,
                    format_count(geometry.window)));
  }
  if (geometry.published_context != 0) {
    notes.push_back(fmt::format("published context of {}: {} tokens; largest request here: {}",
                                geometry.name,
                                format_count(geometry.published_context),
                                format_count(outcome.trace.statistics.largest_request_tokens)));
  }
}

void add_layout_notes(const ReplayOutcome& outcome, std::vector<std::string>& notes) {
  for (const LayoutFigures& layout : outcome.report.layouts) {
    notes.push_back(fmt::format(
        "layout {}: {} {} per sequence, floor {}, mean waste {} per sequence (by arithmetic){}",
        to_string(layout.layout),
        format_count(layout.ranges),
        layout.ranges == 1 ? "range" : "ranges",
        format_bytes(layout.floor),
        format_bytes(Bytes{static_cast<std::uint64_t>(layout.mean_waste_bytes)}),
        layout.whole_granule_block ? ""
                                   : "; a block of 512 tokens is no whole number of granules"));
  }
}

void add_mismatches(const PolicyResult& result, std::vector<std::string>& notes) {
  for (const ReplayMismatch& at : result.verify.first) {
    const std::string where = at.block
                                  ? fmt::format("block {}, offset {}", *at.block, at.offset.value)
                                  : fmt::format("private bytes, offset {}", at.offset.value);
    notes.push_back(fmt::format(
        "{}: MISMATCH in request {} ({}; {} bytes into the sequence, incarnation {}): wrote "
        "{:#018x}, found {:#018x}",
        to_string(result.policy),
        at.request,
        where,
        at.sequence_offset.value,
        at.incarnation,
        at.expected,
        at.found));
  }
}

void add_corruption(const ReplayOutcome& outcome,
                    const PolicyResult& result,
                    std::vector<std::string>& notes) {
  if (!outcome.request.options.corrupt_write) {
    return;
  }
  if (!result.verify.corrupted) {
    notes.push_back(fmt::format(
        "{}: NO BIT WAS FLIPPED in memory that was read again: write {} was asked, {} were made; "
        "name an earlier one",
        to_string(result.policy),
        format_count(*outcome.request.options.corrupt_write),
        format_count(result.verify.writes)));
  } else if (result.verify.mismatches == 0) {
    notes.push_back(fmt::format("{}: THE FLIPPED BIT WENT UNNOTICED", to_string(result.policy)));
  }
}

/// Whose memory a release was to give back.
std::string subject_of(const ReplayResidual& residual) {
  const auto at = [&residual](const char* what) {
    return fmt::format("the {} at {:#x}", what, residual.address.value());
  };
  switch (residual.kind) {
    case ReplayAllocationKind::sequence:
      return at("buffer") + fmt::format(" of request {}", residual.request);
    case ReplayAllocationKind::sliding:
      return at("buffer of sliding layers") + fmt::format(" of request {}", residual.request);
    case ReplayAllocationKind::block:
      return fmt::format("a prompt block that request {} brought", residual.request);
    case ReplayAllocationKind::pool:
      return at("page pool");
  }
  std::unreachable();
}

void add_residuals(const PolicyResult& result, std::vector<std::string>& notes) {
  const ReplayReleases& releases = result.releases;
  const std::size_t shown = std::min(releases.residuals.size(), most_residuals_shown);
  for (std::size_t i = 0; i < shown; ++i) {
    const ReplayResidual& residual = releases.residuals[i];
    notes.push_back(fmt::format(
        "{}: RESIDUAL: release {}, {}: {} ({}); {} stay charged until it is proved that "
        "the memory is gone",
        to_string(result.policy),
        residual.release,
        subject_of(residual),
        to_string(residual.state),
        residual.reason.phrase(),
        format_bytes(residual.charged)));
  }
  const std::uint64_t kept = releases.quarantined - releases.reconciled;
  if (kept > shown) {
    notes.push_back(
        fmt::format("{}: {} more releases are in quarantine; the JSON lists the first {}",
                    to_string(result.policy),
                    format_count(kept - shown),
                    most_listed));
  }
  if (releases.device_lost) {
    notes.push_back(fmt::format(
        "{}: DEVICE LOST: the run ended with {} requests completed; {} allocations in use stay "
        "charged with {}, and nothing is refunded until the end of their context is confirmed",
        to_string(result.policy),
        format_count(result.completed),
        format_count(releases.live),
        format_bytes(releases.live_charged)));
  }
}

void add_injections(const ReplayOutcome& outcome,
                    const PolicyResult& result,
                    std::vector<std::string>& notes) {
  const std::uint64_t asked = outcome.request.options.inject.size();
  const ReplayReleases& releases = result.releases;
  if (releases.injected < asked) {
    notes.push_back(fmt::format(
        "{}: {} OF {} FAULTS WERE NOT INJECTED: the run made {} releases{}",
        to_string(result.policy),
        asked - releases.injected,
        asked,
        format_count(releases.queued),
        releases.device_lost ? " before the loss of the device" : "; name earlier ones"));
  }
}

void add_result_notes(const ReplayOutcome& outcome,
                      const PolicyResult& result,
                      std::vector<std::string>& notes) {
  const std::size_t shown = std::min(result.refusals.size(), most_refusals_shown);
  for (std::size_t i = 0; i < shown; ++i) {
    const RefusedRequest& refusal = result.refusals[i];
    notes.push_back(fmt::format("{}: request {} can never fit: it needs {}, the limit is {}",
                                to_string(result.policy),
                                refusal.request,
                                format_bytes(refusal.needed),
                                format_bytes(refusal.limit)));
  }
  for (const std::string& text : result.violation_texts) {
    notes.push_back(fmt::format("{}: BROKEN PROMISE: {}", to_string(result.policy), text));
  }
  if (result.final_leased != Bytes{}) {
    notes.push_back(fmt::format("{}: {} were still leased at the end",
                                to_string(result.policy),
                                format_bytes(result.final_leased)));
  }
  add_residuals(result, notes);
  add_injections(outcome, result, notes);
  add_mismatches(result, notes);
  add_corruption(outcome, result, notes);
}

bool is_sound(const PolicyResult& result) noexcept {
  return result.violations == 0 && result.verify.mismatches == 0 &&
         result.final_leased == Bytes{} && !result.releases.device_lost;
}

bool has_injected(const PolicyResult& result) noexcept {
  return result.releases.injected != 0;
}

bool is_corrupted(const PolicyResult& result) noexcept {
  return result.verify.corrupted;
}

bool is_answered(const LimitFound& found) noexcept {
  return found.limit.has_value() && found.at_limit.violations == 0;
}

}  // namespace

std::vector<const PolicyResult*> ReplayOutcome::results() const {
  std::vector<const PolicyResult*> all;
  all.reserve(report.policies.size() + limits.size());
  for (const PolicyResult& result : report.policies) {
    all.push_back(&result);
  }
  for (const LimitFound& found : limits) {
    all.push_back(&found.at_limit);
  }
  return all;
}

std::vector<std::string> notes_of(const ReplayOutcome& outcome) {
  std::vector<std::string> notes;
  add_trace_notes(outcome, notes);
  add_model_notes(outcome, notes);
  add_layout_notes(outcome, notes);
  for (const PolicyResult* const result : outcome.results()) {
    add_result_notes(outcome, *result, notes);
  }
  return notes;
}

int exit_code_of(const ReplayOutcome& outcome) noexcept {
  const std::vector<PolicyResult>& results = outcome.report.policies;
  const bool is_corrupting = outcome.request.options.corrupt_write.has_value();
  if (is_corrupting && std::ranges::none_of(results, is_corrupted)) {
    return exit_usage;
  }
  if (!outcome.request.options.inject.empty() && std::ranges::none_of(results, has_injected)) {
    return exit_usage;
  }
  // A flipped bit is a finding either way: found, as it must be, or unnoticed, which is worse.
  if (is_corrupting || !std::ranges::all_of(results, is_sound) ||
      !std::ranges::all_of(outcome.limits, is_answered)) {
    return exit_findings;
  }
  return exit_ok;
}

}  // namespace memstrata::tool
