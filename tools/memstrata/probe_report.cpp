// SPDX-License-Identifier: Apache-2.0
#include "probe_report.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/mechanism/host/host_limits.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "probe_measure.hpp"
#include "replay_outcome.hpp"
#include "table.hpp"
#include "terminal.hpp"
#include "units.hpp"

namespace memstrata::tool {
namespace {

using Json = nlohmann::ordered_json;
using host::Figure;
using host::HostLimits;
using host::Setting;

enum class Unit : std::uint8_t { bytes, count };

struct NamedFigure {
  const char* json_name;
  const char* text;
  Unit unit;
  Figure figure;
};

struct NamedSetting {
  const char* json_name;
  const char* text;
  Setting setting;
};

/// One list for the table and for JSON, so that neither can miss a figure.
std::vector<NamedFigure> page_figures(const HostLimits& limits) {
  return {
      {.json_name = "page_size", .text = "page", .unit = Unit::bytes, .figure = limits.page_size},
      {.json_name = "huge_page_size",
       .text = "huge page",
       .unit = Unit::bytes,
       .figure = limits.huge_page_size}};
}

std::vector<NamedSetting> page_settings(const HostLimits& limits) {
  return {{.json_name = "huge_pages", .text = "huge pages", .setting = limits.huge_pages},
          {.json_name = "huge_pages_defrag",
           .text = "their compaction",
           .setting = limits.huge_pages_defrag},
          {.json_name = "huge_pages_shared",
           .text = "huge pages of shared memory",
           .setting = limits.huge_pages_shared}};
}

std::vector<NamedFigure> memory_figures(const HostLimits& limits) {
  return {{.json_name = "memory_total",
           .text = "memory, total",
           .unit = Unit::bytes,
           .figure = limits.memory_total},
          {.json_name = "memory_available",
           .text = "memory, available",
           .unit = Unit::bytes,
           .figure = limits.memory_available},
          {.json_name = "effective_limit",
           .text = "effective limit",
           .unit = Unit::bytes,
           .figure = limits.effective_limit()},
          {.json_name = "soft_limit",
           .text = "soft limit",
           .unit = Unit::bytes,
           .figure = limits.soft_limit()},
          {.json_name = "room", .text = "room now", .unit = Unit::bytes, .figure = limits.room()},
          {.json_name = "default_tier",
           .text = "default budget of the host tier",
           .unit = Unit::bytes,
           .figure = limits.default_tier()}};
}

std::vector<NamedFigure> process_figures(const HostLimits& limits) {
  return {{.json_name = "address_bits",
           .text = "bits of an address",
           .unit = Unit::count,
           .figure = limits.address_bits},
          {.json_name = "address_space",
           .text = "address space",
           .unit = Unit::bytes,
           .figure = limits.address_space},
          {.json_name = "data",
           .text = "private writable memory",
           .unit = Unit::bytes,
           .figure = limits.data},
          {.json_name = "locked_memory",
           .text = "locked memory",
           .unit = Unit::bytes,
           .figure = limits.locked_memory},
          {.json_name = "descriptors",
           .text = "file descriptors, soft",
           .unit = Unit::count,
           .figure = limits.descriptors},
          {.json_name = "descriptors_hard",
           .text = "file descriptors, hard",
           .unit = Unit::count,
           .figure = limits.descriptors_hard},
          {.json_name = "mappings",
           .text = "kernel mappings",
           .unit = Unit::count,
           .figure = limits.mappings},
          {.json_name = "overcommit_mode",
           .text = "overcommit mode",
           .unit = Unit::count,
           .figure = limits.overcommit_mode}};
}

std::string value_text(const Figure& figure, Unit unit) {
  switch (figure.state()) {
    case Figure::State::known:
      return unit == Unit::bytes ? format_bytes(Bytes{figure.value().value_or(0)})
                                 : format_count(figure.value().value_or(0));
    case Figure::State::unlimited:
      return "no limit";
    case Figure::State::unknown:
      return "unknown";
  }
  std::unreachable();
}

std::string origin_text(const std::string& source, const std::string& reason) {
  return reason.empty() ? source : source + (source.empty() ? "" : ": ") + reason;
}

Json figure_json(const Figure& figure) {
  Json json{{"value", figure.value() ? Json(*figure.value()) : Json()},
            {"unlimited", figure.state() == Figure::State::unlimited},
            {"source", figure.source()}};
  if (!figure.reason().empty()) {
    json["reason"] = figure.reason();
  }
  return json;
}

Json setting_json(const Setting& setting) {
  Json json{{"value", setting.value ? Json(*setting.value) : Json()}, {"source", setting.source}};
  if (!setting.reason.empty()) {
    json["reason"] = setting.reason;
  }
  return json;
}

void add_rows(Table& table, const std::vector<NamedFigure>& figures) {
  for (const NamedFigure& named : figures) {
    table.add({named.text,
               value_text(named.figure, named.unit),
               origin_text(named.figure.source(), named.figure.reason())});
  }
}

void add_budget(Table& table, const char* name, const std::optional<host::BudgetUsage>& usage) {
  if (usage) {
    table.add({name,
               usage->limit ? format_count(*usage->limit) : std::string("no limit"),
               fmt::format("budget of all backings, {} used", format_count(usage->used))});
  }
}

void add_pools(Table& table, const HostLimits& limits) {
  for (const host::HugePagePool& pool : limits.pools) {
    table.add({"pool of " + format_bytes(pool.page) + " pages",
               fmt::format("{} pages, {} free",
                           value_text(pool.pages, Unit::count),
                           value_text(pool.free_pages, Unit::count)),
               origin_text(pool.pages.source(), pool.pages.reason())});
  }
}

void add_cgroups(Table& table, const HostLimits& limits) {
  for (const host::CgroupLevel& level : limits.cgroups) {
    table.add({fmt::format("control group v{}, limit", level.version),
               value_text(level.limit, Unit::bytes),
               origin_text(level.limit.source(), level.limit.reason())});
    table.add({fmt::format("control group v{}, used", level.version),
               value_text(level.usage, Unit::bytes),
               origin_text(level.usage.source(), level.usage.reason())});
  }
}

Table limits_table(const ProbeReport& report) {
  const HostLimits& limits = report.limits;
  Table table({{.title = ""},
               {.title = "here", .align = Align::right},
               {.title = "read from", .may_wrap = true}});
  table.add_group("Pages");
  add_rows(table, page_figures(limits));
  for (const NamedSetting& named : page_settings(limits)) {
    table.add({named.text,
               named.setting.value.value_or("unknown"),
               origin_text(named.setting.source, named.setting.reason)});
  }
  add_pools(table, limits);
  table.add_group("Memory");
  add_rows(table, memory_figures(limits));
  add_cgroups(table, limits);
  table.add_group("Process");
  add_rows(table, process_figures(limits));
  add_budget(table, "budget of mappings", report.budgets.mappings);
  add_budget(table, "budget of descriptors", report.budgets.descriptors);
  return table;
}

std::string rate_text(double bytes_per_second) {
  return fmt::format("{:.2f} GB/s", bytes_per_second * 1e-9);
}

void print_bandwidth(const Bandwidth& bandwidth, std::size_t width, std::ostream& out) {
  Table table({{.title = "Bandwidth, one thread"}, {.title = "", .align = Align::right}});
  table.add({"fill", rate_text(bandwidth.fill)});
  table.add({"read", rate_text(bandwidth.read)});
  table.add({"copy (payload)", rate_text(bandwidth.copy)});
  out << "\n" << table.to_text(width);
}

void print_costs(const std::vector<BackingCosts>& backings, std::size_t width, std::ostream& out) {
  std::vector<Column> columns{{.title = "Cost of a call, median"}};
  for (const BackingCosts& costs : backings) {
    columns.push_back({.title = format_bytes(costs.piece) + (costs.huge_pages ? " huge" : ""),
                       .align = Align::right});
  }
  Table table(std::move(columns));
  const auto row = [&](const char* name, Spread BackingCosts::* spread) {
    std::vector<std::string> cells{name};
    for (const BackingCosts& costs : backings) {
      cells.push_back(costs.failure.empty() ? format_nanoseconds((costs.*spread).p50_ns) : "-");
    }
    table.add(std::move(cells));
  };
  row("reserve 64 GiB of addresses", &BackingCosts::reserve);
  row("commit, untouched", &BackingCosts::commit);
  row("fault every page in", &BackingCosts::fault);
  row("commit, populated", &BackingCosts::commit_populated);
  row("release", &BackingCosts::release);
  row("map a sealed prefix", &BackingCosts::map_shared);
  out << "\n" << table.to_text(width);
  for (const BackingCosts& costs : backings) {
    if (!costs.failure.empty()) {
      out << costs.name << ": " << costs.failure << "\n";
    }
  }
}

Json figures_json(const std::vector<NamedFigure>& figures) {
  Json json = Json::object();
  for (const NamedFigure& named : figures) {
    json[named.json_name] = figure_json(named.figure);
  }
  return json;
}

Json cgroups_json(const HostLimits& limits) {
  Json all = Json::array();
  for (const host::CgroupLevel& level : limits.cgroups) {
    all.push_back({{"version", level.version},
                   {"path", level.path},
                   {"limit", figure_json(level.limit)},
                   {"soft_limit", figure_json(level.soft_limit)},
                   {"usage", figure_json(level.usage)}});
  }
  return all;
}

Json pools_json(const HostLimits& limits) {
  Json all = Json::array();
  for (const host::HugePagePool& pool : limits.pools) {
    all.push_back({{"page_bytes", pool.page.value},
                   {"pages", figure_json(pool.pages)},
                   {"free_pages", figure_json(pool.free_pages)},
                   {"overcommit", figure_json(pool.overcommit)}});
  }
  return all;
}

Json budget_json(const std::optional<host::BudgetUsage>& usage) {
  if (!usage) {
    return {};
  }
  return {{"used", usage->used}, {"limit", usage->limit ? Json(*usage->limit) : Json()}};
}

Json spread_json(const BackingCosts& costs, const Spread& spread) {
  if (!costs.failure.empty()) {
    return {};
  }
  return {{"p25", spread.p25_ns}, {"p50", spread.p50_ns}, {"p75", spread.p75_ns}};
}

Json backings_json(const std::vector<BackingCosts>& backings) {
  Json all = Json::array();
  for (const BackingCosts& costs : backings) {
    all.push_back({{"name", costs.name},
                   {"granule_bytes", costs.granule.value},
                   {"huge_pages", costs.huge_pages},
                   {"piece_bytes", costs.piece.value},
                   {"failure", costs.failure.empty() ? Json() : Json(costs.failure)},
                   {"ns",
                    {{"reserve", spread_json(costs, costs.reserve)},
                     {"commit", spread_json(costs, costs.commit)},
                     {"fault", spread_json(costs, costs.fault)},
                     {"commit_populated", spread_json(costs, costs.commit_populated)},
                     {"release", spread_json(costs, costs.release)},
                     {"map_shared", spread_json(costs, costs.map_shared)}}}});
  }
  return all;
}

Json bandwidth_json(const std::optional<Bandwidth>& bandwidth) {
  if (!bandwidth) {
    return {};
  }
  return {{"buffer_bytes", bandwidth->buffer.value},
          {"fill_bytes_per_s", bandwidth->fill},
          {"read_bytes_per_s", bandwidth->read},
          {"copy_bytes_per_s", bandwidth->copy}};
}

}  // namespace

Budgets read_budgets() {
  auto backing = host::PageBacking::create();
  if (!backing) {
    return {.mappings = {}, .descriptors = {}, .failure = backing.error().message()};
  }
  // The limit of descriptors is raised, and so known, when the first prefix is made.
  if (const auto first = backing->create_prefix(backing->granularity()); !first) {
    return {.mappings = backing->mapping_usage(),
            .descriptors = {},
            .failure = first.error().message()};
  }
  return {.mappings = backing->mapping_usage(),
          .descriptors = backing->descriptor_usage(),
          .failure = {}};
}

nlohmann::ordered_json to_json(const ProbeReport& report) {
  const HostLimits& limits = report.limits;
  Json pages = figures_json(page_figures(limits));
  for (const NamedSetting& named : page_settings(limits)) {
    pages[named.json_name] = setting_json(named.setting);
  }
  pages["pools"] = pools_json(limits);
  Json memory = figures_json(memory_figures(limits));
  memory["cgroups"] = cgroups_json(limits);
  return {{"schema", "memstrata.probe/1"},
          {"tier", tier_sentence},
          {"pages", std::move(pages)},
          {"memory", std::move(memory)},
          {"process", figures_json(process_figures(limits))},
          {"budgets",
           {{"mappings", budget_json(report.budgets.mappings)},
            {"descriptors", budget_json(report.budgets.descriptors)}}},
          {"bandwidth", bandwidth_json(report.bandwidth)},
          {"backings", backings_json(report.backings)}};
}

void print_probe(const ProbeReport& report, std::ostream& out) {
  const std::size_t width = terminal_behind(out).columns;
  out << limits_table(report).to_text(width);
  if (!report.budgets.failure.empty()) {
    out << "budgets: " << report.budgets.failure << "\n";
  }
  if (report.bandwidth) {
    print_bandwidth(*report.bandwidth, width, out);
  }
  if (!report.backings.empty()) {
    print_costs(report.backings, width, out);
  }
  out << "\n" << tier_sentence << "\n";
}

}  // namespace memstrata::tool
