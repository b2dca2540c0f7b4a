// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdint>
#include <fstream>
#include <ios>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "command_line.hpp"
#include "exit_code.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"
#include "memstrata/frontend/trace/trace_import.hpp"
#include "memstrata/frontend/trace/trace_reader.hpp"
#include "memstrata/frontend/trace/trace_source.hpp"
#include "memstrata/frontend/trace/trace_statistics.hpp"
#include "memstrata/frontend/trace/trace_synth.hpp"
#include "memstrata/frontend/trace/trace_writer.hpp"
#include "output_file.hpp"
#include "progress.hpp"
#include "sample_trace.hpp"
#include "trace_error_exit.hpp"
#include "trace_info_report.hpp"
#include "units.hpp"

namespace memstrata::tool {
namespace {

struct Streams {
  std::ostream& out;
  std::ostream& err;
};

struct ImportOptions {
  std::string input;
  std::string output = "-";
  bool skip_bad = false;
};

struct SynthOptions {
  TraceSynthOptions model;
  std::string output = "-";
};

struct InfoOptions {
  std::string trace;
  std::string json;
  std::optional<std::uint64_t> requests;
  std::vector<std::uint64_t> hit_curve;
  bool skip_bad = false;
};

/// Runs `write` on standard output or on the file that replaces `path`; says why the file failed, if it did.
template <class Write>
int write_trace(const std::string& path, Streams streams, const Write& write) {
  if (is_standard_output(path)) {
    return write(streams.out);
  }
  if (const auto reason = why_not_writable(path)) {
    return report_failure(streams.err, "trace", *reason, exit_could_not_run);
  }
  std::ofstream file(path, std::ios::trunc | std::ios::binary);
  return write(file);
}

int run_import(const ImportOptions& options, Streams streams) {
  auto source = open_trace_source(options.input);
  if (!source) {
    return report_trace_failure(streams.err, "trace import", source.error());
  }
  return write_trace(options.output, streams, [&](std::ostream& stream) {
    const auto summary = import_trace(std::move(*source),
                                      stream,
                                      options.output == "-" ? "<stdout>" : options.output,
                                      {.skip_bad = options.skip_bad});
    if (!summary) {
      return report_trace_failure(streams.err, "trace import", summary.error());
    }
    streams.err << "imported " << format_count(summary->records) << " requests, "
                << format_count(summary->input_tokens) << " prompt tokens, "
                << format_count(summary->block_refs) << " block references, "
                << format_count(summary->unique_blocks) << " different blocks; "
                << format_count(summary->skipped) << " bad records skipped\n";
    return exit_ok;
  });
}

int run_synth(const SynthOptions& options, Streams streams) {
  return write_trace(options.output, streams, [&](std::ostream& stream) {
    TraceWriter writer(stream,
                       options.output == "-" ? "<stdout>" : options.output,
                       TraceHeader{.synthetic = true, .made_by = describe(options.model)});
    TraceSynth synth(options.model);
    Progress progress(streams.err, "making requests");
    while (const auto record = synth.next()) {
      if (const auto written = writer.write(*record); !written) {
        return report_trace_failure(streams.err, "trace synth", written.error());
      }
      progress.update(writer.records(), 0);
    }
    if (const auto finished = writer.finish(); !finished) {
      return report_trace_failure(streams.err, "trace synth", finished.error());
    }
    return exit_ok;
  });
}

int run_info(const InfoOptions& options, Streams streams) {
  const std::string path = options.trace.empty() ? sample_trace_path() : options.trace;
  auto reader =
      TraceReader::open(path, {.skip_bad = options.skip_bad, .max_records = options.requests});
  if (!reader) {
    return report_trace_failure(streams.err, "trace info", reader.error());
  }
  TraceAnalyzer analyzer;
  Progress progress(streams.err, "reading requests");
  while (true) {
    const auto record = reader->next();
    if (!record) {
      return report_trace_failure(streams.err, "trace info", record.error());
    }
    if (!record->has_value()) {
      break;
    }
    if (const auto added = analyzer.add(**record); !added) {
      return report_trace_failure(streams.err, "trace info", added.error());
    }
    progress.update(reader->records(), options.requests.value_or(0));
  }
  const TraceStatistics statistics =
      options.hit_curve.empty() ? analyzer.statistics() : analyzer.statistics(options.hit_curve);
  const TraceInfo info{.path = std::string(reader->name()),
                       .format = reader->format(),
                       .header = reader->header(),
                       .skipped = reader->skipped(),
                       .statistics = statistics};
  // The table makes way for JSON on standard output.
  std::ostream& table_to = is_standard_output(options.json) ? streams.err : streams.out;
  print_trace_info(info, table_to);
  if (!options.json.empty()) {
    if (const auto reason = write_output(options.json, to_json(info).dump(2) + "\n", streams.out)) {
      return report_failure(streams.err, "trace info", *reason, exit_could_not_run);
    }
  }
  return exit_ok;
}

void add_import(CLI::App& app, ImportOptions& options) {
  CLI::App* const sub = app.add_subcommand(
      "import", "Turns a log of token ids or block hashes into a trace (see docs/trace-format.md)");
  sub->add_option("FILE",
                  options.input,
                  "log with one JSON object per line, plain, .gz or .zst; '-' reads standard input")
      ->required();
  sub->add_option("-o,--output", options.output, "where the trace goes; '-' is standard output")
      ->type_name("FILE|-")
      ->capture_default_str();
  sub->add_flag("--skip-bad", options.skip_bad, "count bad lines and go on instead of stopping");
}

void add_synth(CLI::App& app, SynthOptions& options) {
  CLI::App* const sub = app.add_subcommand(
      "synth", "Makes a synthetic trace; equal options give equal traces on every machine");
  TraceSynthOptions& model = options.model;
  const auto number = [sub](const char* name, std::uint64_t& value, const char* text) {
    sub->add_option(name, value, text)
        ->type_name("N")
        ->check(whole_number(0))
        ->capture_default_str();
  };
  number("--seed", model.seed, "seed of the generator");
  number("--sessions", model.sessions, "sessions, before --scale");
  number("--scale", model.scale, "multiply sessions and duration; the load stays");
  number(
      "--session-gap-ms", model.session_gap_ms, "mean time between the beginnings of two sessions");
  number("--max-input-tokens", model.max_input_tokens, "longest prompt");
  number("--tenants", model.tenants, "tenants, each with its own system prompt");
  sub->add_option("-o,--output", options.output, "where the trace goes; '-' is standard output")
      ->type_name("FILE|-")
      ->capture_default_str();
}

void add_info(CLI::App& app, InfoOptions& options) {
  CLI::App* const sub =
      app.add_subcommand("info", "Shows what a trace holds and the hits of caches of many sizes");
  sub->add_option(
      "FILE", options.trace, "the trace; '-' reads standard input; default: the sample");
  sub->add_option("--requests", options.requests, "take only the first N records")
      ->type_name("N")
      ->check(whole_number(1));
  sub->add_option("--hit-curve", options.hit_curve, "cache sizes in blocks")
      ->type_name("N,N,...")
      ->check(whole_number(0))
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("--json",
                  options.json,
                  "write the figures as JSON; with '-' the table goes to standard error")
      ->type_name("FILE|-");
  sub->add_flag("--skip-bad", options.skip_bad, "count bad records and go on instead of stopping");
}

}  // namespace

int run_trace(Arguments arguments, std::ostream& out, std::ostream& err) {
  CLI::App app("Imports, makes and describes traces of requests.");
  prepare(app, "memstrata trace");
  app.require_subcommand(1);
  ImportOptions import;
  SynthOptions synth;
  InfoOptions info;
  add_import(app, import);
  add_synth(app, synth);
  add_info(app, info);
  if (const auto code = parse(app, arguments, out, err)) {
    return *code;
  }
  const Streams streams{.out = out, .err = err};
  if (app.got_subcommand("import")) {
    return run_import(import, streams);
  }
  return app.got_subcommand("synth") ? run_synth(synth, streams) : run_info(info, streams);
}

}  // namespace memstrata::tool
