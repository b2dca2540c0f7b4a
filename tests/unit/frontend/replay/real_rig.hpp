// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "replay_rig.hpp"

namespace memstrata::test {

/// Six requests of the toy model with shared prefixes, a whole-prompt hit and, in small budgets, evictions and
/// preemptions.
inline std::vector<TraceRecord> small_trace() {
  return {record(milliseconds(0), 1'100, 40, {1, 2, 3}),
          record(milliseconds(100), 1'024, 30, {1, 2}),
          record(milliseconds(200), 700, 60, {1, 4}),
          record(milliseconds(900), 1'600, 20, {5, 6, 7, 8}),
          record(milliseconds(950), 90, 25, {9}),
          record(milliseconds(5'000), 1'536, 10, {1, 2, 10})};
}

inline std::uint64_t tokens_of(const std::vector<TraceRecord>& records) {
  std::uint64_t total = 0;
  for (const TraceRecord& made : records) {
    total += made.input_tokens + made.output_tokens;
  }
  return total;
}

inline ReplayOptions real_options(ReplayPolicy policy, Bytes limit) {
  ReplayOptions options = toy_options(policy, limit);
  options.backing = ReplayBacking::real;
  options.decode_tps = 20;
  options.verify = true;
  return options;
}

/// A budget in which the policy must evict or preempt or wait, and still completes the small trace.
inline Bytes tight_limit(ReplayPolicy policy) {
  switch (policy) {
    case ReplayPolicy::reserve_max:
      return g * 14;
    case ReplayPolicy::realloc:
      return g * 21;
    case ReplayPolicy::concat:
    case ReplayPolicy::paged:
    case ReplayPolicy::virtual_memory:
      return g * 9;
  }
  return {};
}

}  // namespace memstrata::test
