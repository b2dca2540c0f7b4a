// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "support/paired_rounds.hpp"

namespace memstrata::bench {

/// What permission costs, in units of A, one atomic add and subtract of the same run: lease and release by one
/// thread and by two on two tiers, growth and shrinking, a refusal.
[[nodiscard]] std::vector<BenchResult> bench_lease(const RoundOptions& options);

}  // namespace memstrata::bench
