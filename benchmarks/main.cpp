// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "all_benchmarks.hpp"
#include "support/bench_report.hpp"
#include "support/paired_rounds.hpp"

namespace {

using memstrata::bench::BenchResult;
using memstrata::bench::RoundOptions;

struct Request {
  bool json = false;
  bool check = false;
  RoundOptions rounds;
  std::vector<std::string_view> names;

  [[nodiscard]] bool wants(std::string_view name) const {
    for (const std::string_view wanted : names) {
      if (wanted == name) {
        return true;
      }
    }
    return names.empty();
  }
};

bool is_group(std::string_view name) {
  for (const memstrata::bench::Benchmark& group : memstrata::bench::all_benchmarks()) {
    if (group.name == name) {
      return true;
    }
  }
  return false;
}

std::optional<Request> parse(std::span<char* const> arguments) {
  Request request;
  for (std::size_t index = 1; index < arguments.size(); ++index) {
    const std::string_view argument = arguments[index];
    if (argument == "--json") {
      request.json = true;
    } else if (argument == "--check") {
      request.check = true;
    } else if (argument == "--rounds" && index + 1 < arguments.size()) {
      const std::string_view number = arguments[++index];
      const auto read =
          std::from_chars(number.data(), number.data() + number.size(), request.rounds.rounds);
      if (read.ec != std::errc() || read.ptr != number.data() + number.size() ||
          request.rounds.rounds < 1) {
        return std::nullopt;
      }
    } else if (is_group(argument)) {
      request.names.push_back(argument);
    } else {
      return std::nullopt;
    }
  }
  return request;
}

/// Runs what was asked for and prints it. True if every target was met.
bool run(const Request& request) {
  bool all_met = true;
  for (const memstrata::bench::Benchmark& group : memstrata::bench::all_benchmarks()) {
    if (!request.wants(group.name)) {
      continue;
    }
    const std::vector<BenchResult> results = group.run(request.rounds);
    std::string text;
    if (!request.json) {
      text = memstrata::bench::to_table(results);
    }
    for (const BenchResult& result : results) {
      all_met = all_met && result.is_met().value_or(true);
      if (request.json) {
        text += memstrata::bench::to_json_line(result) + '\n';
      }
    }
    std::fputs(text.c_str(), stdout);
  }
  return all_met;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto request = parse(std::span<char* const>(argv, static_cast<std::size_t>(argc)));
    if (!request) {
      std::fputs("usage: memstrata_bench [--json] [--check] [--rounds N] [GROUP...]\ngroups:",
                 stderr);
      for (const memstrata::bench::Benchmark& group : memstrata::bench::all_benchmarks()) {
        std::fprintf(stderr, " %s", std::string(group.name).c_str());
      }
      std::fputs("\n--check: exit status 1 if a target was not met\n", stderr);
      return 2;
    }
    return run(*request) || !request->check ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memstrata_bench: %s\n", error.what());
    return 3;
  }
}
