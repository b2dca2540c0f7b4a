// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "support/paired_rounds.hpp"

namespace memstrata::bench {

/// How far memory grows, and by how much at a time. Every new byte is written at once.
struct Growth {
  Bytes total;
  Bytes step;
};

/// What one growth from nothing to the total cost.
struct GrowthRun {
  double milliseconds = 0;  ///< All steps with their writing.
  double worst_step_milliseconds = 0;
  std::uint64_t moves = 0;     ///< Times that the base address changed.
  double peak = 0;             ///< Most resident memory, as a multiple of the total.
  std::uint64_t checksum = 0;  ///< Of all words at the end, read outside the timing.
};

/// A way to grow: takes memory, grows it as told, gives it back.
struct Grower {
  std::string name;
  std::function<GrowthRun(Growth)> run;
};

/// One mapping of the whole, writable from the start: the floor.
[[nodiscard]] GrowthRun grow_in_one_mapping(Growth growth);
/// Reserved once, `mprotect` per step by hand.
[[nodiscard]] GrowthRun grow_by_mprotect(Growth growth);
/// A new block of twice the size and a copy whenever it is full, and one step beyond the total.
[[nodiscard]] GrowthRun grow_by_doubling(Growth growth);
/// glibc `realloc` to the exact size on every step.
[[nodiscard]] GrowthRun grow_by_realloc(Growth growth);
/// `mremap` to the exact size on every step.
[[nodiscard]] GrowthRun grow_by_mremap(Growth growth);
/// A new block of the exact size and a copy on every step, as tensor concatenation does.
[[nodiscard]] GrowthRun grow_by_copying(Growth growth);

/// How our buffer grows.
struct BufferShape {
  Bytes granule;
  bool populate = false;
  bool huge = false;
};

/// A `VirtualBuffer` over the host backing under a governor.
[[nodiscard]] GrowthRun grow_buffer(Growth growth, BufferShape shape);

}  // namespace memstrata::bench
