// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/ledger_governor.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/lease_ledger.hpp"

namespace memstrata::ledger_governor_test {
namespace {

constexpr HolderId holder{7};
constexpr MemoryRole role = MemoryRole::kv_cache;

LedgerGovernor device_of(Bytes limit) {
  return {DeviceKey::device(0), TierLimits{}.with(Tier::device, limit)};
}

Result<MemoryLease> reserve(MemoryGovernor& governor, Bytes bytes) {
  return governor.reserve(Tier::device, bytes, role, holder);
}

Bytes used(const MemoryGovernor& governor) {
  return governor.usage(Tier::device).used;
}

std::optional<TierExhausted> exhausted(const Result<MemoryLease>& result) {
  if (result.has_value() || !std::holds_alternative<TierExhausted>(result.error().kind)) {
    return std::nullopt;
  }
  return std::get<TierExhausted>(result.error().kind);
}

// G-020
TEST(LedgerGovernorAuthority, IsTheLedgersAndNotTheDevices) {
  const auto shared = LeaseLedger::create(DeviceKey::device(0), TierLimits{});
  const LedgerGovernor first(shared);
  const LedgerGovernor second(shared);
  const LedgerGovernor other(DeviceKey::device(0), TierLimits{});

  EXPECT_EQ(first.authority_id(), second.authority_id());
  EXPECT_NE(first.authority_id(), other.authority_id());
  EXPECT_EQ(first.authority_id().device, DeviceKey::device(0));
}

// G-021
TEST(LedgerGovernorRecordCommitted, SucceedsAboveTheLimitAndComesBackWithTheLeases) {
  LedgerGovernor governor = device_of(10_B);
  std::optional leased = reserve(governor, 8_B).value();

  std::optional recorded = governor.record_committed(Tier::device, 5_B, role, holder).value();

  EXPECT_EQ(recorded->bytes(), 5_B);
  EXPECT_EQ(used(governor), 13_B);
  EXPECT_EQ(governor.available(Tier::device), 0_B);
  leased.reset();
  EXPECT_EQ(used(governor), 5_B);
  EXPECT_EQ(governor.available(Tier::device), 5_B);
  recorded.reset();
  EXPECT_EQ(used(governor), 0_B);
}

// G-021
TEST(LedgerGovernorRecordCommitted, BringsUsageBackToTheLeaseThatStays) {
  LedgerGovernor governor = device_of(10_B);
  const MemoryLease leased = reserve(governor, 8_B).value();

  {
    const auto recorded = governor.record_committed(Tier::device, 5_B, role, holder);
  }

  EXPECT_EQ(used(governor), 8_B);
  EXPECT_EQ(governor.available(Tier::device), 2_B);
}

// G-022
TEST(LedgerGovernorUsage, TellsByHowMuchTheTierIsOversubscribed) {
  LedgerGovernor governor = device_of(10_B);
  const MemoryLease leased = reserve(governor, 8_B).value();

  const auto recorded = governor.record_committed(Tier::device, 5_B, role, holder);

  const TierUsage usage = governor.usage(Tier::device);
  EXPECT_EQ(usage.oversubscribed, 3_B);
  EXPECT_EQ(usage.available, 0_B);
}

TEST(LedgerGovernorRecordCommitted, GrantsNothingFurtherUntilUsageIsUnderTheLimit) {
  LedgerGovernor governor = device_of(10_B);
  MemoryLease recorded = governor.record_committed(Tier::device, 13_B, role, holder).value();

  EXPECT_FALSE(reserve(governor, 1_B).has_value());
  EXPECT_EQ(recorded.shrink(3_B), 3_B);
  EXPECT_FALSE(reserve(governor, 1_B).has_value());
  EXPECT_EQ(recorded.shrink(1_B), 1_B);
  EXPECT_TRUE(reserve(governor, 1_B).has_value());
}

TEST(LedgerGovernorRecordCommitted, RefusesASumThatTheBooksCannotCount) {
  LedgerGovernor governor = device_of(10_B);
  const MemoryLease leased = reserve(governor, 8_B).value();

  for (const Bytes absurd : {Bytes::max(), TierBook::largest_figure}) {
    const auto refused = governor.record_committed(Tier::device, absurd, role, holder);
    ASSERT_FALSE(refused.has_value());
    const auto* invalid = std::get_if<InvalidRequest>(&refused.error().kind);
    ASSERT_NE(invalid, nullptr);
    EXPECT_EQ(invalid->tier, Tier::device);
    EXPECT_EQ(invalid->requested, absurd);
  }
  EXPECT_EQ(used(governor), 8_B);
}

// G-023
TEST(LedgerGovernorLease, ShrinksByWhatItHoldsAndGivesNothingBackTwice) {
  LedgerGovernor governor = device_of(1000_B);
  {
    MemoryLease lease = reserve(governor, 600_B).value();

    EXPECT_EQ(lease.shrink(200_B), 200_B);
    EXPECT_EQ(used(governor), 400_B);
    EXPECT_EQ(lease.bytes(), 400_B);
    EXPECT_EQ(lease.shrink(9999_B), 400_B);
    EXPECT_EQ(used(governor), 0_B);
  }
  EXPECT_EQ(used(governor), 0_B);
  EXPECT_EQ(governor.ledger()->faults(Tier::device), LedgerFaults{});
}

// G-024
TEST(LedgerGovernorLease, GivesBackOnDestructionWhatAShrinkLeft) {
  LedgerGovernor governor = device_of(1000_B);
  {
    MemoryLease lease = reserve(governor, 500_B).value();
    EXPECT_EQ(lease.shrink(150_B), 150_B);
    EXPECT_EQ(used(governor), 350_B);
  }

  EXPECT_EQ(used(governor), 0_B);
  EXPECT_TRUE(reserve(governor, 1000_B).has_value());
}

// G-025
TEST(LedgerGovernorLease, LeavesNothingBehindAfterAThousandMixedCycles) {
  LedgerGovernor governor = device_of(1000_B);

  for (std::uint64_t cycle = 0; cycle < 1000; ++cycle) {
    MemoryLease lease = reserve(governor, 999_B).value();
    const Bytes wanted = cycle % 3 == 0 ? 999_B : cycle % 3 == 1 ? 499_B : 0_B;
    EXPECT_EQ(lease.shrink(wanted), wanted);
    EXPECT_EQ(used(governor), 999_B - wanted);
  }

  EXPECT_EQ(used(governor), 0_B);
  EXPECT_EQ(governor.ledger()->live_leases(Tier::device), 0U);
}

// G-026
TEST(LedgerGovernorReserve, RefusesTheFirstByteAboveAFullTier) {
  LedgerGovernor governor = device_of(1000_B);
  const MemoryLease first = reserve(governor, 600_B).value();
  const MemoryLease second = reserve(governor, 400_B).value();

  EXPECT_EQ(governor.available(Tier::device), 0_B);
  const auto error = exhausted(reserve(governor, 1_B));
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->available, 0_B);
}

TEST(LedgerGovernorReserve, NamesEveryNumberInItsRefusal) {
  LedgerGovernor governor = device_of(1000_B);
  const MemoryLease held = reserve(governor, 900_B).value();

  const auto error =
      exhausted(governor.reserve(Tier::device, 200_B, MemoryRole::workspace(true), holder));

  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->tier, Tier::device);
  EXPECT_EQ(error->role, MemoryRole::workspace(true));
  EXPECT_EQ(error->requested, 200_B);
  EXPECT_EQ(error->used, 900_B);
  EXPECT_EQ(error->limit, 1000_B);
  EXPECT_EQ(error->available, 100_B);
}

