// SPDX-License-Identifier: Apache-2.0
#include "memstrata/mechanism/host/host_allocator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "support/resident_bytes.hpp"
#include "support/scripted_system_calls.hpp"

// The sanitizers answer a request beyond their own limit with null, as the heap does, instead of stopping.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): names that the sanitizers look for
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

extern "C" const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace memstrata::host {
namespace {

[[nodiscard]] std::byte* pointer(DeviceAddress address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): host memory
  return reinterpret_cast<std::byte*>(address.value());
}

/// Expects an answer that refuses and says that nothing was changed.
void expect_unchanged(const MechanismRelease& answer) {
  ASSERT_TRUE(answer.is_unchanged());
  EXPECT_FALSE(std::get<MechanismRelease::Unchanged>(answer.kind()).why.empty());
}

// B-003
TEST(HostAllocatorAllocate, AddressesAreMultiplesOfTheAlignment) {
  HostAllocator allocator;
  constexpr std::array shapes{std::pair{1_B, 64_B},
                              std::pair{100_B, 64_B},
                              std::pair{4096_B, 256_B},
                              std::pair{7_B, 8_B},
                              std::pair{1_B, 1_B},
                              std::pair{100_KiB, 2_MiB}};
  for (const auto& [bytes, alignment] : shapes) {
    const auto address = allocator.allocate(bytes, alignment);
    ASSERT_TRUE(address.has_value());

    EXPECT_TRUE(is_multiple(Bytes{address->value()}, alignment)) << alignment.value;

    EXPECT_TRUE(allocator.release({.address = *address, .bytes = bytes, .alignment = alignment})
                    .is_complete());
  }
}

// B-004
TEST(HostAllocatorAllocate, ZeroBytesGiveAnAddressThatCanBeReleased) {
  HostAllocator allocator;

  const auto address = allocator.allocate(0_B, 64_B);

  ASSERT_TRUE(address.has_value());
  EXPECT_FALSE(address->is_null());
  EXPECT_TRUE(
      allocator.release({.address = *address, .bytes = 0_B, .alignment = 64_B}).is_complete());
}

// B-005
TEST(HostAllocatorAllocate, AnAlignmentOfThreeIsRefusedWithItsReason) {
  HostAllocator allocator;

  const auto refused = allocator.allocate(64_B, 3_B);

  ASSERT_FALSE(refused.has_value());
  const auto* invalid = std::get_if<InvalidRequest>(&refused.error().kind);
  ASSERT_NE(invalid, nullptr);
  EXPECT_EQ(invalid->tier, Tier::host);
  EXPECT_EQ(invalid->requested, 64_B);
  EXPECT_NE(refused.error().message().find("power of two"), std::string::npos);
}

TEST(HostAllocatorAllocate, AnAlignmentOfZeroIsRefused) {
  HostAllocator allocator;

  const auto refused = allocator.allocate(64_B, 0_B);

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<InvalidRequest>(refused.error().kind));
}

//
TEST(HostAllocatorAllocate, ASizeThatRoundingOverflowsIsRefusedAndSaysSo) {
  HostAllocator allocator;
  constexpr Bytes largest{static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max())};
  for (const auto& [bytes, alignment] : {std::pair{Bytes::max(), 64_B},
                                         std::pair{largest, 64_B},
                                         std::pair{1_B, Bytes{1ULL << 63}}}) {
    const auto refused = allocator.allocate(bytes, alignment);

    ASSERT_FALSE(refused.has_value());
    EXPECT_TRUE(std::holds_alternative<InvalidRequest>(refused.error().kind));
    EXPECT_NE(refused.error().message().find("overflow"), std::string::npos);
  }
}

TEST(HostAllocatorAllocate, WhatTheHeapRefusesIsNotARefusalOfTheGovernor) {
  HostAllocator allocator;

  const auto refused = allocator.allocate(Bytes{1ULL << 62}, 64_B);

  ASSERT_FALSE(refused.has_value());
  const auto* failed = std::get_if<AllocationFailed>(&refused.error().kind);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->requested, Bytes{1ULL << 62});
  EXPECT_EQ(failed->code, ENOMEM);
  EXPECT_NE(refused.error().message().find("not a refusal of the governor"), std::string::npos);
  EXPECT_EQ(allocator.live_allocations(), 0U);
}

// B-006
TEST(HostAllocatorAllocate, LiveAllocationsKeepTheirOwnBytes) {
  HostAllocator allocator;
  const auto first = allocator.allocate(256_B, 64_B);
  const auto second = allocator.allocate(256_B, 64_B);
  ASSERT_TRUE(first && second);

  std::memset(pointer(*first), 0x11, 256);
  std::memset(pointer(*second), 0x22, 256);

  EXPECT_TRUE(std::all_of(
      pointer(*first), pointer(*first) + 256, [](std::byte b) { return b == std::byte{0x11}; }));
  EXPECT_TRUE(std::all_of(
      pointer(*second), pointer(*second) + 256, [](std::byte b) { return b == std::byte{0x22}; }));
}

