// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "support/paired_rounds.hpp"

namespace memstrata::bench {

/// What the books of a buffer and of a sparse range add to the system call under them: growth by steps and inside a
/// granule, shrinking at once, and tens of thousands of isolated granules.
[[nodiscard]] std::vector<BenchResult> bench_buffer(const RoundOptions& options);

}  // namespace memstrata::bench
