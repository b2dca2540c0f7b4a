// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "support/paired_rounds.hpp"

namespace memstrata::bench {

/// Two threads that commit and release at once, each in a reservation of its own, against one thread that does all
/// of it: H16 with blocks of 2 MiB, H17 with requests of 64 KiB. Empty on a machine with one processor.
[[nodiscard]] std::vector<BenchResult> bench_threads(const RoundOptions& options);

}  // namespace memstrata::bench