// B-007
TEST(HostAllocator, IsOnTheHostAndHasNoCapability) {
  HostAllocator allocator;

  EXPECT_EQ(allocator.device(), DeviceKey::host());
  EXPECT_FALSE(allocator.commits_on_demand());
  EXPECT_EQ(allocator.virtual_backing(), nullptr);
  EXPECT_EQ(allocator.shared_mapping(), nullptr);
}

TEST(HostAllocatorAllocate, ALargeBlockIsResidentBeforeItIsTouched) {
  HostAllocator allocator;

  const auto address = allocator.allocate(4_MiB, 4096_B);

  ASSERT_TRUE(address.has_value());
  EXPECT_EQ(test::resident_bytes(*address, 4_MiB), 4_MiB);
}

TEST(HostAllocatorAllocate, ARefusalToFillInPagesCarriesCallAndCodeAndOwnsNothing) {
  const auto kernel = std::make_shared<test::ScriptedSystemCalls>();
  HostAllocator allocator(kernel);
  kernel->faults().fail_next("madvise");

  const auto refused = allocator.allocate(1_MiB, 64_B);

  ASSERT_FALSE(refused.has_value());
  const auto* failed = std::get_if<AllocationFailed>(&refused.error().kind);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(std::string(failed->call), "madvise");
  EXPECT_EQ(failed->code, ENOMEM);
  EXPECT_EQ(allocator.live_allocations(), 0U);
  EXPECT_TRUE(allocator.allocate(1_MiB, 64_B).has_value());
}

TEST(HostAllocatorAllocate, SmallBlocksNeedNoSystemCall) {
  const auto kernel = std::make_shared<test::ScriptedSystemCalls>();
  HostAllocator allocator(kernel);

  ASSERT_TRUE(allocator.allocate(HostAllocator::populate_from - 1_B, 64_B).has_value());

  EXPECT_EQ(kernel->faults().all_calls(), 0U);
}

/// One live allocation of 512 bytes.
struct LiveBlock {
  HostAllocator allocator;
  AllocationSpan span;

  LiveBlock() {
    const auto address = allocator.allocate(512_B, 64_B);
    span = {.address = *address, .bytes = 512_B, .alignment = 64_B};
  }
};

TEST(HostAllocatorRelease, CompletesWithNothingUnmapped) {
  LiveBlock live;

  const MechanismRelease answer = live.allocator.release(live.span);

  EXPECT_TRUE(answer.is_complete());
  EXPECT_EQ(answer.unmapped_bytes(), 0_B);
  EXPECT_EQ(live.allocator.live_allocations(), 0U);
}

TEST(HostAllocatorRelease, ASecondReleaseIsRefusedAndChangesNothing) {
  LiveBlock live;
  ASSERT_TRUE(live.allocator.release(live.span).is_complete());

  expect_unchanged(live.allocator.release(live.span));
}

TEST(HostAllocatorRelease, AnythingButTheExactSpanIsRefusedAndTheAllocationStaysLive) {
  LiveBlock live;
  const DeviceAddress address = live.span.address;
  for (const AllocationSpan& wrong :
       {AllocationSpan{.address = address, .bytes = 511_B, .alignment = 64_B},
        AllocationSpan{.address = address, .bytes = 512_B, .alignment = 128_B},
        AllocationSpan{.address = address + 64_B, .bytes = 512_B, .alignment = 64_B},
        AllocationSpan{.address = DeviceAddress{}, .bytes = 512_B, .alignment = 64_B}}) {
    expect_unchanged(live.allocator.release(wrong));
  }

  EXPECT_EQ(live.allocator.live_allocations(), 1U);
  EXPECT_TRUE(live.allocator.release(live.span).is_complete());
}

TEST(HostAllocatorRelease, AnAllocationOfAnotherAllocatorIsRefused) {
  LiveBlock live;
  HostAllocator other;

  expect_unchanged(other.release(live.span));

  EXPECT_TRUE(live.allocator.release(live.span).is_complete());
}

TEST(HostAllocator, DestructionGivesBackWhatIsStillLive) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers' heap keeps released blocks; their leak checker is the witness";
#endif
  // Larger than any block that the heap keeps for later.
  constexpr Bytes size = 64_MiB;
  DeviceAddress address;
  {
    HostAllocator allocator;
    const auto allocated = allocator.allocate(size, 4096_B);
    ASSERT_TRUE(allocated.has_value());
    address = *allocated;
    ASSERT_EQ(test::resident_bytes(address, size), size);
  }

  EXPECT_EQ(test::resident_bytes(address, size), 0_B);
}

TEST(HostAllocator, EightThreadsAllocateAndReleaseIndependently) {
  HostAllocator allocator;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&allocator, seed] {
      for (unsigned round = 0; round < 200; ++round) {
        const Bytes bytes{1 + (seed * 977 + round * 131) % 3000};
        const auto address = allocator.allocate(bytes, 64_B);
        ASSERT_TRUE(address.has_value());
        std::memset(pointer(*address), static_cast<int>(seed), bytes.value);
        ASSERT_EQ(pointer(*address)[bytes.value - 1], std::byte{static_cast<unsigned char>(seed)});
        ASSERT_TRUE(allocator.release({.address = *address, .bytes = bytes, .alignment = 64_B})
                        .is_complete());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }

  EXPECT_EQ(allocator.live_allocations(), 0U);
}

}  // namespace
}  // namespace memstrata::host