// G-027
TEST(LedgerGovernorReserve, ChangesNothingWhenItRefuses) {
  LedgerGovernor governor = device_of(1000_B);
  const MemoryLease held = reserve(governor, 800_B).value();

  for (int attempt = 0; attempt < 5; ++attempt) {
    EXPECT_FALSE(reserve(governor, 500_B).has_value());
  }

  EXPECT_EQ(held.bytes(), 800_B);
  EXPECT_EQ(used(governor), 800_B);
  EXPECT_EQ(governor.ledger()->live_leases(Tier::device), 1U);
}

// G-028
TEST(LedgerGovernorReserve, GrantsWhatADroppedLeaseGaveBackOnce) {
  LedgerGovernor governor = device_of(100_B);
  {
    const MemoryLease all = reserve(governor, 100_B).value();
  }

  const auto again = reserve(governor, 100_B);

  EXPECT_TRUE(again.has_value());
  EXPECT_FALSE(reserve(governor, 1_B).has_value());
}

// G-029
TEST(LedgerGovernorTiers, AreIndependent) {
  LedgerGovernor governor(DeviceKey::device(0), TierLimits::all(100_B));

  for (const Tier filled : all_tiers) {
    const auto lease = governor.reserve(filled, 100_B, role, holder);
    for (const Tier tier : all_tiers) {
      EXPECT_EQ(governor.available(tier), tier == filled ? 0_B : 100_B) << to_string(tier);
    }
  }
}

