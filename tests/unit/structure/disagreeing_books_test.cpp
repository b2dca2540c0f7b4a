// SPDX-License-Identifier: Apache-2.0
// A backing or a governor that says something else than the books of a range or buffer: `validate` must tell.
#include <gtest/gtest.h>

#include <memory>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/contract/platform_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/structure/virtual_buffer.hpp"
#include "memstrata/structure/virtual_range.hpp"
#include "support/scripted_governor.hpp"
#include "support/sim_backing.hpp"
#include "support/sim_rig.hpp"

namespace memstrata::disagreeing_books_test {
namespace {

using test::granules;
using test::ScriptedGovernor;
using test::sim_terms;
using test::SimBacking;

constexpr Bytes g = 4_KiB;

/// Says that it holds more or less than it does.
class DisagreeingBacking : public SimBacking {
 public:
  [[nodiscard]] Bytes committed(const Reservation& reservation) const noexcept {
    return saturating_sub(SimBacking::committed(reservation) + more_private, less_private);
  }

  [[nodiscard]] Bytes shared(const Reservation& reservation) const noexcept {
    return saturating_sub(SimBacking::shared(reservation) + more_shared, less_shared);
  }

  Bytes more_private;
  Bytes less_private;
  Bytes more_shared;
  Bytes less_shared;
};

static_assert(SharedPlatformBacking<DisagreeingBacking>);

/// Grants one granule less than it was asked for.
class StingyGovernor final : public MemoryGovernor {
 public:
  [[nodiscard]] MemoryAuthorityId authority_id() const noexcept override {
    return inner_->authority_id();
  }

  [[nodiscard]] Result<MemoryLease> reserve(Tier tier,
                                            Bytes bytes,
                                            MemoryRole role,
                                            HolderId holder) override {
    return inner_->reserve(tier, bytes - g, role, holder);
  }

  [[nodiscard]] Result<MemoryLease> record_committed(Tier tier,
                                                     Bytes bytes,
                                                     MemoryRole role,
                                                     HolderId holder) override {
    return inner_->record_committed(tier, bytes, role, holder);
  }

  [[nodiscard]] TierUsage usage(Tier tier) const noexcept override { return inner_->usage(tier); }

 private:
  std::shared_ptr<ScriptedGovernor> inner_ = ScriptedGovernor::with_limit(1_MiB);
};

/// A buffer of two shared granules and two private ones.
struct BufferRig {
  std::shared_ptr<DisagreeingBacking> backing = std::make_shared<DisagreeingBacking>();
  VirtualBuffer<DisagreeingBacking> buffer =
      VirtualBuffer<DisagreeingBacking>::create(backing,
                                                1_MiB,
                                                ScriptedGovernor::with_limit(1_MiB),
                                                sim_terms)
          .value();

  BufferRig() {
    auto prefix = backing->create_prefix(g * 2).value();
    prefix.seal();
    EXPECT_TRUE(buffer.attach(prefix).has_value());
    EXPECT_TRUE(buffer.grow_to(g * 4).has_value());
    EXPECT_TRUE(buffer.validate());
  }
};

TEST(DisagreeingBooks, ABufferFindsPrivateMemoryThatIsMissingOrTooMuch) {
  BufferRig rig;

  rig.backing->less_private = g;
  EXPECT_FALSE(rig.buffer.validate());
  rig.backing->less_private = {};
  rig.backing->more_private = g;
  EXPECT_FALSE(rig.buffer.validate());

  rig.backing->more_private = {};
  EXPECT_TRUE(rig.buffer.validate());
}

TEST(DisagreeingBooks, ABufferFindsSharedMemoryThatIsMissingOrTooMuch) {
  BufferRig rig;

  rig.backing->less_shared = g;
  EXPECT_FALSE(rig.buffer.validate());
  rig.backing->less_shared = {};
  rig.backing->more_shared = g;
  EXPECT_FALSE(rig.buffer.validate());

  rig.backing->more_shared = {};
  EXPECT_TRUE(rig.buffer.validate());
}

TEST(DisagreeingBooks, WhileSomethingIsNotReturnedSharedMemoryMayBeMissingButNotTooMuch) {
  BufferRig rig;
  rig.backing->faults().fail_next("decommit");
  ASSERT_FALSE(rig.buffer.shrink_to(g * 2).has_value());

  rig.backing->less_shared = g;
  EXPECT_TRUE(rig.buffer.validate());
  rig.backing->less_shared = {};
  rig.backing->more_shared = g;
  EXPECT_FALSE(rig.buffer.validate());
}

TEST(DisagreeingBooks, ARangeFindsMemoryThatIsMissingOrTooMuch) {
  const auto backing = std::make_shared<DisagreeingBacking>();
  auto range = VirtualRange<DisagreeingBacking>::reserve(
                   backing, g * 8, ScriptedGovernor::with_limit(1_MiB), sim_terms)
                   .value();
  ASSERT_TRUE(range.commit(granules(g, 2, 3)).has_value());

  backing->less_private = g;
  EXPECT_FALSE(range.validate());
  backing->less_private = {};
  backing->more_private = g;
  EXPECT_FALSE(range.validate());

  backing->more_private = {};
  EXPECT_TRUE(range.validate());
}

TEST(DisagreeingBooks, ALeaseThatIsTooSmallIsFound) {
  const auto governor = std::make_shared<StingyGovernor>();
  const auto backing = std::make_shared<SimBacking>();
  auto buffer = VirtualBuffer<SimBacking>::create(backing, 1_MiB, governor, sim_terms).value();
  auto range = VirtualRange<SimBacking>::reserve(backing, g * 8, governor, sim_terms).value();

  ASSERT_TRUE(buffer.grow_to(g * 2).has_value());
  ASSERT_TRUE(range.commit(granules(g, 2, 3)).has_value());

  EXPECT_EQ(buffer.leased(), g);
  EXPECT_FALSE(buffer.validate());
  EXPECT_EQ(range.leased(), g * 2);
  EXPECT_FALSE(range.validate());
}

}  // namespace
}  // namespace memstrata::disagreeing_books_test
