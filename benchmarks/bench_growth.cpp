// SPDX-License-Identifier: Apache-2.0
#include "bench_growth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "support/growing.hpp"
#include "support/paired_rounds.hpp"
#include "support/targets.hpp"
#include "support/warm_memory.hpp"

namespace memstrata::bench {
namespace {

using Measure = double GrowthRun::*;

/// Every run of every grower, so that time, pauses, moves and peaks come from the same rounds.
class GrowthRounds {
 public:
  GrowthRounds(std::vector<Grower> growers, Growth growth, const RoundOptions& options)
      : growers_(std::move(growers)), runs_(growers_.size()) {
    for (int round = -options.dropped; round < options.rounds; ++round) {
      for (std::size_t turn = 0; turn < growers_.size(); ++turn) {
        const std::size_t index = round % 2 == 0 ? turn : growers_.size() - 1 - turn;
        options.warm();
        const GrowthRun run = growers_[index].run(growth);
        if (round >= 0) {
          runs_[index].push_back(run);
        }
      }
    }
  }

  [[nodiscard]] Rounds of(Measure measure) const {
    std::vector<std::string> names;
    std::vector<std::vector<Sample>> samples;
    for (std::size_t index = 0; index < growers_.size(); ++index) {
      names.push_back(growers_[index].name);
      samples.emplace_back();
      for (const GrowthRun& run : runs_[index]) {
        samples.back().push_back({.cost = run.*measure, .checksum = run.checksum});
      }
    }
    return {std::move(names), std::move(samples)};
  }

  [[nodiscard]] std::span<const GrowthRun> runs(std::size_t grower) const {
    return runs_.at(grower);
  }

 private:
  std::vector<Grower> growers_;
  std::vector<std::vector<GrowthRun>> runs_;
};

std::uint64_t most_moves(std::span<const GrowthRun> runs) {
  std::uint64_t most = 0;
  for (const GrowthRun& run : runs) {
    most = std::max(most, run.moves);
  }
  return most;
}

double highest_peak(std::span<const GrowthRun> runs) {
  double highest = 0;
  for (const GrowthRun& run : runs) {
    highest = std::max(highest, run.peak);
  }
  return highest;
}

std::string side_effects(const GrowthRounds& rounds, std::size_t raw, std::size_t ours) {
  return fmt::format(
      "base moved {} times ({} for the other side); peak {:.2f} of the size ({:.2f})",
      most_moves(rounds.runs(ours)),
      most_moves(rounds.runs(raw)),
      highest_peak(rounds.runs(ours)),
      highest_peak(rounds.runs(raw)));
}

enum GrowerIndex : std::size_t {
  huge,
  ordinary,
  populated,
  doubling,
  reallocated,
  remapped,
  by_hand,
  one_mapping
};

std::vector<Grower> growers() {
  const auto buffer = [](BufferShape shape) {
    return [shape](Growth growth) { return grow_buffer(growth, shape); };
  };
  return {{"buffer, huge pages", buffer({.granule = 2_MiB, .populate = true, .huge = true})},
          {"buffer", buffer({.granule = 64_KiB})},
          {"buffer with populate", buffer({.granule = 64_KiB, .populate = true})},
          {"doubling + copy", grow_by_doubling},
          {"realloc", grow_by_realloc},
          {"mremap", grow_by_mremap},
          {"mprotect by hand", grow_by_mprotect},
          {"one mmap", grow_in_one_mapping}};
}

void add_growth(std::vector<BenchResult>& results,
                const GrowthRounds& measured,
                std::size_t raw,
                std::size_t ours,
                std::string name,
                std::optional<Target> target) {
  results.push_back(compare(measured.of(&GrowthRun::milliseconds),
                            raw,
                            ours,
                            {.name = std::move(name),
                             .unit = "ms",
                             .target = target,
                             .note = side_effects(measured, raw, ours)}));
}

/// H9: what the caller notices besides the time.
void add_pauses(std::vector<BenchResult>& results, const GrowthRounds& measured) {
  results.push_back(compare(
      measured.of(&GrowthRun::worst_step_milliseconds),
      doubling,
      populated,
      {.name = "H9 worst step, against doubling", .unit = "ms", .target = at_most(1.0 / 50)}));
  const double peak = std::max({highest_peak(measured.runs(huge)),
                                highest_peak(measured.runs(ordinary)),
                                highest_peak(measured.runs(populated))});
  const std::uint64_t moves = std::max({most_moves(measured.runs(huge)),
                                        most_moves(measured.runs(ordinary)),
                                        most_moves(measured.runs(populated))});
  BenchResult worst_peak;
  worst_peak.name = "H9 peak of resident memory while growing";
  worst_peak.unit = "times the size";
  worst_peak.our_name = "worst of all rounds";
  worst_peak.ours = {.q1 = peak, .median = peak, .q3 = peak};
  worst_peak.rounds = measured.of(&GrowthRun::peak).count();
  worst_peak.note = fmt::format("base moved {} times in all rounds of the three buffers", moves);
  results.push_back(against_bound(worst_peak, worst_peak.name, 1.02));
}

}  // namespace

std::vector<BenchResult> bench_growth(const RoundOptions& options) {
  const Growth growth{.total = 1_GiB, .step = 2_MiB};
  RoundOptions warmed = options;
  warmed.warm = [growth] { warm_memory(growth.total, PageKind::huge); };
  const GrowthRounds measured(growers(), growth, warmed);
  std::vector<BenchResult> results;
  const auto add =
      [&](std::size_t raw, std::size_t ours, std::string name, std::optional<Target> target) {
        add_growth(results, measured, raw, ours, std::move(name), target);
      };
  add(doubling,
      huge,
      "H6 grow to 1 GiB, huge pages, against doubling one step beyond",
      at_most(1.0 / 8));
  add(reallocated, huge, "H6 the same, against realloc", at_most(1.0 / 2));
  add(doubling, ordinary, "H7 ordinary pages, against doubling one step beyond", at_most(1.0 / 3));
  add(doubling, populated, "H7 with populate, against doubling one step beyond", at_most(1.0 / 5));
  add(reallocated, ordinary, "H7 ordinary pages, against realloc", at_most(1.1));
  add(remapped, ordinary, "ordinary pages, against mremap", std::nullopt);
  add(by_hand, ordinary, "ordinary pages, against mprotect by hand", std::nullopt);
  add(one_mapping, ordinary, "ordinary pages, against one mapping", std::nullopt);
  add(one_mapping, populated, "with populate, against one mapping", std::nullopt);
  add_pauses(results, measured);
  return results;
}

std::vector<BenchResult> bench_copy_each_step(const RoundOptions& options) {
  const Growth growth{.total = 256_MiB, .step = 2_MiB};
  RoundOptions warmed = options;
  warmed.warm = [growth] { warm_memory(growth.total * 2, PageKind::huge); };
  const GrowthRounds measured(
      {{"copy on every step", grow_by_copying},
       {"buffer", [](Growth asked) { return grow_buffer(asked, {.granule = 64_KiB}); }}},
      growth,
      warmed);
  std::vector<BenchResult> results;
  add_growth(results,
             measured,
             0,
             1,
             "H8 grow to 256 MiB by 2 MiB, against a copy on every step",
             at_most(1.0 / 50));
  return results;
}

}  // namespace memstrata::bench
