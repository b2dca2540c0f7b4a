// SPDX-License-Identifier: Apache-2.0

// Threads on one backing, each with a reservation of its own, and prefixes that all of them map.

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/kernel_figure.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "support/host_rig.hpp"
#include "support/process_view.hpp"
#include "support/scripted_governor.hpp"

namespace memstrata::host {
namespace {

using test::HostRig;

constexpr std::size_t thread_count = 4;

[[nodiscard]] std::uint32_t rounds(std::uint32_t usual) {
  return std::getenv("MEMSTRATA_SOAK") != nullptr ? usual * 20 : usual;
}

template <class Work>
void in_threads(Work work) {
  std::vector<std::thread> threads;
  threads.reserve(thread_count);
  for (std::uint32_t i = 0; i < thread_count; ++i) {
    threads.emplace_back(work, i);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(PageBackingThreads, ReservationsOfOneBackingAreIndependent) {
  const auto governor = test::ScriptedGovernor::with_limit(1_GiB);
  PageBackingOptions options = HostRig::small_options();
  options.governor = governor;
  options.retained_tail = options.granule * 2;
  HostRig rig(1, options);
  const std::uint64_t mappings = rig.backing.mapping_usage().used;
  std::atomic<std::uint64_t> wrong{0};

  in_threads([&](std::uint32_t number) {
    std::minstd_rand random(number + 1);
    for (std::uint32_t round = 0; round < rounds(40); ++round) {
      auto reservation = rig.backing.reserve(rig.g * 16).value();
      for (std::uint32_t step = 0; step < 8; ++step) {
        const ByteRange range = rig.granules(random() % 14, 1 + random() % 2);
        if (rig.backing.commit(reservation, range)) {
          std::byte* const bytes = reservation.data() + range.offset.value;
          wrong += bytes[0] == std::byte{0} ? 0U : 1U;
          std::memset(bytes, static_cast<int>(number + 1), range.size.value);
        } else if (rig.backing.committed_in(reservation, range) == range.size) {
          wrong += reservation.data()[range.offset.value] == std::byte(number + 1) ? 0U : 1U;
          wrong += rig.backing.decommit(reservation, range) ? 0U : 1U;
        }
      }
    }
  });

  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_EQ(governor->usage(Tier::host).used, 0_B);
  EXPECT_EQ(rig.backing.mapping_usage().used, mappings);
}

TEST(PageBackingThreads, APrefixGoesWithTheLastOfManyThreadsExactlyOnce) {
  PageBackingOptions options = HostRig::small_options();
  options.own_file_prefixes = 3;
  HostRig rig(1, options);
  static_cast<void>(rig.prefix(1, 1));
  const std::size_t open = test::open_descriptors();
  for (std::uint32_t round = 0; round < rounds(20); ++round) {
    std::atomic<std::uint64_t> gone{0};
    std::atomic<std::uint64_t> wrong{0};
    {
      const Prefix prefix = rig.prefix(2, 7);
      std::vector<PageBacking::Reservation> reservations;
      for (std::size_t i = 0; i < thread_count; ++i) {
        reservations.push_back(rig.backing.reserve(rig.g * 2).value());
        ASSERT_TRUE(rig.backing.map_shared(reservations.back(), 0_B, prefix, rig.granules(0, 2)));
      }
      std::vector<Prefix> handles(thread_count, prefix);
      in_threads([&](std::uint32_t number) {
        const Prefix mine = std::move(handles[number]);
        wrong += reservations[number].data()[0] == std::byte{7} ? 0U : 1U;
        const auto unmapped = rig.backing.unmap_shared(reservations[number], rig.granules(0, 2));
        gone += unmapped ? unmapped->value : 1U;
      });
    }
    EXPECT_EQ(wrong.load(), 0U);
    EXPECT_EQ(gone.load(), 0U) << "the handle outlived every mapping";
    EXPECT_EQ(kernel_figure(rig.backing).value().prefix_files, 0_B);
  }
  EXPECT_LE(test::open_descriptors(), open + 2) << "at most the file that arena prefixes share";
}

TEST(PageBackingThreads, TheLastUnmappingAmongThreadsReportsTheBytesOnce) {
  HostRig rig(1);
  for (std::uint32_t round = 0; round < rounds(20); ++round) {
    std::vector<PageBacking::Reservation> reservations;
    {
      const Prefix prefix = rig.prefix(2, 7);
      for (std::size_t i = 0; i < thread_count; ++i) {
        reservations.push_back(rig.backing.reserve(rig.g * 2).value());
        ASSERT_TRUE(rig.backing.map_shared(reservations.back(), 0_B, prefix, rig.granules(0, 2)));
      }
    }
    std::atomic<std::uint64_t> gone{0};

    in_threads([&](std::uint32_t number) {
      gone += rig.backing.unmap_shared(reservations[number], rig.granules(0, 2)).value().value;
    });

    ASSERT_EQ(gone.load(), (rig.g * 2).value);
  }
}

TEST(PageBackingThreads, PrefixesAreMadeMappedAndCountedAtTheSameTime) {
  PageBackingOptions options = HostRig::small_options();
  options.own_file_prefixes = 2;
  HostRig rig(1, options);
  std::atomic<std::uint64_t> wrong{0};

  in_threads([&](std::uint32_t number) {
    auto reservation = rig.backing.reserve(rig.g * 4).value();
    for (std::uint32_t round = 0; round < rounds(20); ++round) {
      if (number == 0) {
        wrong += kernel_figure(rig.backing) ? 0U : 1U;
        continue;
      }
      auto builder = rig.backing.create_prefix(rig.g * 2).value();
      std::memset(builder.data(), static_cast<int>(number), builder.size().value);
      const Prefix prefix = builder.seal().value();
      wrong += rig.backing.map_shared(reservation, 0_B, prefix, rig.granules(0, 2)) ? 0U : 1U;
      wrong += reservation.data()[0] == std::byte(number) ? 0U : 1U;
      wrong += rig.backing.break_shared(reservation, rig.granules(0, 1)) ? 0U : 1U;
      wrong += rig.backing.unmap_shared(reservation, rig.granules(1, 1)) ? 0U : 1U;
      wrong += rig.backing.decommit(reservation, rig.granules(0, 1)) ? 0U : 1U;
    }
  });

  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_EQ(kernel_figure(rig.backing).value().total(), 0_B);
}

TEST(PageBackingThreads, TheBudgetIsNeverOverdrawn) {
  PageBackingOptions options = HostRig::small_options();
  options.mapping_limit = HostRig(1).backing.mapping_usage().used + 8;
  HostRig rig(1, options);
  std::atomic<std::uint64_t> highest{0};

  in_threads([&](std::uint32_t) {
    for (std::uint32_t round = 0; round < rounds(100); ++round) {
      auto reservation = rig.backing.reserve(rig.g * 8);
      if (!reservation) {
        continue;
      }
      static_cast<void>(rig.backing.commit(*reservation, rig.granules(1, 1)));
      const std::uint64_t now = rig.backing.mapping_usage().used;
      std::uint64_t seen = highest.load();
      while (now > seen && !highest.compare_exchange_weak(seen, now)) {
      }
    }
  });

  EXPECT_LE(highest.load(), *options.mapping_limit);
}

}  // namespace
}  // namespace memstrata::host
