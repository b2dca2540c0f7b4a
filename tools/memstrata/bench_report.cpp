// SPDX-License-Identifier: Apache-2.0
#include "bench_report.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "support/paired_rounds.hpp"
#include "table.hpp"

namespace memstrata::tool {
namespace {

using bench::BenchResult;
using bench::Quartiles;
using bench::Target;
using Json = nlohmann::ordered_json;

std::string verdict_of(const BenchResult& result) {
  if (!result.wrote_the_same()) {
    return "WROTE OTHER BYTES";
  }
  const auto met = result.is_met();
  return !met ? "-" : *met ? "met" : "NOT MET";
}

bool is_upper_bound(const Target& target) noexcept {
  return target.bound == Target::Bound::at_most;
}

Json quartiles_json(const Quartiles& quartiles) {
  return {{"q1", quartiles.q1}, {"median", quartiles.median}, {"q3", quartiles.q3}};
}

Json result_json(const BenchResult& result) {
  Json target;
  if (result.target) {
    target = {{"bound", is_upper_bound(*result.target) ? "at_most" : "at_least"},
              {"ratio", result.target->ratio}};
  }
  const auto met = result.is_met();
  return {{"name", result.name},
          {"unit", result.unit},
          {"raw_name", result.raw_name},
          {"our_name", result.our_name},
          {"raw", quartiles_json(result.raw)},
          {"ours", quartiles_json(result.ours)},
          {"ratio", quartiles_json(result.ratio)},
          {"rounds", result.rounds},
          {"target", target},
          {"met", met ? Json(*met) : Json()},
          {"raw_checksum", fmt::format("{:016x}", result.raw_checksum)},
          {"our_checksum", fmt::format("{:016x}", result.our_checksum)},
          {"note", result.note}};
}

}  // namespace

Table bench_table(std::span<const BenchResult> results) {
  Table table({{.title = "measure"},
               {.title = "raw", .align = Align::right},
               {.title = "ours", .align = Align::right},
               {.title = "unit"},
               {.title = "ratio q1 / median / q3", .align = Align::right},
               {.title = "target", .align = Align::right},
               {.title = "verdict"}});
  for (const BenchResult& result : results) {
    table.add(
        {result.name,
         fmt::format("{:.4g}", result.raw.median),
         fmt::format("{:.4g}", result.ours.median),
         result.unit,
         fmt::format(
             "{:.3f} / {:.3f} / {:.3f}", result.ratio.q1, result.ratio.median, result.ratio.q3),
         result.target
             ? fmt::format(
                   "{} {:.3g}", is_upper_bound(*result.target) ? "<=" : ">=", result.target->ratio)
             : "-",
         verdict_of(result)});
  }
  return table;
}

nlohmann::ordered_json bench_json(std::span<const BenchResult> results) {
  Json all = Json::array();
  for (const BenchResult& result : results) {
    all.push_back(result_json(result));
  }
  return {{"schema", "memstrata.bench/1"}, {"results", std::move(all)}};
}

}  // namespace memstrata::tool
