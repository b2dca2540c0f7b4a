// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/clock.hpp"

namespace memstrata::bench {

/// What one measured batch of one side cost, and what it wrote.
struct Sample {
  double cost = 0;  ///< Per operation, in the unit of the case.
  std::uint64_t checksum =
      0;  ///< Of the bytes written, where the sides have to write the same; else 0.
};

/// One of the alternatives that are compared: a name and what runs and measures one batch of it.
struct Side {
  std::string name;
  std::function<Sample()> measure;
};

/// The middle half of a set of measurements.
struct Quartiles {
  double q1 = 0;
  double median = 0;
  double q3 = 0;
};

/// The quartiles of `values`, which is not empty, interpolated between neighbours.
[[nodiscard]] Quartiles quartiles_of(std::vector<double> values);

/// What a ratio of ours to raw should be.
struct Target {
  enum class Bound : std::uint8_t { at_most, at_least };

  Bound bound;
  double ratio;
};

struct RoundOptions {
  int rounds = 15;  ///< Measured rounds; a figure that is published needs 15 or more.
  int dropped = 1;  ///< Rounds run before them, whose figures are dropped.
  /// Runs untimed before each side of each round. Where memory is measured it populates and unmaps as much as the
  /// side will use, because a hypervisor takes freed pages back and the first user would pay for all.
  std::function<void()> warm;
};

/// The samples of some sides, round by round.
class Rounds {
 public:
  Rounds(std::vector<std::string> names, std::vector<std::vector<Sample>> samples)
      : names_(std::move(names)), samples_(std::move(samples)) {}

  [[nodiscard]] int count() const noexcept { return static_cast<int>(samples_.front().size()); }

  [[nodiscard]] const std::string& name(std::size_t side) const { return names_.at(side); }

  /// The samples of one side, in the order of the rounds.
  [[nodiscard]] std::span<const Sample> samples(std::size_t side) const {
    return samples_.at(side);
  }

 private:
  std::vector<std::string> names_;
  std::vector<std::vector<Sample>> samples_;
};

/// Runs all sides in each round, every other round in reverse order, so that drift and neighbours hit all alike.
[[nodiscard]] Rounds run_rounds(std::span<const Side> sides, const RoundOptions& options);

/// Two sides compared: costs, and ratios that were formed inside each round.
struct BenchResult {
  std::string name;
  std::string unit;
  std::string raw_name;
  std::string our_name;
  Quartiles raw;
  Quartiles ours;
  Quartiles ratio;
  std::optional<Target> target;
  int rounds = 0;
  std::uint64_t raw_checksum = 0;
  std::uint64_t our_checksum = 0;
  std::string note;

  [[nodiscard]] bool wrote_the_same() const noexcept { return raw_checksum == our_checksum; }

  /// Whether the lower quartile of the ratio meets the target and both sides wrote the same; nothing without a
  /// target.
  [[nodiscard]] std::optional<bool> is_met() const noexcept;
};

/// What is compared, and with which intent.
struct Comparison {
  std::string name;
  std::string unit = "ns";
  std::optional<Target> target = std::nullopt;
  std::string note = {};
};

/// Compares side `ours` with side `raw` of rounds that were run together.
[[nodiscard]] BenchResult compare(const Rounds& rounds,
                                  std::size_t raw,
                                  std::size_t ours,
                                  Comparison comparison);

/// Runs two sides in paired rounds and compares them.
[[nodiscard]] BenchResult run_paired(Comparison comparison,
                                     Side raw,
                                     Side ours,
                                     const RoundOptions& options);

/// Runs `body` `count` times and returns nanoseconds per run.
template <class Body>
[[nodiscard]] double nanoseconds_per_run(std::int64_t count, Body&& body) {
  const std::chrono::nanoseconds start = steady_clock().now();
  for (std::int64_t run = 0; run < count; ++run) {
    body();
  }
  const std::chrono::nanoseconds passed = steady_clock().now() - start;
  return static_cast<double>(passed.count()) / static_cast<double>(count);
}

}  // namespace memstrata::bench
