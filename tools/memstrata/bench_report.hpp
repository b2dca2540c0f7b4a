// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "support/paired_rounds.hpp"
#include "table.hpp"

namespace memstrata::tool {

/// The performance table: both sides, the ratio with its quartiles, the target and the verdict.
[[nodiscard]] Table bench_table(std::span<const bench::BenchResult> results);

/// The same under the names of docs/json.md.
[[nodiscard]] nlohmann::ordered_json bench_json(std::span<const bench::BenchResult> results);

}  // namespace memstrata::tool
