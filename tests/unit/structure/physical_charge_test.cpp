// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/physical_charge.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <utility>
#include <variant>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "support/scripted_governor.hpp"
#include "support/sim_rig.hpp"

namespace memstrata {
namespace {

using test::BooksCall;
using test::ScriptedGovernor;
using test::sim_terms;

[[nodiscard]] PhysicalCharge charge_of(const std::shared_ptr<ScriptedGovernor>& governor) {
  return PhysicalCharge::create(PhysicalMemoryAccounting::buffer(), governor, sim_terms).value();
}

TEST(PhysicalCharge, TheLeaseCoversExactlyWhatIsOwedAndIsAbsentAtZero) {
  const auto governor = ScriptedGovernor::with_limit(10_MiB);
  PhysicalCharge charge = charge_of(governor);

  ASSERT_TRUE(charge.charge(3_MiB).has_value());
  ASSERT_TRUE(charge.charge(2_MiB).has_value());
  EXPECT_EQ(charge.leased(), 5_MiB);
  EXPECT_EQ(governor->usage(Tier::device).used, 5_MiB);
  charge.refund(4_MiB);
  EXPECT_EQ(governor->usage(Tier::device).used, 1_MiB);
  charge.refund(1_MiB);

  EXPECT_EQ(charge.leased(), Bytes{});
  EXPECT_EQ(governor->usage(Tier::device).used, Bytes{});
  EXPECT_FALSE(governor->books().over_released());
}

TEST(PhysicalCharge, WhatIsRefundedWhollyHoldsTheBooksNoLonger) {
  const auto governor = ScriptedGovernor::with_limit(10_MiB);
  const auto books = governor->share_books();
  const auto holders = books.use_count();
  PhysicalCharge charge = charge_of(governor);

  ASSERT_TRUE(charge.charge(3_MiB).has_value());
  EXPECT_GT(books.use_count(), holders);
  charge.refund(3_MiB);

  EXPECT_EQ(books.use_count(), holders);
  EXPECT_TRUE(charge.charge(1_MiB).has_value());
}

TEST(PhysicalCharge, ARefusalPassesUnchangedAndChargesNothing) {
  const auto governor = ScriptedGovernor::with_limit(4_MiB);
  PhysicalCharge charge = charge_of(governor);
  ASSERT_TRUE(charge.charge(3_MiB).has_value());

  const auto refused = charge.charge(2_MiB);

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<TierExhausted>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->used, 3_MiB);
  EXPECT_EQ(error->role, MemoryRole::kv_cache);
  EXPECT_EQ(charge.leased(), 3_MiB);
  EXPECT_EQ(governor->usage(Tier::device).used, 3_MiB);
}

TEST(PhysicalCharge, ZeroBytesCallNobody) {
  const auto governor = ScriptedGovernor::with_limit(Bytes{});
  PhysicalCharge charge = charge_of(governor);

  EXPECT_TRUE(charge.charge(Bytes{}).has_value());
  charge.refund(Bytes{});

  EXPECT_TRUE(governor->books().calls().empty());
}

TEST(PhysicalCharge, ABackingThatPaysLeavesTheGovernorAlone) {
  const auto governor = ScriptedGovernor::with_limit(Bytes{});
  auto charge =
      PhysicalCharge::create(
          PhysicalMemoryAccounting::backing(governor->authority_id()), governor, sim_terms)
          .value();

  EXPECT_TRUE(charge.charge(1_GiB).has_value());
  charge.refund(1_GiB);

  EXPECT_TRUE(charge.is_paid_by_backing());
  EXPECT_EQ(charge.leased(), Bytes{});
  EXPECT_TRUE(governor->books().calls().empty());
}

TEST(PhysicalCharge, WithoutAGovernorTheRequestIsInvalid) {
  const auto refused =
      PhysicalCharge::create(PhysicalMemoryAccounting::buffer(), nullptr, sim_terms);

  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(test::budget_error<InvalidRequest>(refused.error()), nullptr);
}

/// A governor of somebody who reports by throwing.
class ThrowingGovernor final : public MemoryGovernor {
 public:
  [[nodiscard]] MemoryAuthorityId authority_id() const noexcept override { return id_; }

  [[nodiscard]] Result<MemoryLease> reserve(Tier, Bytes, MemoryRole, HolderId) override {
    if (throws_number) {
      throw 7;  // NOLINT(hicpp-exception-baseclass): what foreign code may do
    }
    throw std::runtime_error("ledger file is locked");
  }

  [[nodiscard]] Result<MemoryLease> record_committed(Tier, Bytes, MemoryRole, HolderId) override {
    throw std::runtime_error("unused");
  }

  [[nodiscard]] TierUsage usage(Tier) const noexcept override { return {}; }

  bool throws_number = false;

 private:
  MemoryAuthorityId id_ = MemoryAuthorityId::issue(DeviceKey::device(0));
};

TEST(PhysicalCharge, AGovernorThatThrowsIsARefusalWithItsText) {
  const auto governor = std::make_shared<ThrowingGovernor>();
  auto charge =
      PhysicalCharge::create(PhysicalMemoryAccounting::buffer(), governor, sim_terms).value();

  const auto refused = charge.charge(1_MiB);
  governor->throws_number = true;
  const auto unknown = charge.charge(1_MiB);

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<AllocationFailed>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->reason.view(), "ledger file is locked");
  EXPECT_EQ(error->requested, 1_MiB);
  ASSERT_FALSE(unknown.has_value());
  EXPECT_TRUE(std::holds_alternative<AllocationFailed>(unknown.error().kind));
  EXPECT_EQ(charge.leased(), Bytes{});
}

TEST(PhysicalChargeDeathTest, ARefundOfMoreThanIsLeasedStopsTheProgram) {
  const auto governor = ScriptedGovernor::with_limit(10_MiB);
  PhysicalCharge charge = charge_of(governor);
  ASSERT_TRUE(charge.charge(1_MiB).has_value());

  EXPECT_DEATH(charge.refund(2_MiB), "refund of more than is leased");
}

}  // namespace
}  // namespace memstrata
