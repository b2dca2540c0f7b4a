// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "support/paired_rounds.hpp"

namespace memstrata::bench {

/// What it costs to reserve, commit and release host pages through the backing, against the same system calls made
/// by hand and against one plain mapping: H1 to H5, H10, H11, H18, H19.
[[nodiscard]] std::vector<BenchResult> bench_pages(const RoundOptions& options);

}  // namespace memstrata::bench
