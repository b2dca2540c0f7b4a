// SPDX-License-Identifier: Apache-2.0
#include "bench_buffer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/ledger_governor.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/structure/virtual_buffer.hpp"
#include "memstrata/structure/virtual_range.hpp"
#include "support/open_backing.hpp"
#include "support/paired_rounds.hpp"
#include "support/raw_memory.hpp"
#include "support/targets.hpp"

namespace memstrata::bench {
namespace {

using Buffer = VirtualBuffer<host::PageBacking>;
using Range = VirtualRange<host::PageBacking>;

constexpr Bytes capacity = 1_GiB;
constexpr Bytes step = 64_KiB;
constexpr std::uint64_t steps = capacity.value / step.value;
/// How many steps at either end are compared. *Source:* the figures of the earlier system were taken over as many.
constexpr std::uint64_t end_steps = 512;
constexpr LeaseTerms terms{.tier = Tier::host, .role = MemoryRole::kv_cache, .holder = HolderId{1}};

double since(std::chrono::nanoseconds start) {
  return static_cast<double>((steady_clock().now() - start).count());
}

/// A backing and a governor that several buffers of a measure share.
struct Stack {
  explicit Stack(BackingShape shape = {})
      : backing(std::make_shared<host::PageBacking>(open_backing(shape))),
        governor(std::make_shared<LedgerGovernor>(DeviceKey::host(), TierLimits::all(1_TiB))) {}

  [[nodiscard]] Buffer buffer(Bytes commit_ahead = {}) const {
    return must(Buffer::create(backing, capacity, governor, terms, commit_ahead));
  }

