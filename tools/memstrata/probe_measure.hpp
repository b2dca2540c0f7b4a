// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memstrata/core/bytes.hpp"

namespace memstrata::tool {

/// Median and quartiles of the rounds of one measurement, in nanoseconds.
struct Spread {
  double p25_ns = 0;
  double p50_ns = 0;
  double p75_ns = 0;
};

/// Memory bandwidth of one thread, in bytes per second of payload; medians of the rounds.
struct Bandwidth {
  Bytes buffer;  ///< Size of source and target each.
  double fill = 0;
  double read = 0;
  double copy = 0;
};

/// What one backing of this machine costs, per call on one piece of `piece` bytes.
struct BackingCosts {
  std::string name;
  Bytes granule;
  bool huge_pages = false;
  Bytes piece;
  std::string failure{};      ///< Why there are no figures; else empty.
  Spread reserve{};           ///< 64 GiB of address space.
  Spread commit{};            ///< Without populating.
  Spread fault{};             ///< First touch of every page of the piece after that commit.
  Spread commit_populated{};  ///< With the pages filled in.
  Spread release{};           ///< Of a populated piece.
  Spread map_shared{};        ///< A sealed prefix of the piece's size into a reservation.
};

/// Measures with buffers of 256 MiB, or an eighth of `room` if that is less. Takes about a second.
[[nodiscard]] Bandwidth measure_bandwidth(Bytes room);

/// Measures each backing that the host tier has, after a warm-up in each case. Takes a fraction of a second.
[[nodiscard]] std::vector<BackingCosts> measure_backings();

}  // namespace memstrata::tool
