// SPDX-License-Identifier: Apache-2.0
#include "bench_lease.hpp"

#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/lease_ledger.hpp"
#include "memstrata/governance/ledger_governor.hpp"
#include "support/atomic_pair.hpp"
#include "support/paired_rounds.hpp"
#include "support/run_together.hpp"
#include "support/targets.hpp"

namespace memstrata::bench {
namespace {

constexpr HolderId holder{1};
constexpr MemoryRole role = MemoryRole::kv_cache;

double lease_and_release(MemoryGovernor& governor, Tier tier) {
  return warmed([&governor, tier] {
    const auto lease = governor.reserve(tier, 64_KiB, role, holder);
    MEMSTRATA_VERIFY(lease.has_value(), "a lease under the limit was refused");
  });
}

double grow_and_shrink(MemoryLease& lease) {
  return warmed([&lease] {
    const bool grown = lease.grow(64_KiB).has_value();
    MEMSTRATA_VERIFY(grown && lease.shrink(64_KiB) == 64_KiB, "growth under the limit was refused");
  });
}

double refusal(MemoryGovernor& governor) {
  return warmed([&governor] {
    const auto lease = governor.reserve(Tier::disk, 64_KiB, role, holder);
    MEMSTRATA_VERIFY(!lease.has_value(), "a lease above the limit was granted");
  });
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// A side whose batch runs in as many threads as there are bodies; the cost is the mean of theirs.
Side in_threads(const char* name, std::vector<std::function<double()>> bodies) {
  return {.name = name, .measure = [bodies = std::move(bodies)] {
            return Sample{.cost = mean(run_together(bodies))};
          }};
}

enum SideIndex : std::size_t {
  pair,
  pair_by_two,
  lease_by_one,
  lease_by_two_on_two_tiers,
  lease_by_two_on_one_tier,
  growth,
  refused
};

std::vector<Side> sides_over(std::vector<LonelyWord>& words,
                             MemoryGovernor& governor,
                             MemoryLease& grown) {
  const auto pair_of = [&words](std::size_t word) {
    return [&words, word] { return atomic_pair(words[word]); };
  };
  const auto lease_of = [&governor](Tier tier) {
    return [&governor, tier] { return lease_and_release(governor, tier); };
  };
  return {in_threads("A", {pair_of(0)}),
          in_threads("A of two threads on two words", {pair_of(0), pair_of(1)}),
          in_threads("lease + release", {lease_of(Tier::device)}),
          in_threads("two threads, two tiers", {lease_of(Tier::device), lease_of(Tier::host)}),
          in_threads("two threads, one tier", {lease_of(Tier::device), lease_of(Tier::device)}),
          in_threads("grow + shrink", {[&grown] { return grow_and_shrink(grown); }}),
          in_threads("refusal", {[&governor] { return refusal(governor); }})};
}

}  // namespace

std::vector<BenchResult> bench_lease(const RoundOptions& options) {
  std::vector<LonelyWord> words(2);
  LedgerGovernor governor(DeviceKey::device(0), TierLimits::all(1_TiB).with(Tier::disk, 4_KiB));
  auto grown = governor.reserve(Tier::device, 64_KiB, role, holder);
  MEMSTRATA_VERIFY(grown.has_value(), "a lease under the limit was refused");

  const Rounds rounds = run_rounds(sides_over(words, governor, *grown), options);

  std::vector<BenchResult> results;
  results.push_back(compare(
      rounds, pair, lease_by_one, {.name = "lease + release, one thread", .target = at_most(2.5)}));
  results.push_back(compare(rounds, pair, growth, {.name = "grow + shrink, one thread"}));
  results.push_back(compare(rounds, pair, refused, {.name = "refusal", .target = at_most(2.0)}));
  if (usable_processors() >= 2) {
    results.push_back(
        compare(rounds,
                lease_by_one,
                lease_by_two_on_two_tiers,
                {.name = "lease + release, two threads on two tiers", .target = at_most(1.3)}));
    results.push_back(compare(
        rounds, pair, pair_by_two, {.name = "the machine itself: A, two threads on two words"}));
    results.push_back(compare(rounds,
                              lease_by_one,
                              lease_by_two_on_one_tier,
                              {.name = "lease + release, two threads on one tier",
                               .note = "control; near 1 the two threads did not run at the same "
                                       "time, and no figure of two threads counts"}));
  }
  return results;
}

}  // namespace memstrata::bench
