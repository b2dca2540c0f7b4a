// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "support/scripted_governor.hpp"

namespace memstrata {
namespace {

using test::BooksCall;
using test::ScriptedGovernor;

constexpr HolderId holder{7};

/// A governor of 1000 bytes a tier, used through its abstract type.
class LeaseFixture {
 public:
  [[nodiscard]] Result<MemoryLease> reserve(Bytes bytes, Tier tier = Tier::host) {
    return abstract().reserve(tier, bytes, MemoryRole::kv_cache, holder);
  }

  [[nodiscard]] MemoryGovernor& abstract() { return *governor_; }

  [[nodiscard]] ScriptedGovernor& scripted() { return *governor_; }

  [[nodiscard]] Bytes available(Tier tier = Tier::host) { return abstract().available(tier); }

  void drop_governor() { governor_ = nullptr; }

 private:
  std::shared_ptr<ScriptedGovernor> governor_ = ScriptedGovernor::with_limit(1000_B);
};

/// Books that count their leases instead of being shared by each.
class CountingBooks final : public LeaseAccounting {
 public:
  [[nodiscard]] Result<void> try_claim(Tier, Bytes bytes, MemoryRole) override {
    used += bytes;
    return {};
  }

  void release(Tier, Bytes bytes) noexcept override { used -= bytes; }

  void retain(Tier) noexcept override { ++leases; }

  void settle(Tier tier, Bytes bytes) noexcept override {
    LeaseAccounting::settle(tier, bytes);
    --leases;
  }

  Bytes used;
  int leases = 0;
};

/// Books that grant everything and remember nothing.
class ForgetfulBooks final : public LeaseAccounting {
 public:
  [[nodiscard]] Result<void> try_claim(Tier, Bytes, MemoryRole) override { return {}; }

  void release(Tier, Bytes) noexcept override {}
};

static_assert(!std::is_copy_constructible_v<MemoryLease>);
static_assert(std::is_nothrow_move_constructible_v<MemoryLease>);
static_assert(std::is_nothrow_move_assignable_v<MemoryLease>);

// G-039
TEST(MemoryLease, ADroppedLeaseGivesItsBytesBackInOneCall) {
  LeaseFixture fixture;
  {
    const auto lease = fixture.reserve(400_B);
    ASSERT_TRUE(lease.has_value());
    EXPECT_EQ(fixture.available(), 600_B);
  }

  EXPECT_EQ(fixture.available(), 1000_B);
  EXPECT_EQ(fixture.scripted().books().count(BooksCall::Kind::release), 1U);
}

// G-040
TEST(MemoryLease, ARefusalLeavesTheBooksAndOtherLeasesAlone) {
  LeaseFixture fixture;
  const auto held = fixture.reserve(900_B);
  ASSERT_TRUE(held.has_value());

  const auto refused = fixture.reserve(200_B);

  ASSERT_FALSE(refused.has_value());
  const auto* exhausted = std::get_if<TierExhausted>(&refused.error().kind);
  ASSERT_NE(exhausted, nullptr);
  EXPECT_EQ(exhausted->requested, 200_B);
  EXPECT_EQ(exhausted->used, 900_B);
  EXPECT_EQ(exhausted->limit, 1000_B);
  EXPECT_EQ(exhausted->available, 100_B);
  EXPECT_EQ(fixture.available(), 100_B);
  EXPECT_EQ(held->bytes(), 900_B);
}

// G-041
TEST(MemoryLease, GrowthTakesOnlyTheDifference) {
  LeaseFixture fixture;
  auto lease = fixture.reserve(100_B);
  ASSERT_TRUE(lease.has_value());

  ASSERT_TRUE(lease->grow(300_B).has_value());

  EXPECT_EQ(lease->bytes(), 400_B);
  EXPECT_EQ(fixture.available(), 600_B);
}

// G-041
TEST(MemoryLease, RefusedGrowthChangesNothing) {
  LeaseFixture fixture;
  auto lease = fixture.reserve(400_B);
  ASSERT_TRUE(lease.has_value());

  const auto refused = lease->grow(10000_B);

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<TierExhausted>(refused.error().kind));
  EXPECT_EQ(lease->bytes(), 400_B);
  EXPECT_EQ(fixture.available(), 600_B);
}

// G-042
TEST(MemoryLease, AGovernorWithoutATierRefusesItWithNothingAvailable) {
  const auto governor =
      std::make_shared<ScriptedGovernor>(std::array<Bytes, tier_count>{0_B, 1000_B, 1000_B});
  MemoryGovernor& abstract = *governor;

  const auto refused = abstract.reserve(Tier::device, 8_B, MemoryRole::weights, holder);

  ASSERT_FALSE(refused.has_value());
  const auto* exhausted = std::get_if<TierExhausted>(&refused.error().kind);
  ASSERT_NE(exhausted, nullptr);
  EXPECT_EQ(exhausted->available, 0_B);
  EXPECT_EQ(abstract.available(Tier::device), 0_B);
}

// G-043
TEST(MemoryLease, ThroughTheAbstractTypeItKnowsTierHolderAndRole) {
  const std::shared_ptr<ScriptedGovernor> governor = ScriptedGovernor::with_limit(64_B);
  MemoryGovernor& abstract = *governor;

  const auto lease = abstract.reserve(Tier::disk, 32_B, MemoryRole::workspace(true), HolderId{12});

  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(lease->tier(), Tier::disk);
  EXPECT_EQ(lease->holder(), HolderId{12});
  EXPECT_EQ(lease->role(), MemoryRole::workspace(true));
  EXPECT_EQ(lease->authority(), abstract.authority_id());
  EXPECT_EQ(abstract.available(Tier::disk), 32_B);
}

TEST(MemoryLease, GrowingByZeroNeedsNoCall) {
  LeaseFixture fixture;
  auto lease = fixture.reserve(1000_B);
  ASSERT_TRUE(lease.has_value());
  const auto calls = fixture.scripted().books().calls().size();

  EXPECT_TRUE(lease->grow(0_B).has_value());

  EXPECT_EQ(fixture.scripted().books().calls().size(), calls);
}

TEST(MemoryLease, GrowthBeyond64BitsIsAnInvalidRequestAndNoCall) {
  LeaseFixture fixture;
  auto lease = fixture.reserve(10_B);
  ASSERT_TRUE(lease.has_value());
  const auto calls = fixture.scripted().books().calls().size();

  const auto refused = lease->grow(Bytes::max());

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<InvalidRequest>(refused.error().kind));
  EXPECT_EQ(lease->bytes(), 10_B);
  EXPECT_EQ(fixture.scripted().books().calls().size(), calls);
}

