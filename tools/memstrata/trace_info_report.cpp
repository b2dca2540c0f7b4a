// SPDX-License-Identifier: Apache-2.0
#include "trace_info_report.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "memstrata/frontend/trace/trace_format.hpp"
#include "memstrata/frontend/trace/trace_statistics.hpp"
#include "table.hpp"
#include "terminal.hpp"
#include "units.hpp"

namespace memstrata::tool {
namespace {

constexpr const char* info_schema = "memstrata.trace-info/1";

nlohmann::ordered_json lengths_to_json(const TraceLengths& lengths) {
  return {{"mean", lengths.mean},
          {"p50", lengths.p50},
          {"p90", lengths.p90},
          {"p99", lengths.p99},
          {"max", lengths.max}};
}

double share_of(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

Table facts_table(const TraceInfo& info) {
  const TraceStatistics& statistics = info.statistics;
  Table table({{.title = "Trace"}, {.title = "", .align = Align::right}});
  const auto count = [&table](const char* name, std::uint64_t value) {
    table.add({name, format_count(value)});
  };
  count("requests", statistics.requests);
  if (info.skipped != 0) {
    count("bad records skipped", info.skipped);
  }
  table.add({"time from first to last arrival", format_seconds(in_seconds(statistics.span))});
  count("different arrival times", statistics.distinct_arrivals);
  count("prompt tokens", statistics.input_tokens);
  count("generated tokens", statistics.output_tokens);
  count("largest request, tokens", statistics.largest_request_tokens);
  if (statistics.tenants != 0) {
    count("tenants", statistics.tenants);
  }
  if (statistics.sessions != 0) {
    count("sessions", statistics.sessions);
  }
  count("block references", statistics.block_refs);
  count("different blocks", statistics.unique_blocks);
  count("blocks used once", statistics.blocks_used_once);
  table.add({"time between two uses of a block, p50",
             format_seconds(in_seconds(statistics.reuse_gap_p50))});
  table.add({"time between two uses of a block, p90",
             format_seconds(in_seconds(statistics.reuse_gap_p90))});
  return table;
}

Table lengths_table(const TraceStatistics& statistics) {
  Table table({{.title = "Tokens per request"},
               {.title = "mean", .align = Align::right},
               {.title = "p50", .align = Align::right},
               {.title = "p90", .align = Align::right},
               {.title = "p99", .align = Align::right},
               {.title = "max", .align = Align::right}});
  const auto row = [&table](const char* name, const TraceLengths& lengths) {
    table.add({name,
               fmt::format("{:.1f}", lengths.mean),
               format_count(lengths.p50),
               format_count(lengths.p90),
               format_count(lengths.p99),
               format_count(lengths.max)});
  };
  row("prompt", statistics.input);
  row("generated", statistics.output);
  return table;
}

Table hit_table(const TraceStatistics& statistics) {
  Table table({{.title = "Cache, blocks", .align = Align::right},
               {.title = "hits", .align = Align::right},
               {.title = "of all references", .align = Align::right}});
  for (const auto& [blocks, hits] : statistics.hit_curve) {
    table.add({format_count(blocks),
               format_count(hits),
               format_share(share_of(hits, statistics.block_refs))});
  }
  table.add({"no limit",
             format_count(statistics.unlimited_hits),
             format_share(share_of(statistics.unlimited_hits, statistics.block_refs))});
  table.add({"no limit, full blocks",
             format_count(statistics.unlimited_full_hits),
             format_share(share_of(statistics.unlimited_full_hits, statistics.block_refs))});
  return table;
}

}  // namespace

nlohmann::ordered_json to_json(const TraceInfo& info) {
  const TraceStatistics& statistics = info.statistics;
  nlohmann::ordered_json curve = nlohmann::ordered_json::array();
  for (const auto& [blocks, hits] : statistics.hit_curve) {
    curve.push_back({{"blocks", blocks}, {"hits", hits}});
  }
  return {{"schema", info_schema},
          {"trace",
           {{"path", info.path},
            {"format", to_string(info.format)},
            {"synthetic", info.header.synthetic},
            {"made_by", info.header.made_by},
            {"requests", statistics.requests},
            {"skipped", info.skipped},
            {"input_tokens", statistics.input_tokens},
            {"output_tokens", statistics.output_tokens},
            {"largest_request_tokens", statistics.largest_request_tokens},
            {"span_s", in_seconds(statistics.span)},
            {"distinct_arrivals", statistics.distinct_arrivals},
            {"tenants", statistics.tenants},
            {"sessions", statistics.sessions},
            {"input", lengths_to_json(statistics.input)},
            {"output", lengths_to_json(statistics.output)},
            {"block_refs", statistics.block_refs},
            {"unique_blocks", statistics.unique_blocks},
            {"blocks_used_once", statistics.blocks_used_once},
            {"unlimited_hits", statistics.unlimited_hits},
            {"unlimited_full_hits", statistics.unlimited_full_hits},
            {"reuse_gap_s",
             {{"p50", in_seconds(statistics.reuse_gap_p50)},
              {"p90", in_seconds(statistics.reuse_gap_p90)}}},
            {"hit_curve", curve}}}};
}

void print_trace_info(const TraceInfo& info, std::ostream& out) {
  const std::size_t width = terminal_behind(out).columns;
  out << info.path << " (" << to_string(info.format)
      << (info.header.synthetic ? ", synthetic)\n" : ")\n");
  if (!info.header.made_by.empty()) {
    out << "made by: " << info.header.made_by << "\n";
  }
  out << "\n" << facts_table(info).to_text(width);
  out << "\n" << lengths_table(info.statistics).to_text(width);
  if (info.statistics.block_refs == 0) {
    out << "\nThe trace has no block ids: it says nothing about shared prefixes.\n";
  } else {
    out << "\n" << hit_table(info.statistics).to_text(width);
    out << "One least-recently-used cache over the references in file order; no serving model.\n";
  }
}

}  // namespace memstrata::tool