  std::shared_ptr<host::PageBacking> backing;
  std::shared_ptr<LedgerGovernor> governor;
};

// --- Growth -------------------------------------------------------------------------------------------------

Sample raw_steps(std::uint64_t first, std::uint64_t last) {
  const RawRange range(capacity);
  double spent = 0;
  for (std::uint64_t index = 0; index < steps; ++index) {
    const auto start = steady_clock().now();
    range.open({.offset = step * index, .size = step});
    const double passed = since(start);
    spent += index >= first && index < last ? passed : 0;
  }
  return {.cost = spent / static_cast<double>(last - first)};
}

Sample our_steps(const Stack& stack,
                 std::uint64_t first,
                 std::uint64_t last,
                 Bytes commit_ahead = {}) {
  Buffer buffer = stack.buffer(commit_ahead);
  double spent = 0;
  for (std::uint64_t index = 0; index < steps; ++index) {
    const auto start = steady_clock().now();
    must(buffer.grow_to(step * (index + 1)));
    const double passed = since(start);
    spent += index >= first && index < last ? passed : 0;
  }
  return {.cost = spent / static_cast<double>(last - first)};
}

void add_steps(std::vector<BenchResult>& results, const RoundOptions& options) {
  const Stack stack;
  const std::vector<Side> sides{
      {.name = "mprotect", .measure = [] { return raw_steps(0, steps); }},
      {.name = "grow_to", .measure = [&stack] { return our_steps(stack, 0, steps); }},
      {.name = "first 512", .measure = [&stack] { return our_steps(stack, 0, end_steps); }},
      {.name = "last 512",
       .measure = [&stack] { return our_steps(stack, steps - end_steps, steps); }},
      {.name = "grow_to, ahead",
       .measure = [&stack] { return our_steps(stack, 0, steps, step * 8); }}};
  const Rounds rounds = run_rounds(sides, options);
  results.push_back(compare(
      rounds, 0, 1, {.name = "buffer, a step of 64 KiB, the call alone", .target = at_most(1.15)}));
  results.push_back(compare(
      rounds,
      0,
      4,
      {.name = "buffer, a step of 64 KiB, committed 512 KiB ahead", .target = at_most(1.15)}));
  results.push_back(
      compare(rounds,
              2,
              3,
              {.name = "buffer, last steps of 1 GiB against the first", .target = at_most(1.1)}));
}

BenchResult growth_inside_a_granule(const RoundOptions& options) {
  constexpr std::int64_t calls = 60'000;
  const Stack stack;
  Buffer buffer = stack.buffer();
  return run_paired({.name = "buffer, growth inside a granule", .target = at_most(1.0)},
                    bound(5),
                    {.name = "grow_to",
                     .measure =
                         [&buffer] {
                           must(buffer.shrink_to(Bytes{}));
                           must(buffer.grow_to(Bytes{1}));
                           std::uint64_t length = 1;
                           const double cost = nanoseconds_per_run(calls, [&buffer, &length] {
                             ++length;
                             MEMSTRATA_VERIFY(buffer.grow_to(Bytes{length}).has_value(),
                                              "growth inside a granule failed");
                             // Each call must happen: the compiler would merge them all into the last.
                             asm volatile("" : : "r"(&buffer) : "memory");
                           });
                           return Sample{.cost = cost};
                         }},
                    options);
}

// --- Shrinking ----------------------------------------------------------------------------------------------

constexpr double nanoseconds_per_microsecond = 1000;

Sample raw_shrink() {
  const RawRange range(capacity);
  range.open({.offset = {}, .size = capacity});
  const auto start = steady_clock().now();
  range.discard({.offset = {}, .size = capacity});
  range.close({.offset = {}, .size = capacity});
  return {.cost = since(start) / nanoseconds_per_microsecond};
}

Sample our_shrink(const Stack& stack) {
  Buffer buffer = stack.buffer();
  for (Bytes size = 2_MiB; size <= capacity; size += 2_MiB) {
    must(buffer.grow_to(size));
  }
  const auto start = steady_clock().now();
  must(buffer.shrink_to(Bytes{}));
  const double spent = since(start);
  MEMSTRATA_VERIFY(
      buffer.committed() == Bytes{} && stack.governor->usage(Tier::host).used == Bytes{},
      "a buffer of no length holds memory");
  return {.cost = spent / nanoseconds_per_microsecond};
}

void add_shrink(std::vector<BenchResult>& results, const RoundOptions& options) {
  const Stack stack;
  const BenchResult paired = run_paired(
      {.name = "buffer, shrink 1 GiB to nothing, untouched, same raw calls", .unit = "us"},
      {.name = "discard + mprotect", .measure = raw_shrink},
      {.name = "shrink_to", .measure = [&stack] { return our_shrink(stack); }},
      options);
  results.push_back(
      against_bound(paired, "buffer, shrink 1 GiB to nothing, untouched, absolute", 50));
  results.push_back(paired);
}

// --- Isolated granules --------------------------------------------------------------------------------------

/// Commits, then releases, every other granule: each costs the kernel mappings of its own.
struct IsolatedCost {
  Sample commit;
  Sample release;
};

double each(double spent, std::uint64_t count) {
  return spent / static_cast<double>(count);
}

IsolatedCost raw_isolated(std::uint64_t count) {
  const RawRange range(step * (2 * count));
  const auto start = steady_clock().now();
  for (std::uint64_t index = 0; index < count; ++index) {
    range.open({.offset = step * (2 * index), .size = step});
  }
  const double committed = since(start);
  const auto middle = steady_clock().now();
  for (std::uint64_t index = 0; index < count; ++index) {
    range.discard({.offset = step * (2 * index), .size = step});
    range.close({.offset = step * (2 * index), .size = step});
  }
  return {.commit = {.cost = each(committed, count)},
          .release = {.cost = each(since(middle), count)}};
}

IsolatedCost our_isolated(const Stack& stack, std::uint64_t count) {
  auto range = must(Range::reserve(stack.backing, step * (2 * count), stack.governor, terms));
  const auto start = steady_clock().now();
  for (std::uint64_t index = 0; index < count; ++index) {
    must(range.commit(ByteRange{.offset = step * (2 * index), .size = step}));
  }
  const double committed = since(start);
  MEMSTRATA_VERIFY(range.runs() == count, "granules are not isolated", range.runs(), count);
  const auto middle = steady_clock().now();
  for (std::uint64_t index = 0; index < count; ++index) {
    must(range.decommit(ByteRange{.offset = step * (2 * index), .size = step}));
  }
  return {.commit = {.cost = each(committed, count)},
          .release = {.cost = each(since(middle), count)}};
}

/// One run gives two figures, so the sides are run once and compared twice.
void add_isolated(std::vector<BenchResult>& results,
                  std::uint64_t count,
                  const RoundOptions& options) {
  // 30,000 isolated granules need more mappings than the budget leaves; the kernel itself still has room.
  const Stack stack({.mapping_budget = false});
  std::vector<std::vector<Sample>> commits(2);
  std::vector<std::vector<Sample>> releases(2);
  for (int round = -options.dropped; round < options.rounds; ++round) {
    for (std::size_t turn = 0; turn < 2; ++turn) {
      const std::size_t side = round % 2 == 0 ? turn : 1 - turn;
      const IsolatedCost cost = side == 0 ? raw_isolated(count) : our_isolated(stack, count);
      if (round >= 0) {
        commits[side].push_back(cost.commit);
        releases[side].push_back(cost.release);
      }
    }
  }
  const Rounds commit_rounds({"mprotect", "commit"}, std::move(commits));
  const Rounds release_rounds({"discard + mprotect", "decommit"}, std::move(releases));
  results.push_back(compare(
      commit_rounds,
      0,
      1,
      {.name = fmt::format("range, commit {} isolated granules", count), .target = at_most(1.15)}));
  results.push_back(compare(release_rounds,
                            0,
                            1,
                            {.name = fmt::format("range, release {} isolated granules", count),
                             .target = at_most(1.15)}));
}

}  // namespace

std::vector<BenchResult> bench_buffer(const RoundOptions& options) {
  std::vector<BenchResult> results;
  add_steps(results, options);
  results.push_back(growth_inside_a_granule(options));
  add_shrink(results, options);
  for (const std::uint64_t count : {1'000U, 10'000U, 30'000U}) {
    add_isolated(results, count, options);
  }
  return results;
}

}  // namespace memstrata::bench