// G-030
TEST(LedgerGovernorLease, GrowsInPlaceToTheLimit) {
  LedgerGovernor governor = device_of(100_B);
  MemoryLease lease = reserve(governor, 60_B).value();

  EXPECT_TRUE(lease.grow(40_B).has_value());

  EXPECT_EQ(lease.bytes(), 100_B);
  EXPECT_EQ(governor.available(Tier::device), 0_B);
}

// G-032
TEST(LedgerGovernorLease, IsUnchangedByAGrowthThatIsRefused) {
  LedgerGovernor governor = device_of(100_B);
  MemoryLease lease = reserve(governor, 60_B).value();

  EXPECT_FALSE(lease.grow(41_B).has_value());
  EXPECT_EQ(lease.bytes(), 60_B);
  EXPECT_EQ(used(governor), 60_B);
  EXPECT_TRUE(lease.grow(40_B).has_value());
}

// G-033
TEST(LedgerGovernorLease, ClampsAShrinkBeyondItsSize) {
  LedgerGovernor governor = device_of(100_B);
  MemoryLease lease = reserve(governor, 50_B).value();

  EXPECT_EQ(lease.shrink(80_B), 50_B);

  EXPECT_EQ(lease.bytes(), 0_B);
  EXPECT_EQ(governor.available(Tier::device), 100_B);
}

// G-034
TEST(LedgerGovernorLimit, RevokesNothingWhenItFallsUnderLiveUsage) {
  LedgerGovernor governor = device_of(1000_B);
  {
    const MemoryLease lease = reserve(governor, 900_B).value();
    governor.ledger()->set_limit(Tier::device, 100_B);

    EXPECT_EQ(used(governor), 900_B);
    EXPECT_EQ(lease.bytes(), 900_B);
    EXPECT_EQ(governor.usage(Tier::device).oversubscribed, 800_B);
    EXPECT_EQ(governor.available(Tier::device), 0_B);
    EXPECT_FALSE(reserve(governor, 1_B).has_value());
  }

  EXPECT_EQ(used(governor), 0_B);
  EXPECT_EQ(governor.available(Tier::device), 100_B);
}

// G-035
TEST(LedgerGovernorReserve, GrantsZeroBytesOfATierWithoutLimit) {
  LedgerGovernor governor = device_of(0_B);

  const auto lease = reserve(governor, 0_B);

  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(lease->bytes(), 0_B);
  EXPECT_EQ(used(governor), 0_B);
}

// G-036
TEST(LedgerGovernorReserve, CallsASumThatWrapsInvalid) {
  LedgerGovernor governor = device_of(Bytes::max());
  const MemoryLease held = reserve(governor, 10_B).value();

  const auto refused = reserve(governor, Bytes::max());

  ASSERT_FALSE(refused.has_value());
  const auto* invalid = std::get_if<InvalidRequest>(&refused.error().kind);
  ASSERT_NE(invalid, nullptr);
  EXPECT_EQ(invalid->requested, Bytes::max());
  EXPECT_EQ(used(governor), 10_B);
}

// G-037
TEST(LedgerGovernorReserve, HandsOutEachByteOnceAmongEightThreads) {
  LedgerGovernor governor = device_of(100_B);
  std::vector<std::vector<MemoryLease>> taken(8);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : taken) {
      threads.emplace_back([&governor, &mine] {
        while (auto lease = reserve(governor, 1_B)) {
          mine.push_back(std::move(*lease));
        }
      });
    }
  }

  std::size_t together = 0;
  for (const auto& mine : taken) {
    together += mine.size();
  }
  EXPECT_EQ(together, 100U);
  EXPECT_EQ(used(governor), 100_B);
}

