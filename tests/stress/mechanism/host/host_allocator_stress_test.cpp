// SPDX-License-Identifier: Apache-2.0
// Eight threads on one virtual host allocator; the thread sanitizer is the second witness.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "memstrata/contract/release.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "support/allocator_rig.hpp"
#include "support/host_bytes.hpp"

namespace memstrata::host {
namespace {

constexpr unsigned threads_at_work = 8;
constexpr unsigned rounds = 200;

/// Runs `work(number)` on every thread and waits for all.
template <class Work>
void on_all_threads(const Work& work) {
  std::vector<std::thread> threads;
  threads.reserve(threads_at_work);
  for (unsigned number = 0; number < threads_at_work; ++number) {
    threads.emplace_back([&work, number] { work(number); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

[[nodiscard]] ByteRange part(std::uint64_t first, std::uint64_t count) {
  return {.offset = page_size() * first, .size = page_size() * count};
}

TEST(HostVirtualAllocatorStress, ThreadsWithTheirOwnAllocationsNeverMeet) {
  test::AllocatorRig rig({.granule = page_size()});
  std::atomic<unsigned> wrong{0};

  on_all_threads([&](unsigned number) {
    for (unsigned round = 0; round < rounds; ++round) {
      const AllocationSpan span = rig.reserve(page_size() * 8);
      const auto value = static_cast<std::uint8_t>(number + 1);
      wrong += rig.backing().commit(span, part(1, 4)) ? 0U : 1U;
      test::fill(span.address + page_size(), page_size() * 4, value);
      wrong += rig.backing().decommit(span, part(2, 1)).value_or(Bytes{}) == page_size() ? 0U : 1U;
      wrong += test::holds_only(span.address + page_size() * 3, page_size() * 2, value) ? 0U : 1U;
      wrong += rig.allocator().release(span).unmapped_bytes() == page_size() * 3 ? 0U : 1U;
    }
  });

  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(rig.used(), Bytes{});
  EXPECT_EQ(rig.allocator().live_allocations(), 0U);
  EXPECT_FALSE(rig.governor().books().over_released());
}

TEST(HostVirtualAllocatorStress, BatchesOverTheSameAllocationsInAnyOrderEnd) {
  test::AllocatorRig rig({.granule = page_size()});
  const AllocationSpan one = rig.reserve(page_size() * 8);
  const AllocationSpan two = rig.reserve(page_size() * 8);
  std::atomic<unsigned> wrong{0};

  on_all_threads([&](unsigned number) {
    const std::array forward{AllocationCommitRange{.allocation = one, .range = part(0, 4)},
                             AllocationCommitRange{.allocation = two, .range = part(2, 4)}};
    const std::array backward{AllocationCommitRange{.allocation = two, .range = part(3, 4)},
                              AllocationCommitRange{.allocation = one, .range = part(1, 4)}};
    for (unsigned round = 0; round < rounds; ++round) {
      const auto& batch = (number + round) % 2 == 0 ? forward : backward;
      wrong += rig.backing().commit_all(batch) ? 0U : 1U;
      wrong += rig.backing().decommit(number % 2 == 0 ? one : two, part(0, 8)) ? 0U : 1U;
      wrong += rig.backing().committed_bytes(one) <= page_size() * 8 ? 0U : 1U;
    }
  });

  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(rig.used(), rig.backing().committed_bytes(one) + rig.backing().committed_bytes(two));
  EXPECT_TRUE(rig.allocator().release(one).is_complete());
  EXPECT_TRUE(rig.allocator().release(two).is_complete());
  EXPECT_EQ(rig.used(), Bytes{});
}

TEST(HostVirtualAllocatorStress, OneOfEightReleasesOfAnAllocationCompletes) {
  test::AllocatorRig rig({.granule = page_size()});
  for (unsigned round = 0; round < rounds; ++round) {
    const AllocationSpan span = rig.reserve(page_size() * 4);
    ASSERT_TRUE(rig.backing().commit(span, part(0, 4)).has_value());
    std::atomic<unsigned> complete{0};
    std::atomic<unsigned> refused{0};

    on_all_threads([&](unsigned number) {
      if (number % 2 == 0) {
        const MechanismRelease answer = rig.allocator().release(span);
        complete += answer.is_complete() ? 1U : 0U;
        refused += answer.is_unchanged() ? 1U : 0U;
      } else {
        // Whether this is before or after the release, it must be an answer and not a crash.
        static_cast<void>(rig.backing().commit(span, part(0, 2)));
        static_cast<void>(rig.backing().committed_bytes(span));
      }
    });

    ASSERT_EQ(complete, 1U);
    ASSERT_EQ(refused, threads_at_work / 2 - 1);
    ASSERT_EQ(rig.used(), Bytes{});
  }
}

TEST(HostVirtualAllocatorStress, ManyReadersShareOnePrefixThatEndsWithTheLast) {
  test::AllocatorRig rig({.granule = page_size()});
  auto made = rig.mapping().create_shared_prefix(page_size() * 2);
  ASSERT_TRUE(made.has_value());
  std::shared_ptr<SharedDevicePrefix> prefix = std::move(*made);
  test::fill(prefix->address(), page_size() * 2, 0xE1);
  ASSERT_TRUE(prefix->seal().has_value());
  std::atomic<unsigned> wrong{0};

  on_all_threads([&](unsigned number) {
    const std::shared_ptr<SharedDevicePrefix> mine = prefix;
    for (unsigned round = 0; round < rounds; ++round) {
      const AllocationSpan span = rig.reserve(page_size() * 4);
      wrong += rig.mapping().commit_shared_prefix(*mine, span, page_size()) ? 0U : 1U;
      wrong += test::holds_only(span.address + page_size(), page_size() * 2, 0xE1) ? 0U : 1U;
      if (number % 2 == 0) {
        wrong += rig.mapping().break_shared(span, part(1, 1)) ? 0U : 1U;
        test::fill(span.address + page_size(), page_size(), 0x1E);
      }
      wrong += rig.allocator().release(span).is_complete() ? 0U : 1U;
    }
  });

  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(rig.used(), page_size() * 2);
  prefix = nullptr;
  EXPECT_EQ(rig.used(), Bytes{});
}

}  // namespace
}  // namespace memstrata::host
