// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "support/paired_rounds.hpp"

namespace memstrata::bench {

/// One line of JSON, without a line feed: names, costs and ratios as quartiles, target, whether it is met.
[[nodiscard]] std::string to_json_line(const BenchResult& result);

/// A table with one row per result: median costs of both sides, the ratio as q1 / median / q3, target, met or not.
[[nodiscard]] std::string to_table(std::span<const BenchResult> results);

}  // namespace memstrata::bench
