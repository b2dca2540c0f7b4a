// SPDX-License-Identifier: Apache-2.0
#include "replay_page.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "html_page.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "replay_outcome.hpp"
#include "replay_table.hpp"
#include "version.hpp"

namespace memstrata::tool {
namespace {

nlohmann::json series_json(const TimeSeries& series) {
  std::vector<double> time;
  std::vector<std::uint64_t> live;
  std::vector<std::uint64_t> committed;
  std::vector<std::uint64_t> cached;
  std::vector<std::uint64_t> reserved;
  std::vector<std::uint64_t> queue;
  std::vector<double> hit_rate;
  for (const TimeSample& sample : series.samples) {
    time.push_back(std::chrono::duration<double>(sample.end).count());
    live.push_back(sample.live.value);
    committed.push_back(sample.committed.value);
    cached.push_back(sample.cached.value);
    reserved.push_back(sample.reserved.value);
    queue.push_back(sample.queued);
    hit_rate.push_back(sample.block_refs == 0 ? 0.0
                                              : static_cast<double>(sample.hit_blocks) /
                                                    static_cast<double>(sample.block_refs));
  }
  return {{"t", time},
          {"live", live},
          {"committed", committed},
          {"cached", cached},
          {"reserved", reserved},
          {"queue", queue},
          {"hit_rate", hit_rate}};
}

nlohmann::json charts_json(const ReplayOutcome& outcome) {
  nlohmann::json policies = nlohmann::json::array();
  for (const PolicyResult* const result : outcome.results()) {
    policies.push_back(
        {{"policy", to_string(result->policy)}, {"series", series_json(result->series)}});
  }
  const auto& limit = outcome.request.options.limit;
  return {{"limit", limit ? nlohmann::json(limit->value) : nlohmann::json()},
          {"policies", std::move(policies)}};
}

}  // namespace

std::string replay_page(const ReplayOutcome& outcome) {
  const ReplayOptions& options = outcome.request.options;
  std::vector<std::string> notes;
  if (std::string sentence = limit_sentence(outcome); !sentence.empty()) {
    notes.push_back(std::move(sentence));
  }
  for (const PolicyResult* const result : outcome.results()) {
    notes.push_back(
        fmt::format("{}: as in {}", to_string(result->policy), systems_of(result->policy)));
  }
  std::ranges::move(notes_of(outcome), std::back_inserter(notes));
  return render_page({
      .title = fmt::format("{} on {}",
                           std::filesystem::path(outcome.trace.path).filename().string(),
                           options.geometry.name),
      .lead = "How many of these requests fit into this memory, what does it cost, and what would "
              "other ways of holding KV have cost?",
      .tier_note = tier_sentence,
      .facts = facts_of(outcome),
      .table = comparison_table(outcome),
      .notes = std::move(notes),
      .footer = fmt::format("memstrata {}, replay report", version),
      .charts = charts_json(outcome),
  });
}

}  // namespace memstrata::tool
