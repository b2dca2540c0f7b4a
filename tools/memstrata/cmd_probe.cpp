// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <optional>
#include <ostream>
#include <string>

#include "command.hpp"
#include "command_line.hpp"
#include "exit_code.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/mechanism/host/host_limits.hpp"
#include "output_file.hpp"
#include "probe_measure.hpp"
#include "probe_report.hpp"
#include "progress.hpp"

namespace memstrata::tool {
namespace {

ProbeReport take_probe(bool is_measured, std::ostream& err) {
  ProbeReport report;
  report.limits = host::read_host_limits();
  report.budgets = read_budgets();
  if (is_measured) {
    Progress progress(err, "measuring");
    progress.update(1, 2);
    report.bandwidth = measure_bandwidth(Bytes{report.limits.room().value().value_or(0)});
    progress.update(2, 2);
    report.backings = measure_backings();
  }
  return report;
}

}  // namespace

int run_probe(Arguments arguments, std::ostream& out, std::ostream& err) {
  CLI::App app(
      "Shows page sizes, huge pages, the limits of the kernel and of the control group with where "
      "each was read, budgets, memory bandwidth, and what each backing costs on this machine.");
  prepare(app, "memstrata probe");
  std::string json;
  bool is_quiet = false;
  app.add_option(
         "--json", json, "write the figures as JSON; with '-' the table goes to standard error")
      ->type_name("FILE|-");
  app.add_flag("--no-measure", is_quiet, "read the limits only; measure nothing");
  if (const auto code = parse(app, arguments, out, err)) {
    return *code;
  }
  if (!json.empty()) {
    if (const auto reason = why_not_writable(json)) {
      return report_failure(err, "probe", *reason, exit_could_not_run);
    }
  }
  const ProbeReport report = take_probe(!is_quiet, err);
  print_probe(report, is_standard_output(json) ? err : out);
  if (!json.empty()) {
    if (const auto reason = write_output(json, to_json(report).dump(2) + "\n", out)) {
      return report_failure(err, "probe", *reason, exit_could_not_run);
    }
  }
  return exit_ok;
}

}  // namespace memstrata::tool
