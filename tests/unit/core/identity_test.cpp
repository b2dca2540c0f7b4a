// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/identity.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <thread>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata {
namespace {

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

// B-007
TEST(DeviceKey, DevicesOfOneTierDifferByIndex) {
  EXPECT_NE(DeviceKey::device(0), DeviceKey::device(1));
  EXPECT_EQ(DeviceKey::device(1).tier, Tier::device);
  EXPECT_EQ(DeviceKey::host(), (DeviceKey{.tier = Tier::host, .index = 0}));
  EXPECT_NE(DeviceKey::host(), DeviceKey::device(0));
}

TEST(DeviceKey, HashesDifferByTierAndIndex) {
  const std::hash<DeviceKey> hash;

  EXPECT_NE(hash(DeviceKey::device(0)), hash(DeviceKey::device(1)));
  EXPECT_NE(hash(DeviceKey::device(0)), hash(DeviceKey::host()));
  EXPECT_EQ(hash(DeviceKey::host()), hash(DeviceKey::host()));
}

TEST(DeviceAddress, IsANumberThatAddsBytes) {
  const DeviceAddress address{0x1000};

  EXPECT_EQ((address + 16_B).value(), 0x1010U);
  EXPECT_LT(address, address + 1_B);
  EXPECT_TRUE(DeviceAddress{}.is_null());
  EXPECT_FALSE(address.is_null());
}

TEST(DeviceAddressDeathTest, ASumThatWrapsStopsTheProgram) {
  EXPECT_DEATH(static_cast<void>(DeviceAddress{largest} + 1_B), "sum of bytes wraps");
}

TEST(SerialSource, StartsAtOneAndCountsUp) {
  SerialSource source;

  EXPECT_EQ(source.issue(), 1U);
  EXPECT_EQ(source.issue(), 2U);
}

TEST(SerialSource, IsUsedUpForEverAndNeverIssuesTheLargestNumber) {
  SerialSource source(largest - 1);

  EXPECT_EQ(source.issue(), largest - 1);
  EXPECT_EQ(source.issue(), std::nullopt);
  EXPECT_EQ(source.issue(), std::nullopt);
}

//
TEST(SerialSource, IsExhaustedOnlyAfterTheFirstRefusal) {
  SerialSource source(largest - 1);
  EXPECT_FALSE(source.exhausted());
  ASSERT_TRUE(source.issue().has_value());
  EXPECT_FALSE(source.exhausted());

  ASSERT_FALSE(source.issue().has_value());

  EXPECT_TRUE(source.exhausted());
}

TEST(SerialSource, ARunFollowsTheSerialsBeforeIt) {
  SerialSource source;
  ASSERT_EQ(source.issue(), 1U);

  const auto run = source.issue_run(5);

  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->first, 2U);
  EXPECT_EQ(run->count, 5U);
  EXPECT_EQ(source.issue(), 7U);
}

//
TEST(SerialSource, TheLastRunIsCutAndNeverHoldsTheLargestNumber) {
  SerialSource source(largest - 3);

  const auto run = source.issue_run(64);

  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->first, largest - 3);
  EXPECT_EQ(run->count, 3U);
  EXPECT_FALSE(source.exhausted());
  EXPECT_FALSE(source.issue_run(64).has_value());
  EXPECT_FALSE(source.issue_run(1).has_value());
  EXPECT_TRUE(source.exhausted());
}

TEST(SerialSource, ThreadsNeverGetTheSameNumber) {
  constexpr std::size_t threads = 4;
  constexpr std::size_t each = 2000;
  SerialSource source;
  std::array<std::vector<std::uint64_t>, threads> got;
  std::vector<std::jthread> running;

  for (std::size_t t = 0; t < threads; ++t) {
    running.emplace_back([&source, &mine = got[t]] {
      for (std::size_t i = 0; i < each; ++i) {
        mine.push_back(source.issue().value_or(0));
      }
    });
  }
  running.clear();

  std::unordered_set<std::uint64_t> all;
  for (const auto& mine : got) {
    all.insert(mine.begin(), mine.end());
    EXPECT_TRUE(std::ranges::is_sorted(mine));
  }
  EXPECT_EQ(all.size(), threads * each);
  EXPECT_FALSE(all.contains(0));
}

// W-18
TEST(MemoryAuthorityId, EachIsANewOneEvenForTheSameDevice) {
  const auto first = MemoryAuthorityId::issue(DeviceKey::device(0));
  const auto second = MemoryAuthorityId::issue(DeviceKey::device(0));
  const MemoryAuthorityId copy = first;

  EXPECT_NE(first, second);
  EXPECT_EQ(first, copy);
  EXPECT_EQ(first.device, DeviceKey::device(0));
  EXPECT_NE(first.serial, 0U);
}

TEST(IdentitySource, NoTwoIdentitiesOfOneRegistryShareASerial) {
  IdentitySource source(3);

  const auto context = source.issue<ProviderContextIdentity>();
  const auto mechanism = source.issue<MechanismIdentity>();
  const auto binding = source.issue<BindingId>();

  ASSERT_TRUE(context && mechanism && binding);
  EXPECT_EQ(context->serial(), 1U);
  EXPECT_EQ(mechanism->serial(), 2U);
  EXPECT_EQ(binding->serial(), 3U);
  EXPECT_EQ(binding->registry(), 3U);
}

TEST(IdentitySource, AnIdentityIsRestoredFromASerialOfARun) {
  IdentitySource source(3);

  const auto run = source.issue_run(2);

  ASSERT_TRUE(run.has_value());
  const auto restored = source.restore<AllocationGeneration>(run->first + 1);
  EXPECT_EQ(restored.registry(), 3U);
  EXPECT_EQ(restored.serial(), 2U);
  EXPECT_EQ(source.issue<BindingId>()->serial(), 3U);
  EXPECT_FALSE(source.exhausted());
}

TEST(IdentitySource, EqualSerialsOfTwoRegistriesAreDifferentIdentities) {
  IdentitySource first(1);
  IdentitySource second(2);

  const auto a = first.issue<BindingId>();
  const auto b = second.issue<BindingId>();

  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->serial(), b->serial());
  EXPECT_NE(*a, *b);
  EXPECT_NE(std::hash<BindingId>{}(*a), std::hash<BindingId>{}(*b));
}

TEST(IdentitySource, OneBelowTheMaximumIssuesOnceAndThenNothingOfAnyKind) {
  IdentitySource source(1, largest - 1);

  EXPECT_TRUE(source.issue<AllocationGeneration>().has_value());
  EXPECT_FALSE(source.issue<AllocationGeneration>().has_value());
  EXPECT_FALSE(source.issue<BindingId>().has_value());
}

// W-18
TEST(OpaqueId, KindsCannotBeMixedUpOrMadeByHand) {
  EXPECT_FALSE((std::is_convertible_v<MemoryAuthorityId, AuthorityIdentity>));
  EXPECT_FALSE((std::is_convertible_v<AuthorityIdentity, MemoryAuthorityId>));
  EXPECT_FALSE((std::is_convertible_v<BindingId, MechanismIdentity>));
  EXPECT_FALSE((std::is_constructible_v<BindingId, std::uint64_t, std::uint64_t>));
  EXPECT_FALSE((std::is_default_constructible_v<BindingId>));
}

}  // namespace
}  // namespace memstrata
