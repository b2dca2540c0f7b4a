// SPDX-License-Identifier: Apache-2.0
#include "support/paired_rounds.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace memstrata::bench {
namespace {

/// The value at `fraction` of the way through `sorted`.
double quantile(const std::vector<double>& sorted, double fraction) {
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const double below = std::floor(position);
  const auto index = static_cast<std::size_t>(below);
  const std::size_t next = std::min(index + 1, sorted.size() - 1);
  return std::lerp(sorted[index], sorted[next], position - below);
}

Quartiles costs_of(std::span<const Sample> samples) {
  std::vector<double> costs;
  costs.reserve(samples.size());
  for (const Sample& sample : samples) {
    costs.push_back(sample.cost);
  }
  return quartiles_of(std::move(costs));
}

std::uint64_t checksum_of(std::span<const Sample> samples) {
  std::uint64_t sum = 0;
  for (const Sample& sample : samples) {
    sum += sample.checksum;
  }
  return sum;
}

}  // namespace

Quartiles quartiles_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {
      .q1 = quantile(values, 0.25), .median = quantile(values, 0.5), .q3 = quantile(values, 0.75)};
}

Rounds run_rounds(std::span<const Side> sides, const RoundOptions& options) {
  std::vector<std::string> names;
  names.reserve(sides.size());
  for (const Side& side : sides) {
    names.push_back(side.name);
  }
  std::vector<std::vector<Sample>> samples(sides.size());
  for (int round = -options.dropped; round < options.rounds; ++round) {
    for (std::size_t turn = 0; turn < sides.size(); ++turn) {
      const std::size_t index = round % 2 == 0 ? turn : sides.size() - 1 - turn;
      if (options.warm) {
        options.warm();
      }
      const Sample sample = sides[index].measure();
      if (round >= 0) {
        samples[index].push_back(sample);
      }
    }
  }
  return {std::move(names), std::move(samples)};
}

std::optional<bool> BenchResult::is_met() const noexcept {
  if (!target) {
    return std::nullopt;
  }
  switch (target->bound) {
    case Target::Bound::at_most:
      return wrote_the_same() && ratio.q1 <= target->ratio;
    case Target::Bound::at_least:
      return wrote_the_same() && ratio.q1 >= target->ratio;
  }
  std::unreachable();
}

BenchResult compare(const Rounds& rounds,
                    std::size_t raw,
                    std::size_t ours,
                    Comparison comparison) {
  const std::span<const Sample> raw_samples = rounds.samples(raw);
  const std::span<const Sample> our_samples = rounds.samples(ours);
  std::vector<double> ratios;
  ratios.reserve(raw_samples.size());
  for (std::size_t round = 0; round < raw_samples.size(); ++round) {
    ratios.push_back(our_samples[round].cost / raw_samples[round].cost);
  }
  return {.name = std::move(comparison.name),
          .unit = std::move(comparison.unit),
          .raw_name = rounds.name(raw),
          .our_name = rounds.name(ours),
          .raw = costs_of(raw_samples),
          .ours = costs_of(our_samples),
          .ratio = quartiles_of(std::move(ratios)),
          .target = comparison.target,
          .rounds = rounds.count(),
          .raw_checksum = checksum_of(raw_samples),
          .our_checksum = checksum_of(our_samples),
          .note = std::move(comparison.note)};
}

BenchResult run_paired(Comparison comparison, Side raw, Side ours, const RoundOptions& options) {
  const std::vector<Side> sides{std::move(raw), std::move(ours)};
  return compare(run_rounds(sides, options), 0, 1, std::move(comparison));
}

}  // namespace memstrata::bench
