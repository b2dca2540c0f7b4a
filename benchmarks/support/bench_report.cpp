// SPDX-License-Identifier: Apache-2.0
#include "support/bench_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/paired_rounds.hpp"

namespace memstrata::bench {
namespace {

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20U) {
      fmt::format_to(std::back_inserter(result), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string json_of(const Quartiles& quartiles) {
  return fmt::format(R"({{"q1":{:.6g},"median":{:.6g},"q3":{:.6g}}})",
                     quartiles.q1,
                     quartiles.median,
                     quartiles.q3);
}

std::string_view name_of(Target::Bound bound) {
  switch (bound) {
    case Target::Bound::at_most:
      return "at_most";
    case Target::Bound::at_least:
      return "at_least";
  }
  std::unreachable();
}

std::string_view verdict_of(const BenchResult& result) {
  if (!result.wrote_the_same()) {
    return "WROTE DIFFERENT BYTES";
  }
  const auto met = result.is_met();
  return !met ? "-" : *met ? "met" : "NOT MET";
}

std::string target_of(const BenchResult& result) {
  if (!result.target) {
    return "-";
  }
  const bool at_most = result.target->bound == Target::Bound::at_most;
  return fmt::format("{} {:.3g}", at_most ? "<=" : ">=", result.target->ratio);
}

constexpr std::size_t column_count = 6;
using Row = std::array<std::string, column_count>;

Row row_of(const BenchResult& result) {
  return {result.name,
          fmt::format("{} {:.4g} {}", result.raw_name, result.raw.median, result.unit),
          fmt::format("{} {:.4g} {}", result.our_name, result.ours.median, result.unit),
          fmt::format(
              "{:.3f} / {:.3f} / {:.3f}", result.ratio.q1, result.ratio.median, result.ratio.q3),
          target_of(result),
          std::string(verdict_of(result))};
}

}  // namespace

std::string to_json_line(const BenchResult& result) {
  std::string line = fmt::format(
      R"({{"name":{},"unit":{},"raw_name":{},"our_name":{},"raw":{},"ours":{},"ratio":{},"rounds":{})",
      quoted(result.name),
      quoted(result.unit),
      quoted(result.raw_name),
      quoted(result.our_name),
      json_of(result.raw),
      json_of(result.ours),
      json_of(result.ratio),
      result.rounds);
  const auto out = std::back_inserter(line);
  if (result.target) {
    fmt::format_to(out,
                   R"(,"target":{{"bound":"{}","ratio":{:.6g}}},"met":{})",
                   name_of(result.target->bound),
                   result.target->ratio,
                   result.is_met().value_or(false));
  }
  if (result.raw_checksum != 0 || result.our_checksum != 0) {
    fmt::format_to(out,
                   R"(,"raw_checksum":"{:016x}","our_checksum":"{:016x}")",
                   result.raw_checksum,
                   result.our_checksum);
  }
  if (!result.note.empty()) {
    fmt::format_to(out, R"(,"note":{})", quoted(result.note));
  }
  return line + '}';
}

std::string to_table(std::span<const BenchResult> results) {
  std::vector<Row> rows{{"measure", "raw", "ours", "ratio q1 / median / q3", "target", "verdict"}};
  for (const BenchResult& result : results) {
    rows.push_back(row_of(result));
  }
  std::array<std::size_t, column_count> widths{};
  for (const Row& row : rows) {
    for (std::size_t column = 0; column < column_count; ++column) {
      widths.at(column) = std::max(widths.at(column), row.at(column).size());
    }
  }
  std::string table;
  for (const Row& row : rows) {
    for (std::size_t column = 0; column + 1 < column_count; ++column) {
      fmt::format_to(std::back_inserter(table), "{:<{}}  ", row.at(column), widths.at(column));
    }
    table += row.back() + '\n';
  }
  for (const BenchResult& result : results) {
    if (!result.note.empty()) {
      table += fmt::format("{}: {}\n", result.name, result.note);
    }
  }
  return table;
}

}  // namespace memstrata::bench
