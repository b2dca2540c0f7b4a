// SPDX-License-Identifier: Apache-2.0
// Ranges and buffers over real memory: what the kernel and the processor see.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "memstrata/contract/platform_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"
#include "memstrata/structure/virtual_buffer.hpp"
#include "memstrata/structure/virtual_range.hpp"
#include "support/resident_bytes.hpp"
#include "support/scripted_governor.hpp"
#include "support/sim_rig.hpp"

namespace memstrata {
namespace {

using host::PageBacking;
using test::granules;
using test::is_readable;
using test::resident_bytes;

constexpr Bytes g = 64_KiB;
constexpr LeaseTerms host_terms{.tier = Tier::host,
                                .role = MemoryRole::kv_cache,
                                .holder = HolderId{1}};

/// A host backing of 64 KiB granules and books for it.
class HostStructure : public testing::Test {
 protected:
  [[nodiscard]] VirtualBuffer<PageBacking> buffer(Bytes capacity) const {
    return VirtualBuffer<PageBacking>::create(backing, capacity, governor, host_terms).value();
  }

  [[nodiscard]] VirtualRange<PageBacking> range(Bytes length) const {
    return VirtualRange<PageBacking>::reserve(backing, length, governor, host_terms).value();
  }

  [[nodiscard]] Bytes used() const { return governor->usage(Tier::host).used; }

  std::shared_ptr<PageBacking> backing =
      std::make_shared<PageBacking>(PageBacking::create().value());
  std::shared_ptr<test::ScriptedGovernor> governor = test::ScriptedGovernor::with_limit(1_GiB);
};

[[nodiscard]] std::span<std::byte> bytes_of(VirtualRange<PageBacking>& range, ByteRange part) {
  return {range.data() + part.offset.value, part.size.value};
}

[[nodiscard]] std::span<std::byte> bytes_of(VirtualBuffer<PageBacking>& buffer, ByteRange part) {
  return {buffer.data() + part.offset.value, part.size.value};
}

void fill(std::span<std::byte> bytes, unsigned value) {
  std::ranges::fill(bytes, std::byte(value));
}

[[nodiscard]] bool holds_only(std::span<const std::byte> bytes, unsigned value) {
  return std::ranges::all_of(bytes, [&](std::byte b) { return b == std::byte(value); });
}

// B-089
TEST_F(HostStructure, APatternOverTwoGranulesCommittedApartReadsBack) {
  auto two = range(g * 2);
  ASSERT_TRUE(two.commit(granules(g, 0, 1)).has_value());
  ASSERT_TRUE(two.commit(granules(g, 1, 1)).has_value());
  const auto bytes = bytes_of(two, granules(g, 0, 2));

  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = std::byte(i % 251);
  }

