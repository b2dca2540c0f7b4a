// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "bench_groups.hpp"
#include "command.hpp"
#include "command_line.hpp"
#include "exit_code.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/frontend/replay/raw_replay.hpp"
#include "output_file.hpp"
#include "replay_outcome.hpp"
#include "table.hpp"
#include "terminal.hpp"
#include "units.hpp"

namespace memstrata::tool {
namespace {

struct RawRequest {
  std::string recording;
  std::string json;
};

double ratio_of(const RawReplay& raw) {
  return static_cast<double>(raw.recorded.count()) / static_cast<double>(raw.wall.count());
}

Table raw_table(const RawReplay& raw) {
  Table table({{.title = "Recorded calls, executed alone"}, {.title = "", .align = Align::right}});
  table.add({"system calls", format_count(raw.calls)});
  table.add({"fills and copies", format_count(raw.fills)});
  table.add({"bytes written", format_count(raw.filled.value)});
  table.add({"checksum of the fills", fmt::format("{:016x}", raw.checksum)});
  table.add({"time, executed alone", format_seconds(in_seconds(raw.wall))});
  table.add({"time of the recorded run", format_seconds(in_seconds(raw.recorded))});
  table.add({"recorded / alone", fmt::format("{:.3f}", ratio_of(raw))});
  return table;
}

nlohmann::ordered_json raw_json(const RawRequest& request, const RawReplay& raw) {
  return {{"schema", "memstrata.replay-raw/1"},
          {"recording", request.recording},
          {"calls", raw.calls},
          {"fills", raw.fills},
          {"filled_bytes", raw.filled.value},
          {"checksum", fmt::format("{:016x}", raw.checksum)},
          {"wall_s", in_seconds(raw.wall)},
          {"recorded_s", in_seconds(raw.recorded)},
          {"ratio", ratio_of(raw)}};
}

int run_raw(const RawRequest& request, std::ostream& out, std::ostream& err) {
  const auto raw = run_raw_replay(request.recording);
  if (!raw) {
    return report_failure(err,
                          "bench replay-raw",
                          raw.error().message(),
                          raw.error().is_usage_error() ? exit_usage : exit_could_not_run);
  }
  std::ostream& table_to = is_standard_output(request.json) ? err : out;
  table_to << raw_table(*raw).to_text(terminal_behind(table_to).columns) << tier_sentence << "\n";
  if (!request.json.empty()) {
    const std::string text =
        raw_json(request, *raw)
            .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    if (const auto reason = write_output(request.json, text + "\n", out)) {
      return report_failure(err, "bench replay-raw", *reason, exit_could_not_run);
    }
  }
  return exit_ok;
}

constexpr const char* json_text =
    "write the figures as JSON; with '-' the table goes to standard error";

}  // namespace

int run_bench(Arguments arguments, std::ostream& out, std::ostream& err) {
  CLI::App app(
      "Measures the library against plain system calls in the same process and prints ratios.");
  prepare(app, "memstrata bench");
  BenchRequest request;
  app.add_option("GROUP", request.groups, "groups of measures; default: all");
  app.add_flag("--list", request.is_list, "name the groups and run nothing");
  app.add_option("--rounds", request.rounds, "paired rounds per measure")
      ->type_name("N")
      ->check(whole_number(1, 100'000))
      ->capture_default_str();
  app.add_flag("--check", request.is_check, "exit with 1 if a target is not met");
  app.add_option("--json", request.json, json_text)->type_name("FILE|-");
  RawRequest raw;
  CLI::App* const sub = app.add_subcommand(
      "replay-raw", "Executes what 'memstrata replay --record FILE' wrote, with nothing around it");
  sub->add_option("FILE", raw.recording, "the recording")->required();
  sub->add_option("--json", raw.json, json_text)->type_name("FILE|-");
  if (const auto code = parse(app, arguments, out, err)) {
    return *code;
  }
  const bool is_raw = app.got_subcommand(sub);
  const std::string& json = is_raw ? raw.json : request.json;
  if (!json.empty()) {
    if (const auto reason = why_not_writable(json)) {
      return report_failure(err, "bench", *reason, exit_could_not_run);
    }
  }
  return is_raw ? run_raw(raw, out, err) : run_bench_groups(request, out, err);
}

}  // namespace memstrata::tool
