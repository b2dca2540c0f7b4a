// SPDX-License-Identifier: Apache-2.0
#include "bench_threads.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/ledger_governor.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/structure/virtual_buffer.hpp"
#include "support/open_backing.hpp"
#include "support/paired_rounds.hpp"
#include "support/raw_memory.hpp"
#include "support/run_together.hpp"
#include "support/targets.hpp"
#include "support/warm_memory.hpp"

namespace memstrata::bench {
namespace {

constexpr Bytes total = 128_MiB;
constexpr double nanoseconds_per_microsecond = 1000;

double microseconds_since(std::chrono::nanoseconds start) {
  return static_cast<double>((steady_clock().now() - start).count()) / nanoseconds_per_microsecond;
}

/// Runs `body(bytes)` in so many threads, which share the total; the cost is the time of the slowest per block.
Side shared_by(const char* name, int threads, Bytes block, std::function<void(Bytes)> body) {
  return {.name = name, .measure = [threads, block, body = std::move(body)] {
            const Bytes share{total.value / static_cast<std::uint64_t>(threads)};
            const std::vector<std::function<double()>> bodies(
                static_cast<std::size_t>(threads), [share, &body] {
                  const auto start = steady_clock().now();
                  body(share);
                  return microseconds_since(start);
                });
            const std::vector<double> spent = run_together(bodies);
            return Sample{.cost = *std::ranges::max_element(spent) *
                                  static_cast<double>(block.value) /
                                  static_cast<double>(total.value)};
          }};
}

void raw_blocks(Bytes share, Bytes block) {
  const RawRange range(share);
  for (Bytes at; at < share; at += block) {
    range.open({.offset = at, .size = block});
    touch_pages(range.data() + at.value, block);
  }
  for (Bytes at; at < share; at += block) {
    range.discard({.offset = at, .size = block});
    range.close({.offset = at, .size = block});
  }
}

void our_blocks(host::PageBacking& backing, Bytes share, Bytes block) {
  auto reservation = must(backing.reserve(share));
  for (Bytes at; at < share; at += block) {
    must(backing.commit(reservation, ByteRange{.offset = at, .size = block}));
    touch_pages(reservation.data() + at.value, block);
  }
  for (Bytes at; at < share; at += block) {
    must(backing.decommit(reservation, {.offset = at, .size = block}));
  }
}

/// Requests of 64 KiB as a growing sequence makes them; the buffer commits ahead, so few of them reach the kernel.
void our_requests(const std::shared_ptr<host::PageBacking>& backing,
                  const std::shared_ptr<LedgerGovernor>& governor,
                  Bytes ahead,
                  Bytes share) {
  auto buffer = must(VirtualBuffer<host::PageBacking>::create(
      backing,
      share,
      governor,
      {.tier = Tier::host, .role = MemoryRole::kv_cache, .holder = HolderId{1}},
      ahead));
  for (Bytes length = 64_KiB; length <= share; length += 64_KiB) {
    must(buffer.grow_to(length));
    touch_pages(buffer.data() + (length - 64_KiB).value, 64_KiB);
  }
  must(buffer.shrink_to(Bytes{}));
}

}  // namespace

std::vector<BenchResult> bench_threads(const RoundOptions& options) {
  if (usable_processors() < 2) {
    return {};
  }
  auto lazy = std::make_shared<host::PageBacking>(open_backing({}));
  auto populating = std::make_shared<host::PageBacking>(open_backing({.populate = true}));
  auto governor = std::make_shared<LedgerGovernor>(DeviceKey::host(), TierLimits::all(1_TiB));
  const auto ours = [&lazy](Bytes share) { our_blocks(*lazy, share, 2_MiB); };
  const auto populated = [&populating](Bytes share) { our_blocks(*populating, share, 2_MiB); };
  const auto by_hand = [](Bytes share) { raw_blocks(share, 2_MiB); };
  const auto small_by_hand = [](Bytes share) { raw_blocks(share, 64_KiB); };
  const auto each_alone = [&](Bytes share) { our_requests(lazy, governor, Bytes{}, share); };
  const auto ahead = [&](Bytes share) { our_requests(lazy, governor, 2_MiB, share); };
  RoundOptions warmed = options;
  warmed.warm = [] { warm_memory(total, PageKind::ordinary); };
  std::vector<Side> sides;
  const auto add = [&sides](const char* one, const char* two, Bytes block, const auto& body) {
    sides.push_back(shared_by(one, 1, block, body));
    sides.push_back(shared_by(two, 2, block, body));
  };
  add("one thread", "two threads", 2_MiB, ours);
  add("by hand, one thread", "by hand, two threads", 2_MiB, by_hand);
  add("one thread", "two threads", 2_MiB, populated);
  add("one thread", "two threads", 64_KiB, ahead);
  add("one thread", "two threads", 64_KiB, each_alone);
  add("by hand, one thread", "by hand, two threads", 64_KiB, small_by_hand);
  const Rounds rounds = run_rounds(sides, warmed);
  std::vector<BenchResult> results;
  const auto report = [&](std::size_t pair, Comparison comparison) {
    comparison.unit = "us";
    results.push_back(compare(rounds, 2 * pair, 2 * pair + 1, std::move(comparison)));
  };
  report(0, {.name = "H16 commit, touch, release 2 MiB, two threads", .target = at_most(0.65)});
  report(1, {.name = "the machine itself: the same by hand, 2 MiB"});
  report(2,
         {.name = "commit with populate, release 2 MiB, two threads",
          .note =
              "filling in holds the address space of the process, so that the other thread waits"});
  report(
      3,
      {.name = "H17 requests of 64 KiB, two threads, committed ahead",
       .target = at_most(0.75),
       .note = "through one commit of 2 MiB ahead for 32 requests; each request alone is the line "
               "below"});
  report(4, {.name = "requests of 64 KiB, two threads, each its own call"});
  report(5, {.name = "the machine itself: the same by hand, 64 KiB"});
  return results;
}

}  // namespace memstrata::bench
