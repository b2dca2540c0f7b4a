// SPDX-License-Identifier: Apache-2.0
// What every governor promises. A new one adds its subject and one line to `Governors`.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/lease_ledger.hpp"
#include "memstrata/governance/ledger_governor.hpp"
#include "support/scripted_governor.hpp"

namespace memstrata {
namespace {

constexpr HolderId holder{3};

/// A subject is made with one limit for every tier and hands out its governor.
class ScriptedSubject {
 public:
  explicit ScriptedSubject(Bytes limit) : governor_(test::ScriptedGovernor::with_limit(limit)) {}

  [[nodiscard]] std::shared_ptr<MemoryGovernor> governor() const { return governor_; }

 private:
  std::shared_ptr<MemoryGovernor> governor_;
};

class LedgerSubject {
 public:
  explicit LedgerSubject(Bytes limit)
      : governor_(std::make_shared<LedgerGovernor>(
            LeaseLedger::create(DeviceKey::device(0), TierLimits::all(limit)))) {}

  [[nodiscard]] std::shared_ptr<MemoryGovernor> governor() const { return governor_; }

 private:
  std::shared_ptr<MemoryGovernor> governor_;
};

template <class Subject>
class MemoryGovernorContract : public ::testing::Test {
 protected:
  [[nodiscard]] static std::shared_ptr<MemoryGovernor> make(Bytes limit) {
    return Subject(limit).governor();
  }
};

using Governors = ::testing::Types<ScriptedSubject, LedgerSubject>;
TYPED_TEST_SUITE(MemoryGovernorContract, Governors);

TYPED_TEST(MemoryGovernorContract, ItsAuthorityNeverChangesAndIsItsOwn) {
  const auto governor = this->make(1_KiB);
  const auto other = this->make(1_KiB);

  EXPECT_EQ(governor->authority_id(), governor->authority_id());
  EXPECT_FALSE(governor->authority_id() == other->authority_id());
}

TYPED_TEST(MemoryGovernorContract, ALeaseNamesTheGovernorsBooks) {
  const auto governor = this->make(1_KiB);

  const auto lease = governor->reserve(Tier::host, 1_B, MemoryRole::kv_cache, holder);

  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(lease->authority(), governor->authority_id());
}

// G-026, G-039
TYPED_TEST(MemoryGovernorContract, TheLimitIsReachedExactlyAndComesBack) {
  const auto governor = this->make(1000_B);
  {
    const auto first = governor->reserve(Tier::host, 600_B, MemoryRole::kv_cache, holder);
    const auto second = governor->reserve(Tier::host, 400_B, MemoryRole::kv_cache, holder);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(governor->available(Tier::host), 0_B);
    EXPECT_FALSE(governor->reserve(Tier::host, 1_B, MemoryRole::kv_cache, holder).has_value());
  }

  EXPECT_EQ(governor->available(Tier::host), 1000_B);
}

// G-027, G-040
TYPED_TEST(MemoryGovernorContract, RefusalsNameTheNumbersAndChangeNothing) {
  const auto governor = this->make(1000_B);
  const auto held = governor->reserve(Tier::disk, 800_B, MemoryRole::kv_cache, holder);
  ASSERT_TRUE(held.has_value());

  for (int round = 0; round < 5; ++round) {
    const auto refused = governor->reserve(Tier::disk, 500_B, MemoryRole::weights, holder);
    ASSERT_FALSE(refused.has_value());
    const auto* exhausted = std::get_if<TierExhausted>(&refused.error().kind);
    ASSERT_NE(exhausted, nullptr);
    EXPECT_EQ(exhausted->tier, Tier::disk);
    EXPECT_EQ(exhausted->role, MemoryRole::weights);
    EXPECT_EQ(exhausted->requested, 500_B);
    EXPECT_EQ(exhausted->used, 800_B);
    EXPECT_EQ(exhausted->limit, 1000_B);
    EXPECT_EQ(exhausted->available, 200_B);
  }

  EXPECT_EQ(held->bytes(), 800_B);
  EXPECT_EQ(governor->usage(Tier::disk).used, 800_B);
}

// G-029
TYPED_TEST(MemoryGovernorContract, TiersAreIndependent) {
  const auto governor = this->make(100_B);

  const auto filled = governor->reserve(Tier::device, 100_B, MemoryRole::weights, holder);

  ASSERT_TRUE(filled.has_value());
  EXPECT_EQ(governor->available(Tier::device), 0_B);
  EXPECT_EQ(governor->available(Tier::host), 100_B);
  EXPECT_EQ(governor->available(Tier::disk), 100_B);
}

// G-035
TYPED_TEST(MemoryGovernorContract, ZeroBytesAreGrantedEvenWithoutALimit) {
  const auto governor = this->make(0_B);

  const auto lease = governor->reserve(Tier::host, 0_B, MemoryRole::kv_cache, holder);

  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(lease->bytes(), 0_B);
}

// G-036
TYPED_TEST(MemoryGovernorContract, ASumBeyond64BitsIsAnInvalidRequest) {
  const auto governor = this->make(Bytes::max());
  const auto held = governor->reserve(Tier::host, 10_B, MemoryRole::kv_cache, holder);
  ASSERT_TRUE(held.has_value());

  const auto refused = governor->reserve(Tier::host, Bytes::max(), MemoryRole::kv_cache, holder);

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<InvalidRequest>(refused.error().kind));
  EXPECT_EQ(governor->usage(Tier::host).used, 10_B);
}

// G-021, G-022
TYPED_TEST(MemoryGovernorContract, RecordedBytesIgnoreTheLimitAndShowAsExcess) {
  const auto governor = this->make(10_B);
  const auto held = governor->reserve(Tier::host, 8_B, MemoryRole::kv_cache, holder);
  ASSERT_TRUE(held.has_value());
  {
    const auto recorded = governor->record_committed(Tier::host, 5_B, MemoryRole::weights, holder);
    ASSERT_TRUE(recorded.has_value());
    const TierUsage usage = governor->usage(Tier::host);
    EXPECT_EQ(usage.used, 13_B);
    EXPECT_EQ(usage.oversubscribed, 3_B);
    EXPECT_EQ(usage.available, 0_B);
  }

  EXPECT_EQ(governor->usage(Tier::host).used, 8_B);
}

// G-030, G-032, G-041
TYPED_TEST(MemoryGovernorContract, LeasesGrowInPlaceAndRefusedGrowthChangesNothing) {
  const auto governor = this->make(100_B);
  auto lease = governor->reserve(Tier::host, 60_B, MemoryRole::kv_cache, holder);
  ASSERT_TRUE(lease.has_value());

  EXPECT_FALSE(lease->grow(41_B).has_value());
  EXPECT_EQ(lease->bytes(), 60_B);
  EXPECT_EQ(governor->usage(Tier::host).used, 60_B);
  EXPECT_TRUE(lease->grow(40_B).has_value());

  EXPECT_EQ(lease->bytes(), 100_B);
  EXPECT_EQ(governor->available(Tier::host), 0_B);
}

// G-023, G-033
TYPED_TEST(MemoryGovernorContract, ShrinkingIsClampedToTheLease) {
  const auto governor = this->make(1000_B);
  auto lease = governor->reserve(Tier::host, 600_B, MemoryRole::kv_cache, holder);
  ASSERT_TRUE(lease.has_value());

  EXPECT_EQ(lease->shrink(200_B), 200_B);
  EXPECT_EQ(governor->usage(Tier::host).used, 400_B);
  EXPECT_EQ(lease->shrink(9999_B), 400_B);

  EXPECT_EQ(governor->usage(Tier::host).used, 0_B);
}

TYPED_TEST(MemoryGovernorContract, SplittingAndAbsorbingMoveNoCharge) {
  const auto governor = this->make(100_B);
  auto lease = governor->reserve(Tier::host, 100_B, MemoryRole::kv_cache, holder);
  ASSERT_TRUE(lease.has_value());

  auto part = lease->split(30_B);

  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(governor->usage(Tier::host).used, 100_B);
  ASSERT_TRUE(lease->absorb(*part).has_value());
  EXPECT_EQ(lease->bytes(), 100_B);
  EXPECT_EQ(governor->usage(Tier::host).used, 100_B);
}

TYPED_TEST(MemoryGovernorContract, ALeaseOutlivesItsGovernor) {
  auto governor = this->make(100_B);
  auto lease = governor->reserve(Tier::host, 60_B, MemoryRole::kv_cache, holder);
  ASSERT_TRUE(lease.has_value());

  governor = nullptr;

  EXPECT_TRUE(lease->grow(40_B).has_value());
  EXPECT_FALSE(lease->grow(1_B).has_value());
  EXPECT_EQ(lease->shrink(100_B), 100_B);
}

// G-037
TYPED_TEST(MemoryGovernorContract, EightThreadsTogetherGetExactlyTheLimit) {
  const auto governor = this->make(100_B);
  std::array<std::vector<MemoryLease>, 8> leases;
  std::vector<std::thread> threads;
  for (std::vector<MemoryLease>& mine : leases) {
    threads.emplace_back([&mine, &governor] {
      while (true) {
        auto lease = governor->reserve(Tier::host, 1_B, MemoryRole::kv_cache, holder);
        if (!lease) {
          return;
        }
        mine.push_back(std::move(*lease));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }

  std::size_t granted = 0;
  for (const std::vector<MemoryLease>& mine : leases) {
    granted += mine.size();
  }
  EXPECT_EQ(granted, 100U);
  EXPECT_EQ(governor->usage(Tier::host).used, 100_B);
}

}  // namespace
}  // namespace memstrata
