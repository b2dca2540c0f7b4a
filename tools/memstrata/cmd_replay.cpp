// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <expected>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "command_line.hpp"
#include "exit_code.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/frontend/replay/find_limit.hpp"
#include "memstrata/frontend/replay/replay.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/frontend/trace/trace_reader.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"
#include "memstrata/frontend/trace/trace_statistics.hpp"
#include "memstrata/mechanism/host/host_limits.hpp"
#include "output_file.hpp"
#include "progress.hpp"
#include "replay_arguments.hpp"
#include "replay_json.hpp"
#include "replay_outcome.hpp"
#include "replay_page.hpp"
#include "replay_request.hpp"
#include "replay_table.hpp"
#include "trace_error_exit.hpp"
#include "trace_info_report.hpp"

namespace memstrata::tool {
namespace {

/// A value, or the exit code after the failure was reported.
template <class T>
using OrExit = std::expected<T, int>;

struct LoadedTrace {
  std::vector<TraceRecord> records;
  TraceInfo info;
};

OrExit<LoadedTrace> load_trace(const ReplayRequest& request, std::ostream& err) {
  auto reader = TraceReader::open(request.trace,
                                  {.skip_bad = request.skip_bad, .max_records = request.requests});
  if (!reader) {
    return std::unexpected(report_trace_failure(err, "replay", reader.error()));
  }
  LoadedTrace loaded;
  TraceAnalyzer analyzer;
  Progress progress(err, "reading the trace");
  while (true) {
    auto record = reader->next();
    if (!record) {
      return std::unexpected(report_trace_failure(err, "replay", record.error()));
    }
    if (!record->has_value()) {
      break;
    }
    if (const auto added = analyzer.add(**record); !added) {
      return std::unexpected(report_trace_failure(err, "replay", added.error()));
    }
    loaded.records.push_back(**std::move(record));
    progress.update(loaded.records.size(), request.requests.value_or(0));
  }
  loaded.info = {.path = std::string(reader->name()),
                 .format = reader->format(),
                 .header = reader->header(),
                 .skipped = reader->skipped(),
                 .statistics = request.hit_curve.empty() ? analyzer.statistics()
                                                         : analyzer.statistics(request.hit_curve)};
  return loaded;
}

/// Real memory always has a budget: where none was given, a share of the room that the machine has now.
OrExit<void> choose_limit(ReplayOptions& options, std::ostream& err) {
  if (options.backing != ReplayBacking::real || options.limit) {
    return {};
  }
  const host::Figure share = host::read_host_limits().default_tier();
  const Bytes whole = align_down(Bytes{share.value().value_or(0)}, options.granule);
  if (whole == Bytes{}) {
    return std::unexpected(report_failure(err,
                                          "replay",
                                          "cannot find out how much memory is free (" +
                                              share.reason() +
                                              "); name a budget with --limit host=SIZE",
                                          exit_could_not_run));
  }
  options.limit = whole;
  return {};
}

/// The step of a search for a limit: fine enough to quote, and a whole number of granules.
Bytes limit_step(const ReplayOptions& options) {
  return align_up(64_MiB, options.granule).value_or(options.granule);
}

int report_replay_failure(std::ostream& err, const ReplayError& error) {
  return report_failure(
      err, "replay", error.message(), error.is_usage_error() ? exit_usage : exit_could_not_run);
}

OrExit<ReplayOutcome> execute(ReplayRequest request, std::ostream& err) {
  auto loaded = load_trace(request, err);
  if (!loaded) {
    return std::unexpected(loaded.error());
  }
  if (const auto chosen = choose_limit(request.options, err); !chosen) {
    return std::unexpected(chosen.error());
  }
  ReplayOutcome outcome;
  outcome.request = std::move(request);
  outcome.trace = std::move(loaded->info);
  Progress bar(err, "");
  const auto progress = [&bar](ReplayPolicy policy, std::uint64_t finished, std::uint64_t total) {
    bar.relabel(fmt::format("{:<11}", to_string(policy)));
    bar.update(finished, total);
  };
  const ReplayOptions& options = outcome.request.options;
  if (outcome.request.find_limit) {
    auto limits = find_limit(
        loaded->records, options, *outcome.request.find_limit, limit_step(options), progress);
    if (!limits) {
      return std::unexpected(report_replay_failure(err, limits.error()));
    }
    outcome.limits = *std::move(limits);
    return outcome;
  }
  auto report = run_replay(loaded->records, options, progress);
  if (!report) {
    return std::unexpected(report_replay_failure(err, report.error()));
  }
  outcome.report = *std::move(report);
  return outcome;
}

std::optional<int> check_outputs(const ReplayRequest& request, std::ostream& err) {
  for (const std::string& path : {request.json, request.html}) {
    if (path.empty()) {
      continue;
    }
    if (const auto reason = why_not_writable(path)) {
      return report_failure(err, "replay", *reason, exit_could_not_run);
    }
  }
  return std::nullopt;
}

std::optional<int> write_reports(const ReplayOutcome& outcome,
                                 std::ostream& out,
                                 std::ostream& err) {
  const ReplayRequest& request = outcome.request;
  // Standard output belongs to the report that was sent there.
  const bool is_taken = is_standard_output(request.json) || is_standard_output(request.html);
  print_replay(outcome, is_taken ? err : out);
  std::optional<std::string> failure;
  if (!request.json.empty()) {
    // A path may hold bytes that are no UTF-8; they become the replacement character.
    const std::string text =
        to_json(outcome).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    failure = write_output(request.json, text + "\n", out);
  }
  if (!failure && !request.html.empty()) {
    failure = write_output(request.html, replay_page(outcome), out);
  }
  if (failure) {
    return report_failure(err, "replay", *failure, exit_could_not_run);
  }
  return std::nullopt;
}

}  // namespace

int run_replay(Arguments arguments, std::ostream& out, std::ostream& err) {
  CLI::App app(
      "Replays a trace of requests and says how many fit into this memory, what it costs, and what "
      "other ways of holding KV would have cost.");
  prepare(app, "memstrata replay");
  ReplayArguments typed;
  add_replay_options(app, typed);
  if (const auto code = parse(app, arguments, out, err)) {
    return *code;
  }
  auto request = check_arguments(typed);
  if (!request) {
    return report_failure(err, "replay", request.error(), exit_usage);
  }
  if (const auto code = check_outputs(*request, err)) {
    return *code;
  }
  const auto outcome = execute(*std::move(request), err);
  if (!outcome) {
    return outcome.error();
  }
  if (const auto code = write_reports(*outcome, out, err)) {
    return *code;
  }
  return exit_code_of(*outcome);
}

}  // namespace memstrata::tool
