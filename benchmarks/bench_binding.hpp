// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "support/paired_rounds.hpp"

namespace memstrata::bench {

/// What identity and ownership cost, in units of A, over an allocator that returns a fixed address: allocate and
/// release with nothing and with 100,000 allocations live, by two threads on two mechanisms, views, deferred
/// releases, snapshots and lists whatever is in quarantine, and the memory of one live allocation.
[[nodiscard]] std::vector<BenchResult> bench_binding(const RoundOptions& options);

}  // namespace memstrata::bench