TEST(MemoryLease, ShrinkingIsClampedAndNeverInventsCapacity) {
  LeaseFixture fixture;
  auto lease = fixture.reserve(600_B);
  ASSERT_TRUE(lease.has_value());

  EXPECT_EQ(lease->shrink(200_B), 200_B);
  EXPECT_EQ(fixture.available(), 600_B);
  EXPECT_EQ(lease->shrink(9999_B), 400_B);
  EXPECT_EQ(lease->shrink(1_B), 0_B);

  EXPECT_EQ(lease->bytes(), 0_B);
  EXPECT_EQ(fixture.available(), 1000_B);
  EXPECT_FALSE(fixture.scripted().books().over_released());
}

TEST(MemoryLease, AnEmptyLeaseSettlesWithoutARelease) {
  LeaseFixture fixture;
  {
    const auto lease = fixture.reserve(0_B);
    ASSERT_TRUE(lease.has_value());
  }

  EXPECT_TRUE(fixture.scripted().books().calls().empty());
}

TEST(MemoryLease, SplittingIsChargeNeutralAndNeedsNoFreeCapacity) {
  LeaseFixture fixture;
  auto lease = fixture.reserve(1000_B);
  ASSERT_TRUE(lease.has_value());
  const auto calls = fixture.scripted().books().calls().size();

  auto part = lease->split(300_B);

  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(lease->bytes(), 700_B);
  EXPECT_EQ(part->bytes(), 300_B);
  EXPECT_EQ(part->holder(), holder);
  EXPECT_EQ(part->role(), MemoryRole::kv_cache);
  EXPECT_EQ(fixture.scripted().books().calls().size(), calls);
  EXPECT_EQ(fixture.available(), 0_B);
}

TEST(MemoryLease, BothHalvesOfASplitGiveTheirOwnBytesBack) {
  LeaseFixture fixture;
  {
    auto lease = fixture.reserve(1000_B);
    ASSERT_TRUE(lease.has_value());
    {
      const auto part = lease->split(300_B);
      ASSERT_TRUE(part.has_value());
    }
    EXPECT_EQ(fixture.available(), 300_B);
  }

  EXPECT_EQ(fixture.available(), 1000_B);
  EXPECT_FALSE(fixture.scripted().books().over_released());
}

