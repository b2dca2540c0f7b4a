// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "support/paired_rounds.hpp"

namespace memstrata::bench {

[[nodiscard]] inline Target at_most(double ratio) {
  return {.bound = Target::Bound::at_most, .ratio = ratio};
}

/// A side that is a number and not a measurement: what a cost is compared with where the bar is absolute.
[[nodiscard]] inline Side bound(double cost) {
  return {.name = "bound", .measure = [cost] { return Sample{.cost = cost}; }};
}

/// `result` with its cost set against the absolute `bound` instead of the raw side.
[[nodiscard]] inline BenchResult against_bound(const BenchResult& result,
                                               std::string name,
                                               double bound) {
  BenchResult absolute = result;
  absolute.name = std::move(name);
  absolute.raw_name = "bound";
  absolute.raw = {.q1 = bound, .median = bound, .q3 = bound};
  absolute.ratio = {.q1 = result.ours.q1 / bound,
                    .median = result.ours.median / bound,
                    .q3 = result.ours.q3 / bound};
  absolute.target = at_most(1.0);
  absolute.raw_checksum = absolute.our_checksum;
  return absolute;
}

}  // namespace memstrata::bench
