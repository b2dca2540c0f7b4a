// SPDX-License-Identifier: Apache-2.0
#include "replay_table.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/frontend/replay/find_limit.hpp"
#include "memstrata/frontend/replay/geometry.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"
#include "replay_outcome.hpp"
#include "table.hpp"
#include "terminal.hpp"
#include "units.hpp"

namespace memstrata::tool {
namespace {

using Results = std::vector<const PolicyResult*>;

/// Appends rows whose cells come from one function of a policy's result.
class Rows {
 public:
  Rows(Table& table, const Results& results) : table_(table), results_(results) {}

  void group(const char* title) { table_.add_group(title); }

  template <class Cell>
  void row(const char* name, const Cell& cell) {
    std::vector<std::string> cells{name};
    for (const PolicyResult* const result : results_) {
      cells.push_back(cell(*result));
    }
    table_.add(std::move(cells));
  }

  template <class Figure>
  void count(const char* name, const Figure& figure) {
    row(name, [&](const PolicyResult& result) { return format_count(figure(result)); });
  }

  template <class Figure>
  void bytes(const char* name, const Figure& figure) {
    row(name, [&](const PolicyResult& result) { return format_bytes(figure(result)); });
  }

  template <class Figure>
  void time(const char* name, const Figure& figure) {
    row(name,
        [&](const PolicyResult& result) { return format_seconds(in_seconds(figure(result))); });
  }

  void op(const std::string& name, OpTimes ReplayOps::* kind) {
    percentile(name + " p50", kind, &OpTimes::p50_ns);
    percentile(name + " p99", kind, &OpTimes::p99_ns);
  }

 private:
  void percentile(const std::string& name,
                  OpTimes ReplayOps::* kind,
                  std::uint64_t OpTimes::* figure) {
    row(name.c_str(), [kind, figure](const PolicyResult& result) -> std::string {
      const OpTimes& times = result.op_ns.*kind;
      return times.calls == 0 ? "-" : format_nanoseconds(static_cast<double>(times.*figure));
    });
  }

  Table& table_;
  const Results& results_;
};

void add_requests(Rows& rows) {
  rows.group("Requests");
  rows.count("completed", [](const PolicyResult& r) { return r.completed; });
  rows.count("refused", [](const PolicyResult& r) { return r.refused; });
  rows.count("preemptions", [](const PolicyResult& r) { return r.preempted; });
  rows.count("requests preempted", [](const PolicyResult& r) { return r.preempted_requests; });
  rows.count("peak concurrent", [](const PolicyResult& r) { return r.peak_concurrent; });
  rows.count("peak live tokens", [](const PolicyResult& r) { return r.peak_live_tokens; });
  rows.time("wait p50", [](const PolicyResult& r) { return r.wait.p50; });
  rows.time("wait p95", [](const PolicyResult& r) { return r.wait.p95; });
  rows.time("wait p99", [](const PolicyResult& r) { return r.wait.p99; });
  rows.time("end of simulated time", [](const PolicyResult& r) { return r.end; });
}

void add_memory(Rows& rows, bool is_real) {
  rows.group("Memory");
  rows.bytes("peak committed", [](const PolicyResult& r) { return r.bytes.peak_committed; });
  rows.bytes("peak live", [](const PolicyResult& r) { return r.bytes.peak_live; });
  rows.bytes("peak cached", [](const PolicyResult& r) { return r.bytes.peak_cached; });
  rows.bytes("peak leased", [](const PolicyResult& r) { return r.bytes.peak_leased; });
  rows.bytes("peak reserved", [](const PolicyResult& r) { return r.bytes.peak_reserved; });
  if (is_real) {
    rows.row("peak in the kernel", [](const PolicyResult& r) {
      return r.bytes.peak_kernel ? format_bytes(*r.bytes.peak_kernel) : std::string("-");
    });
  }
  rows.row("committed / live",
           [](const PolicyResult& r) { return fmt::format("{:.3f}", r.waste_ratio); });
  rows.bytes("copied", [](const PolicyResult& r) { return r.bytes.copied; });
  rows.bytes("saved by sharing", [](const PolicyResult& r) { return r.bytes.shared_saved; });
  rows.bytes("leased at the end", [](const PolicyResult& r) { return r.final_leased; });
}

void add_prefix(Rows& rows) {
  rows.group("Prefix cache");
  rows.count("hit blocks", [](const PolicyResult& r) { return r.prefix.hit_blocks; });
  rows.count("hit tokens", [](const PolicyResult& r) { return r.prefix.hit_tokens; });
  rows.count("mapped, not copied", [](const PolicyResult& r) { return r.prefix.mapped_blocks; });
  rows.row("hit rate, blocks",
           [](const PolicyResult& r) { return format_share(r.prefix.hit_ratio_blocks); });
}

void add_costs(Rows& rows) {
  rows.group("Cost of a call");
  rows.op("reserve", &ReplayOps::reserve);
  rows.op("commit", &ReplayOps::commit);
  rows.op("grow", &ReplayOps::grow);
  rows.op("share", &ReplayOps::share);
  rows.op("release", &ReplayOps::release);
}

void add_releases(Rows& rows) {
  rows.group("Releases");
  rows.count("queued", [](const PolicyResult& r) { return r.releases.queued; });
  rows.count("executed", [](const PolicyResult& r) { return r.releases.executed; });
  rows.count("quarantined", [](const PolicyResult& r) { return r.releases.quarantined; });
  rows.bytes("charged in quarantine",
             [](const PolicyResult& r) { return r.releases.residual_charged; });
}

void add_check(Rows& rows, bool is_verified) {
  rows.group("Check");
  if (is_verified) {
    rows.count("bytes checked", [](const PolicyResult& r) { return r.verify.bytes_checked.value; });
    rows.count("mismatches", [](const PolicyResult& r) { return r.verify.mismatches; });
  }
  rows.count("broken promises", [](const PolicyResult& r) { return r.violations; });
  rows.time("time of the run", [](const PolicyResult& r) { return r.wall; });
}

void add_limits(Table& table, const ReplayOutcome& outcome) {
  table.add_group("Smallest budget with " +
                  std::string(to_string(outcome.request.find_limit->metric)) + " in bound");
  std::vector<std::string> cells{"host tier"};
  for (const LimitFound& found : outcome.limits) {
    cells.push_back(found.limit ? format_bytes(*found.limit) : "none is enough");
  }
  table.add(std::move(cells));
}

std::string geometry_text(const KvGeometry& geometry) {
  return fmt::format("{} ({} per token{})",
                     geometry.name,
                     format_bytes(geometry.kv_bytes_per_token()),
                     geometry.scale == 1 ? "" : fmt::format(", scaled 1/{}", geometry.scale));
}

std::string speed_text(const ReplayOptions& options) {
  const std::string prefill =
      options.prefill_tps ? format_count(*options.prefill_tps) : std::string("inf");
  return fmt::format("prefill {}/s, decode {}/s", prefill, format_count(options.decode_tps));
}

/// Breaks `text` into lines of at most `width` characters after a first line that starts with "- ".
void print_note(const std::string& text, std::size_t width, std::ostream& out) {
  std::size_t column = 0;
  std::size_t at = 0;
  out << "-";
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::size_t length = end - at;
    if (width != 0 && column != 0 && column + length + 3 > width) {
      out << "\n ";
      column = 0;
    }
    out << " " << text.substr(at, length);
    column += length + 1;
    at = end + 1;
  }
  out << "\n";
}

}  // namespace