TEST(MemoryLease, APartLargerThanTheLeaseCannotBeCut) {
  LeaseFixture fixture;
  auto lease = fixture.reserve(100_B);
  ASSERT_TRUE(lease.has_value());

  const auto refused = lease->split(101_B);

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<InvalidRequest>(refused.error().kind));
  EXPECT_EQ(lease->bytes(), 100_B);
}

TEST(MemoryLease, ASiblingIsASecondChargeOfTheSameKind) {
  LeaseFixture fixture;
  const auto lease = fixture.reserve(400_B);
  ASSERT_TRUE(lease.has_value());

  const auto sibling = lease->reserve_sibling(300_B);

  ASSERT_TRUE(sibling.has_value());
  EXPECT_EQ(sibling->bytes(), 300_B);
  EXPECT_EQ(sibling->holder(), holder);
  EXPECT_EQ(lease->bytes(), 400_B);
  EXPECT_EQ(fixture.available(), 300_B);
}

TEST(MemoryLease, ARefusedSiblingChangesNothing) {
  LeaseFixture fixture;
  const auto lease = fixture.reserve(900_B);
  ASSERT_TRUE(lease.has_value());

  const auto refused = lease->reserve_sibling(200_B);

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<TierExhausted>(refused.error().kind));
  EXPECT_EQ(fixture.available(), 100_B);
}

TEST(MemoryLease, AbsorbingMovesTheChargeWithoutACall) {
  LeaseFixture fixture;
  auto lease = fixture.reserve(400_B);
  ASSERT_TRUE(lease.has_value());
  auto sibling = lease->reserve_sibling(300_B);
  ASSERT_TRUE(sibling.has_value());
  const auto calls = fixture.scripted().books().calls().size();

  ASSERT_TRUE(lease->absorb(*sibling).has_value());

  EXPECT_EQ(lease->bytes(), 700_B);
  EXPECT_EQ(sibling->bytes(), 0_B);
  EXPECT_FALSE(sibling->grow(1_B).has_value());
  EXPECT_EQ(fixture.scripted().books().calls().size(), calls);
}

/// Expects that `lease` refuses `other` and that both are as before.
void expect_not_absorbed(MemoryLease& lease, MemoryLease& other) {
  const Bytes before = lease.bytes();
  const Bytes others = other.bytes();

  const auto refused = lease.absorb(other);

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<InvalidRequest>(refused.error().kind));
  EXPECT_EQ(lease.bytes(), before);
  EXPECT_EQ(other.bytes(), others);
}

TEST(MemoryLease, OnlyALeaseOfTheSameKindAndBooksIsAbsorbed) {
  LeaseFixture fixture;
  LeaseFixture elsewhere;
  MemoryGovernor& governor = fixture.abstract();
  auto lease = fixture.reserve(100_B);
  auto other_tier = fixture.reserve(100_B, Tier::disk);
  auto other_role = governor.reserve(Tier::host, 100_B, MemoryRole::weights, holder);
  auto other_holder = governor.reserve(Tier::host, 100_B, MemoryRole::kv_cache, HolderId{8});
  auto other_books = elsewhere.reserve(100_B);
  ASSERT_TRUE(lease && other_tier && other_role && other_holder && other_books);

  expect_not_absorbed(*lease, *other_tier);
  expect_not_absorbed(*lease, *other_role);
  expect_not_absorbed(*lease, *other_holder);
  expect_not_absorbed(*lease, *other_books);
  expect_not_absorbed(*lease, *lease);
}

TEST(MemoryLease, ASumBeyond64BitsIsNotAbsorbed) {
  const auto books = std::make_shared<ForgetfulBooks>();
  auto lease = MemoryLease::adopt(Tier::host, Bytes::max(), MemoryRole::kv_cache, holder, books);
  auto other = MemoryLease::adopt(Tier::host, 1_B, MemoryRole::kv_cache, holder, books);

  expect_not_absorbed(lease, other);
}

