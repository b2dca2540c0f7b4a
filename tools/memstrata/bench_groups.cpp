// SPDX-License-Identifier: Apache-2.0
#include "bench_groups.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "all_benchmarks.hpp"
#include "bench_report.hpp"
#include "command_line.hpp"
#include "exit_code.hpp"
#include "output_file.hpp"
#include "progress.hpp"
#include "replay_outcome.hpp"
#include "support/paired_rounds.hpp"
#include "terminal.hpp"

namespace memstrata::tool {
namespace {

using bench::Benchmark;
using bench::BenchResult;

/// The first name that is no group, or nothing.
std::optional<std::string> unknown_group(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (std::ranges::find(bench::all_benchmarks(), name, &Benchmark::name) ==
        bench::all_benchmarks().end()) {
      return name;
    }
  }
  return std::nullopt;
}

void print_groups(std::ostream& out) {
  for (const Benchmark& group : bench::all_benchmarks()) {
    out << fmt::format("{:<12} {}\n", group.name, group.summary);
  }
}

std::vector<BenchResult> measure(const BenchRequest& request, std::ostream& err) {
  std::vector<BenchResult> results;
  Progress progress(err, "measuring");
  std::uint64_t finished = 0;
  for (const Benchmark& group : bench::all_benchmarks()) {
    progress.relabel("measuring " + std::string(group.name));
    progress.update(finished, bench::all_benchmarks().size());
    if (request.groups.empty() ||
        std::ranges::find(request.groups, group.name) != request.groups.end()) {
      bench::RoundOptions options;
      options.rounds = request.rounds;
      std::ranges::move(group.run(options), std::back_inserter(results));
    }
    ++finished;
  }
  return results;
}

void print_results(const std::vector<BenchResult>& results, std::ostream& out) {
  out << bench_table(results).to_text(terminal_behind(out).columns);
  for (const BenchResult& result : results) {
    if (!result.note.empty()) {
      out << "- " << result.name << ": " << result.note << "\n";
    }
  }
  out << "Costs are medians; a ratio is ours / raw of the same round, and its lower quartile "
         "decides.\n"
      << tier_sentence << "\n";
}

int verdict_of(const BenchRequest& request, const std::vector<BenchResult>& results) {
  for (const BenchResult& result : results) {
    if (!result.wrote_the_same() || (request.is_check && !result.is_met().value_or(true))) {
      return exit_findings;
    }
  }
  return exit_ok;
}

}  // namespace

int run_bench_groups(const BenchRequest& request, std::ostream& out, std::ostream& err) {
  if (request.is_list) {
    print_groups(out);
    return exit_ok;
  }
  if (const auto name = unknown_group(request.groups)) {
    return report_failure(
        err, "bench", "there is no group '" + *name + "'; --list names them", exit_usage);
  }
  const std::vector<BenchResult> results = measure(request, err);
  print_results(results, is_standard_output(request.json) ? err : out);
  if (!request.json.empty()) {
    if (const auto reason = write_output(request.json, bench_json(results).dump(2) + "\n", out)) {
      return report_failure(err, "bench", *reason, exit_could_not_run);
    }
  }
  return verdict_of(request, results);
}

}  // namespace memstrata::tool