Table comparison_table(const ReplayOutcome& outcome) {
  const Results results = outcome.results();
  std::vector<Column> columns{{.title = ""}};
  for (const PolicyResult* const result : results) {
    columns.push_back({.title = std::string(to_string(result->policy)), .align = Align::right});
  }
  Table table(std::move(columns));
  const bool is_real = outcome.request.options.backing == ReplayBacking::real;
  if (outcome.request.find_limit) {
    add_limits(table, outcome);
  }
  Rows rows(table, results);
  add_requests(rows);
  add_memory(rows, is_real);
  add_prefix(rows);
  if (is_real) {
    add_costs(rows);
    add_releases(rows);
  }
  add_check(rows, outcome.request.options.verify);
  return table;
}

std::vector<std::pair<std::string, std::string>> facts_of(const ReplayOutcome& outcome) {
  const ReplayOptions& options = outcome.request.options;
  const auto& statistics = outcome.trace.statistics;
  const std::uint64_t context =
      options.context_tokens == 0 ? statistics.largest_request_tokens : options.context_tokens;
  std::string limit = options.limit ? format_bytes(*options.limit) : "none";
  if (outcome.request.find_limit) {
    limit = "searched";
  }
  return {{"trace", fmt::format("{} ({})", outcome.trace.path, to_string(outcome.trace.format))},
          {"requests", format_count(statistics.requests)},
          {"tokens",
           fmt::format("{} prompt, {} generated",
                       format_count(statistics.input_tokens),
                       format_count(statistics.output_tokens))},
          {"model", geometry_text(options.geometry)},
          {"backing", options.backing == ReplayBacking::real ? "real memory" : "simulation"},
          {"limit of the host tier", limit},
          {"granule", format_bytes(options.granule)},
          {"layout", std::string(to_string(KvLayout::token_major))},
          {"speed", speed_text(options)},
          {"context of a slot", format_count(context) + " tokens"}};
}

std::string limit_sentence(const ReplayOutcome& outcome) {
  if (!outcome.request.find_limit) {
    return {};
  }
  std::string text = "this trace needs ";
  for (std::size_t i = 0; i < outcome.limits.size(); ++i) {
    const LimitFound& found = outcome.limits[i];
    const bool is_ours = found.policy == ReplayPolicy::virtual_memory;
    text += i == 0 ? "" : ", ";
    text += found.limit ? format_bytes(*found.limit) : "more than any budget";
    text += " ";
    text += is_ours ? "with memstrata (virtual)" : to_string(found.policy);
  }
  return text;
}

void print_replay(const ReplayOutcome& outcome, std::ostream& out) {
  const std::size_t width = terminal_behind(out).columns;
  for (const auto& [label, value] : facts_of(outcome)) {
    out << fmt::format("{:<23} {}\n", label, value);
  }
  out << "\n" << comparison_table(outcome).to_text(width);
  if (const std::string sentence = limit_sentence(outcome); !sentence.empty()) {
    out << "\n" << sentence << "\n";
  }
  out << "\n";
  for (const PolicyResult* const result : outcome.results()) {
    print_note(fmt::format("{}: as in {}", to_string(result->policy), systems_of(result->policy)),
               width,
               out);
  }
  for (const std::string& note : notes_of(outcome)) {
    print_note(note, width, out);
  }
  out << tier_sentence << "\n";
}

}  // namespace memstrata::tool
