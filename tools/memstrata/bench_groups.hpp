// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace memstrata::tool {

/// What `memstrata bench` was asked for.
struct BenchRequest {
  std::vector<std::string> groups;  ///< Empty: all.
  int rounds = 15;
  bool is_list = false;   ///< Name the groups and run nothing.
  bool is_check = false;  ///< A missed target is a finding.
  std::string json;       ///< Empty: none.
};

/// Runs the groups and prints the performance table; returns the exit code. Different bytes on the two sides of a
/// comparison are always a finding. In a build without benchmarks it says so and returns 3.
int run_bench_groups(const BenchRequest& request, std::ostream& out, std::ostream& err);

}  // namespace memstrata::tool
