// SPDX-License-Identifier: Apache-2.0
#include "bench_threads.hpp"

#include <algorithm>
#include <chrono>
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
    range.populate({.offset = at, .size = block});
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
  auto backing = std::make_shared<host::PageBacking>(open_backing({.populate = true}));
  auto governor = std::make_shared<LedgerGovernor>(DeviceKey::host(), TierLimits::all(1_TiB));
  const auto ours = [&backing](Bytes share) { our_blocks(*backing, share, 2_MiB); };
  const auto by_hand = [](Bytes share) { raw_blocks(share, 2_MiB); };
  const auto small_by_hand = [](Bytes share) { raw_blocks(share, 64_KiB); };
  const auto each_alone = [&](Bytes share) { our_requests(backing, governor, Bytes{}, share); };
  const auto ahead = [&](Bytes share) { our_requests(backing, governor, 2_MiB, share); };
  RoundOptions warmed = options;
  warmed.warm = [] { warm_memory(total, PageKind::ordinary); };
  const std::vector<Side> sides{shared_by("one thread", 1, 2_MiB, ours),
                                shared_by("two threads", 2, 2_MiB, ours),
                                shared_by("by hand, one thread", 1, 2_MiB, by_hand),
                                shared_by("by hand, two threads", 2, 2_MiB, by_hand),
                                shared_by("one thread", 1, 64_KiB, ahead),
                                shared_by("two threads", 2, 64_KiB, ahead),
                                shared_by("one thread", 1, 64_KiB, each_alone),
                                shared_by("two threads", 2, 64_KiB, each_alone),
                                shared_by("by hand, one thread", 1, 64_KiB, small_by_hand),
                                shared_by("by hand, two threads", 2, 64_KiB, small_by_hand)};
  const Rounds rounds = run_rounds(sides, warmed);
  std::vector<BenchResult> results;
  results.push_back(compare(rounds,
                            0,
                            1,
                            {.name = "H16 commit, touch, release 2 MiB, two threads",
                             .unit = "us",
                             .target = at_most(0.65)}));
  results.push_back(
      compare(rounds, 2, 3, {.name = "the machine itself: the same by hand, 2 MiB", .unit = "us"}));
  results.push_back(compare(rounds,
                            4,
                            5,
                            {.name = "H17 requests of 64 KiB, two threads, committed ahead",
                             .unit = "us",
                             .target = at_most(0.75),
                             .note = "through one commit of 2 MiB ahead for 32 requests; each "
                                     "request alone is the line below"}));
  results.push_back(compare(
      rounds, 6, 7, {.name = "requests of 64 KiB, two threads, each its own call", .unit = "us"}));
  results.push_back(compare(
      rounds, 8, 9, {.name = "the machine itself: the same by hand, 64 KiB", .unit = "us"}));
  return results;
}

}  // namespace memstrata::bench
