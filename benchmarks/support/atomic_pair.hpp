// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "support/paired_rounds.hpp"

namespace memstrata::bench {

/// A word with cache lines of its own.
struct alignas(128) LonelyWord {
  std::atomic<std::int64_t> value{0};
};

/// Operations of a batch: long enough for the clock, shorter than a slice of the scheduler.
inline constexpr std::int64_t operations_of_a_batch = 20'000;

/// Nanoseconds per run of `body`, after some runs that warm it up.
template <class Body>
[[nodiscard]] double warmed(Body body, std::int64_t batch = operations_of_a_batch) {
  for (std::int64_t run = 0; run < batch / 10; ++run) {
    body();
  }
  return nanoseconds_per_run(batch, body);
}

/// A, the unit of bookkeeping: one atomic add and subtract.
[[nodiscard]] inline double atomic_pair(LonelyWord& word) {
  return warmed([&word] {
    word.value.fetch_add(64, std::memory_order_acq_rel);
    word.value.fetch_sub(64, std::memory_order_acq_rel);
  });
}

}  // namespace memstrata::bench
