// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "support/paired_rounds.hpp"

namespace memstrata::bench {

/// One more user of a sealed prefix, against a private copy and against the same system call: H12, and H13, its
/// protection.
[[nodiscard]] std::vector<BenchResult> bench_prefix(const RoundOptions& options);

}  // namespace memstrata::bench