  std::size_t wrong = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    wrong += bytes[i] == std::byte(i % 251) ? 0U : 1U;
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(two.committed(), g * 2);
}

// B-090
TEST_F(HostStructure, DecommittingOneGranuleLeavesItsNeighbourIntact) {
  auto two = range(g * 2);
  ASSERT_TRUE(two.commit(granules(g, 0, 2)).has_value());
  fill(bytes_of(two, granules(g, 0, 1)), 0x11);
  fill(bytes_of(two, granules(g, 1, 1)), 0x22);

  ASSERT_TRUE(two.decommit(granules(g, 1, 1)).has_value());

  EXPECT_TRUE(holds_only(bytes_of(two, granules(g, 0, 1)), 0x11));
  EXPECT_EQ(two.committed(), g);
  EXPECT_EQ(resident_bytes(two.base(), g * 2), g);
}

// B-091
TEST_F(HostStructure, AVeryLargeReservationHasNoMemory) {
  const auto large = range(g * 65536);

  EXPECT_EQ(large.size(), g * 65536);
  EXPECT_EQ(large.committed(), Bytes{});
  EXPECT_EQ(used(), Bytes{});
}

// B-096
TEST_F(HostStructure, TheGranuleIsAPowerOfTwoAndOneCanBeReservedAndCommitted) {
  auto one = range(backing->granularity());

  EXPECT_TRUE(is_power_of_two(one.granularity().value));
  EXPECT_TRUE(one.commit({.offset = {}, .size = one.granularity()}).has_value());
}

// B-098
TEST_F(HostStructure, GranulesInAnyOrderReadTheirOwn) {
  auto five = range(g * 5);

  for (const unsigned granule : {3U, 0U, 4U}) {
    ASSERT_TRUE(five.commit(granules(g, granule, 1)).has_value());
    fill(bytes_of(five, granules(g, granule, 1)), granule + 1);
  }

  for (const unsigned granule : {3U, 0U, 4U}) {
    EXPECT_TRUE(holds_only(bytes_of(five, granules(g, granule, 1)), granule + 1));
  }
  EXPECT_EQ(five.committed(), g * 3);
}

//
TEST_F(HostStructure, WhatIsNotCommittedCannotBeTouched) {
  auto three = range(g * 3);
  ASSERT_TRUE(three.commit(granules(g, 0, 2)).has_value());
  ASSERT_TRUE(three.decommit(granules(g, 1, 1)).has_value());

  EXPECT_TRUE(is_readable(three.base()));
  EXPECT_FALSE(is_readable(three.base() + g));
  EXPECT_FALSE(is_readable(three.base() + g * 2));
}

//
TEST_F(HostStructure, AGranuleThatIsCommittedAgainReadsZero) {
  auto one = range(g);
  ASSERT_TRUE(one.commit(granules(g, 0, 1)).has_value());
  fill(bytes_of(one, granules(g, 0, 1)), 0xAB);
  ASSERT_TRUE(one.decommit(granules(g, 0, 1)).has_value());

  ASSERT_TRUE(one.commit(granules(g, 0, 1)).has_value());

  EXPECT_TRUE(holds_only(bytes_of(one, granules(g, 0, 1)), 0));
}

// B-101, B-104
TEST_F(HostStructure, GrowthKeepsBaseAndContent) {
  auto growing = buffer(64_MiB);
  ASSERT_TRUE(growing.grow_to(4096_B).has_value());
  std::byte* const base = growing.data();
  fill(bytes_of(growing, {.offset = {}, .size = 4096_B}), 0xC7);

  ASSERT_TRUE(growing.grow_to(4_MiB).has_value());

  EXPECT_EQ(growing.data(), base);
  EXPECT_TRUE(holds_only(bytes_of(growing, {.offset = {}, .size = 4096_B}), 0xC7));
  EXPECT_TRUE(holds_only(bytes_of(growing, {.offset = 4096_B, .size = 4_MiB - 4096_B}), 0));
}

// B-108
TEST_F(HostStructure, AfterARefusedGrowthTheCommittedGranuleIsStillWritable) {
  const auto small = test::ScriptedGovernor::with_limit(g);
  auto growing = VirtualBuffer<PageBacking>::create(backing, 64_MiB, small, host_terms).value();
  ASSERT_TRUE(growing.grow_to(1_B).has_value());

  const auto refused = growing.grow_to(32_MiB);

  EXPECT_FALSE(refused.has_value());
  EXPECT_EQ(growing.committed(), g);
  EXPECT_EQ(small->usage(Tier::host).available, Bytes{});
  fill(bytes_of(growing, {.offset = {}, .size = g}), 0x5A);
  EXPECT_TRUE(holds_only(bytes_of(growing, {.offset = {}, .size = g}), 0x5A));
}

// X-030, W-7
TEST_F(HostStructure, WhatWasGrownInOneStepIsShrunkInsideAndGrownAgainAsZero) {
  auto growing = buffer(8_MiB);
  ASSERT_TRUE(growing.grow_to(g * 4).has_value());
  fill(bytes_of(growing, granules(g, 0, 4)), 0xEE);
  ASSERT_EQ(resident_bytes(growing.base(), g * 4), g * 4);

  ASSERT_TRUE(growing.shrink_to(g * 2).has_value());

  EXPECT_EQ(resident_bytes(growing.base() + g * 2, g * 2), Bytes{});
  EXPECT_EQ(used(), g * 2);
  ASSERT_TRUE(growing.grow_to(g * 4).has_value());
  EXPECT_TRUE(holds_only(bytes_of(growing, granules(g, 0, 2)), 0xEE));
  EXPECT_TRUE(holds_only(bytes_of(growing, granules(g, 2, 2)), 0));
}

// B-109
TEST_F(HostStructure, ADestroyedBufferLeavesNoMemoryAndNoCharge) {
  DeviceAddress base;
  {
    auto growing = buffer(8_MiB);
    ASSERT_TRUE(growing.grow_to(4_MiB).has_value());
    base = growing.base();
  }

  EXPECT_FALSE(is_readable(base));
  EXPECT_EQ(used(), Bytes{});
}

// B-099
TEST_F(HostStructure, ABackingThatKeepsATailPaysAndTheBufferDoesNot) {
  host::PageBackingOptions options;
  options.retained_tail = g * 2;
  options.governor = governor;
  const auto paying = std::make_shared<PageBacking>(PageBacking::create(options).value());
  auto growing = VirtualBuffer<PageBacking>::create(paying, 8_MiB, governor, host_terms).value();
  ASSERT_TRUE(growing.grow_to(g * 4).has_value());
  EXPECT_EQ(growing.leased(), Bytes{});
  EXPECT_EQ(used(), g * 4);

  ASSERT_TRUE(growing.shrink_to(g).has_value());

  EXPECT_EQ(growing.committed(), g);
  EXPECT_EQ(used(), g * 3);  // the tail is held and charged
  EXPECT_TRUE(growing.validate());
}

TEST_F(HostStructure, AnAttachedPrefixIsReadButNotWrittenUntilItIsBroken) {
  auto builder = backing->create_prefix(g * 2).value();
  fill({builder.data(), (g * 2).value}, 0x77);
  const auto prefix = builder.seal().value();
  auto first = buffer(8_MiB);
  auto second = buffer(8_MiB);
  ASSERT_TRUE(first.attach(prefix).has_value());
  ASSERT_TRUE(second.attach(prefix).has_value());
  ASSERT_TRUE(first.grow_to(g * 3).has_value());

  ASSERT_TRUE(first.break_shared({.offset = g, .size = 1_B}).has_value());
  fill(bytes_of(first, granules(g, 1, 2)), 0x99);

  EXPECT_TRUE(holds_only(bytes_of(first, granules(g, 0, 1)), 0x77));
  EXPECT_TRUE(holds_only(bytes_of(second, granules(g, 0, 2)), 0x77));
  EXPECT_FALSE(test::kernel_access(first.base()).writable);
  EXPECT_TRUE(test::kernel_access(first.base() + g).writable);
  EXPECT_EQ(first.committed(), g * 2);
  EXPECT_EQ(first.shared_bytes(), g);
  EXPECT_TRUE(first.validate());
}

}  // namespace
}  // namespace memstrata