// G-038
TEST(LedgerGovernorLease, GivesBackItsGrowthOnDestruction) {
  LedgerGovernor governor = device_of(1000_B);
  {
    MemoryLease lease = reserve(governor, 100_B).value();
    ASSERT_TRUE(lease.grow(300_B).has_value());
    EXPECT_EQ(used(governor), 400_B);
  }

  EXPECT_EQ(used(governor), 0_B);
}

TEST(LedgerGovernorLease, SplitsWithoutFreeCapacityAndWithoutACharge) {
  LedgerGovernor governor = device_of(100_B);
  std::optional whole = reserve(governor, 100_B).value();

  std::optional part = whole->split(30_B).value();

  EXPECT_EQ(whole->bytes(), 70_B);
  EXPECT_EQ(part->bytes(), 30_B);
  EXPECT_EQ(part->holder(), holder);
  EXPECT_EQ(used(governor), 100_B);
  whole.reset();
  EXPECT_EQ(used(governor), 30_B);
  part.reset();
  EXPECT_EQ(used(governor), 0_B);
  EXPECT_EQ(governor.ledger()->live_leases(Tier::device), 0U);
}

TEST(LedgerGovernorLease, NeedsFreeCapacityForASibling) {
  LedgerGovernor governor = device_of(100_B);
  const MemoryLease lease = reserve(governor, 60_B).value();

  EXPECT_FALSE(lease.reserve_sibling(41_B).has_value());
  EXPECT_EQ(used(governor), 60_B);
  EXPECT_EQ(governor.ledger()->live_leases(Tier::device), 1U);
  const auto sibling = lease.reserve_sibling(40_B);
  ASSERT_TRUE(sibling.has_value());
  EXPECT_EQ(used(governor), 100_B);
}

TEST(LedgerGovernorLease, AbsorbsAnotherWithoutACharge) {
  LedgerGovernor governor = device_of(100_B);
  MemoryLease lease = reserve(governor, 60_B).value();
  MemoryLease other = reserve(governor, 40_B).value();

  ASSERT_TRUE(lease.absorb(other).has_value());

  EXPECT_EQ(lease.bytes(), 100_B);
  EXPECT_EQ(used(governor), 100_B);
  EXPECT_EQ(governor.ledger()->live_leases(Tier::device), 1U);
}

TEST(LedgerGovernorLease, RefusesToAbsorbALeaseOfOtherBooks) {
  LedgerGovernor governor = device_of(100_B);
  LedgerGovernor stranger = device_of(100_B);
  MemoryLease lease = reserve(governor, 60_B).value();
  MemoryLease foreign = reserve(stranger, 40_B).value();

  EXPECT_FALSE(lease.absorb(foreign).has_value());
  EXPECT_EQ(lease.bytes(), 60_B);
  EXPECT_EQ(foreign.bytes(), 40_B);
  EXPECT_EQ(used(stranger), 40_B);
}

TEST(LedgerGovernorLease, KnowsTheAuthorityThatItIsChargedTo) {
  LedgerGovernor governor = device_of(100_B);

  const MemoryLease lease = reserve(governor, 60_B).value();

  EXPECT_EQ(lease.authority(), governor.authority_id());
}

TEST(LedgerGovernorLease, OutlivesTheGovernorAndStillWorks) {
  std::optional<LedgerGovernor> governor(
      std::in_place, DeviceKey::device(0), TierLimits{}.with(Tier::device, 100_B));
  MemoryLease lease = reserve(*governor, 60_B).value();
  const MemoryAuthorityId id = governor->authority_id();

  governor.reset();

  EXPECT_EQ(lease.authority(), id);
  EXPECT_FALSE(lease.grow(41_B).has_value());
  EXPECT_TRUE(lease.grow(40_B).has_value());
  EXPECT_EQ(lease.shrink(70_B), 70_B);
  EXPECT_TRUE(lease.reserve_sibling(70_B).has_value());
}

// G-043
TEST(LedgerGovernorReserve, IsRightThroughTheAbstractType) {
  LedgerGovernor concrete(DeviceKey::host(), TierLimits{}.with(Tier::host, 64_B));
  MemoryGovernor& governor = concrete;

  const auto lease = governor.reserve(Tier::host, 32_B, role, holder);

  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(lease->tier(), Tier::host);
  EXPECT_EQ(lease->holder(), holder);
  EXPECT_EQ(governor.available(Tier::host), 32_B);
}

}  // namespace
}  // namespace memstrata::ledger_governor_test
