// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/binding/owning_allocation.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "memstrata/contract/release.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "support/binding_rig.hpp"

namespace memstrata {
namespace {

using test::BindingRig;
using test::expect_quiescent;
using test::must;
using State = AllocationReleaseState;

// B-061
TEST(OwningAllocationRelease, CompletesAndLeavesNothing) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  EXPECT_EQ(owner.state(), State::live);
  EXPECT_EQ(owner.size(), 4096_B);
  EXPECT_EQ(rig.snapshot().live_allocations, 1U);

  const ReleaseOutcome outcome = must(owner.release_now());

  EXPECT_EQ(outcome.state(), State::released);
  EXPECT_EQ(outcome.accounting().allocation_bytes, 4096_B);
  EXPECT_EQ(outcome.accounting().unmapped_bytes, 0_B);
  EXPECT_EQ(rig.allocator->releases(), 1U);
  EXPECT_TRUE(owner.empty());
  expect_quiescent(rig.snapshot());
}

}  // namespace
}  // namespace memstrata
