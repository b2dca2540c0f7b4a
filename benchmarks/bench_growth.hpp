// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "support/paired_rounds.hpp"

namespace memstrata::bench {

/// A buffer that grows to 1 GiB while every new byte is written, against what programs do without one: doubling and
/// copying, `realloc`, `mremap`. H6, H7, H9. Needs 3 GiB and some minutes.
[[nodiscard]] std::vector<BenchResult> bench_growth(const RoundOptions& options);

/// The same to 256 MiB, against a new block and a copy on every step: H8. Minutes, nearly all of them copying.
[[nodiscard]] std::vector<BenchResult> bench_copy_each_step(const RoundOptions& options);

}  // namespace memstrata::bench