TEST(MemoryLease, AMovedFromLeaseHoldsNothingAndRefuses) {
  LeaseFixture fixture;
  auto first = fixture.reserve(100_B);
  ASSERT_TRUE(first.has_value());
  const MemoryLease second = std::move(*first);

  // NOLINTBEGIN(bugprone-use-after-move): a moved-from lease has a stated behaviour
  EXPECT_EQ(first->bytes(), 0_B);
  EXPECT_EQ(first->authority(), std::nullopt);
  EXPECT_FALSE(first->grow(1_B).has_value());
  EXPECT_FALSE(first->split(0_B).has_value());
  EXPECT_FALSE(first->reserve_sibling(1_B).has_value());
  EXPECT_EQ(first->shrink(5_B), 0_B);
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_EQ(second.bytes(), 100_B);
  EXPECT_EQ(fixture.available(), 900_B);
}

TEST(MemoryLease, AssigningGivesTheOldBytesBackFirst) {
  LeaseFixture fixture;
  auto first = fixture.reserve(100_B);
  auto second = fixture.reserve(300_B);
  ASSERT_TRUE(first && second);

  *first = std::move(*second);

  EXPECT_EQ(first->bytes(), 300_B);
  EXPECT_EQ(fixture.available(), 700_B);
}

TEST(MemoryLease, SelfAssignmentKeepsTheLease) {
  LeaseFixture fixture;
  auto lease = fixture.reserve(100_B);
  ASSERT_TRUE(lease.has_value());
  MemoryLease& alias = *lease;

  *lease = std::move(alias);

  EXPECT_EQ(lease->bytes(), 100_B);
  EXPECT_EQ(fixture.available(), 900_B);
}

TEST(MemoryLease, ItOutlivesTheGovernorThatGrantedIt) {
  LeaseFixture fixture;
  const auto books = fixture.scripted().share_books();
  {
    auto lease = fixture.reserve(100_B);
    ASSERT_TRUE(lease.has_value());
    fixture.drop_governor();

    ASSERT_TRUE(lease->grow(50_B).has_value());
    EXPECT_EQ(books->used(Tier::host), 150_B);
  }

  EXPECT_EQ(books->used(Tier::host), 0_B);
}

TEST(MemoryLease, BooksThatCountTheirLeasesSeeEachOneOnce) {
  CountingBooks books;
  {
    ASSERT_TRUE(books.try_claim(Tier::host, 100_B, MemoryRole::kv_cache).has_value());
    books.retain(Tier::host);
    auto lease =
        MemoryLease::adopt_retained(Tier::host, 100_B, MemoryRole::kv_cache, holder, books);
    EXPECT_EQ(books.leases, 1);
    {
      auto part = lease.split(40_B);
      auto sibling = lease.reserve_sibling(5_B);
      ASSERT_TRUE(part && sibling);
      EXPECT_EQ(books.leases, 3);
      ASSERT_TRUE(lease.absorb(*sibling).has_value());
      EXPECT_EQ(books.leases, 2);
    }
    EXPECT_EQ(books.leases, 1);
    EXPECT_EQ(books.used, 65_B);
  }

  EXPECT_EQ(books.leases, 0);
  EXPECT_EQ(books.used, 0_B);
}

TEST(MemoryLease, RecordedBytesMayExceedTheLimitAndShowAsOversubscription) {
  LeaseFixture fixture;
  const auto held = fixture.reserve(800_B);
  ASSERT_TRUE(held.has_value());
  {
    const auto recorded =
        fixture.abstract().record_committed(Tier::host, 500_B, MemoryRole::weights, holder);
    ASSERT_TRUE(recorded.has_value());
    EXPECT_EQ(fixture.abstract().usage(Tier::host).oversubscribed, 300_B);
    EXPECT_EQ(fixture.available(), 0_B);
  }

  EXPECT_EQ(fixture.abstract().usage(Tier::host).used, 800_B);
}

TEST(TierUsage, NamesEveryFieldWithItsUnit) {
  const TierUsage usage{
      .limit = 5_B, .used = 4_B, .promised = 3_B, .available = 2_B, .oversubscribed = 1_B};
  std::vector<std::pair<std::string, std::uint64_t>> seen;
  usage.for_each([&](const char* name, std::uint64_t value) { seen.emplace_back(name, value); });

  const std::vector<std::pair<std::string, std::uint64_t>> expected{{"limit_bytes", 5},
                                                                    {"used_bytes", 4},
                                                                    {"promised_bytes", 3},
                                                                    {"available_bytes", 2},
                                                                    {"oversubscribed_bytes", 1}};
  EXPECT_EQ(seen, expected);
}

}  // namespace
}  // namespace memstrata
