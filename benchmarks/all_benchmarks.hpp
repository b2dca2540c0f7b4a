// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "support/paired_rounds.hpp"

namespace memstrata::bench {

/// A group of measures that are run together.
struct Benchmark {
  std::string_view name;     ///< What the command line calls it.
  std::string_view summary;  ///< One line: what is compared with what.
  std::vector<BenchResult> (*run)(const RoundOptions& options);
};

/// Every group, in the order of the performance table. Lives as long as the program.
[[nodiscard]] std::span<const Benchmark> all_benchmarks() noexcept;

}  // namespace memstrata::bench
