// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/bound_capability.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "support/binding_rig.hpp"
#include "support/fake_allocator.hpp"

namespace memstrata {
namespace {

using test::FakeAllocator;
using test::must;
using test::refusal;

/// A binding to a mechanism with the virtual-backing capability.
struct VirtualRig {
  BindingRegistry registry = must(BindingRegistry::create());
  std::shared_ptr<FakeAllocator> allocator = std::make_shared<FakeAllocator>();
  RegisteredMechanism mechanism = must(registry.register_allocator(
      must(registry.register_provider_context(DeviceKey::host(), std::make_shared<int>())),
      must(registry.register_authority(DeviceKey::host(), std::make_shared<int>())),
      allocator));
  MemoryBinding binding = must(registry.bind(mechanism));
  BoundVirtualBacking backing = must(binding.virtual_backing()).value();

  /// Reserves 100 bytes and commits nothing.
  [[nodiscard]] OwningAllocation reserve() const {
    return must(backing.allocate_committed(100_B, 8_B, {}));
  }
};

//
TEST(BoundRange, ACommitBeyondTheAllocationNeverReachesTheMechanism) {
  const VirtualRig rig;
  const OwningAllocation owner = rig.reserve();

  const auto beyond =
      refusal<ViewOutOfBounds>(rig.backing.commit(owner, {.offset = 96_B, .size = 5_B}));
  const auto wrapped =
      refusal<ViewOutOfBounds>(rig.backing.commit(owner, {.offset = Bytes::max(), .size = 2_B}));

  EXPECT_EQ(beyond.offset, 96_B);
  EXPECT_EQ(beyond.end, 101_B);
  EXPECT_EQ(beyond.allocation_bytes, 100_B);
  EXPECT_EQ(wrapped.end, Bytes::max());
  EXPECT_EQ(rig.allocator->faults().calls("commit"), 0U);
  EXPECT_EQ(owner.outstanding_views(), 0U);
  EXPECT_EQ(rig.binding.mechanism_snapshot().active_operations, 0U);
}

//
TEST(BoundRange, ADecommitBeyondTheAllocationNeverReachesTheMechanism) {
  const VirtualRig rig;
  const OwningAllocation owner = rig.reserve();

  EXPECT_EQ(
      refusal<ViewOutOfBounds>(rig.backing.decommit(owner, {.offset = 0_B, .size = 101_B})).end,
      101_B);

  EXPECT_EQ(rig.allocator->faults().calls("decommit"), 0U);
}

//
TEST(BoundRange, TheLastByteIsInside) {
  const VirtualRig rig;
  const OwningAllocation owner = rig.reserve();

  must(rig.backing.commit(owner, {.offset = 96_B, .size = 4_B}));

  EXPECT_EQ(must(rig.backing.committed_bytes(owner)), 8_B);
}

//
TEST(BoundRange, ABatchWithOneRangeBeyondCommitsNothing) {
  const VirtualRig rig;
  const OwningAllocation owner = rig.reserve();
  const std::array ranges{
      BoundCommitRange{.allocation = &owner, .range = {.offset = 0_B, .size = 8_B}},
      BoundCommitRange{.allocation = &owner, .range = {.offset = 96_B, .size = 5_B}}};

  const auto failed = rig.backing.commit_all(ranges);

  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().committed_ranges, 0U);
  ASSERT_NE(failed.error().error.as<ViewOutOfBounds>(), nullptr);
  EXPECT_EQ(rig.allocator->faults().calls("commit"), 0U);
  EXPECT_EQ(owner.outstanding_views(), 0U);
  EXPECT_EQ(refusal<ViewOutOfBounds>(rig.backing.mapped_bytes(ranges)).end, 101_B);
}

//
TEST(BoundRange, ARangeBeyondANewAllocationReservesNothing) {
  const VirtualRig rig;
  const std::array ranges{ByteRange{.offset = 96_B, .size = 5_B}};

  EXPECT_EQ(
      refusal<ViewOutOfBounds>(rig.backing.allocate_committed(100_B, 8_B, ranges)).allocation_bytes,
      100_B);

  EXPECT_EQ(rig.allocator->live_allocations(), 0U);
  EXPECT_TRUE(rig.binding.mechanism_snapshot().quiescent());
}

//
TEST(BoundRange, ABatchThatFailsInTheMiddleSaysHowManyRangesTookEffect) {
  const VirtualRig rig;
  OwningAllocation owner = rig.reserve();
  const std::array ranges{
      BoundCommitRange{.allocation = &owner, .range = {.offset = 0_B, .size = 8_B}},
      BoundCommitRange{.allocation = &owner, .range = {.offset = 8_B, .size = 8_B}},
      BoundCommitRange{.allocation = &owner, .range = {.offset = 16_B, .size = 8_B}}};
  rig.allocator->faults().fail_nth("commit", 3);

  const auto failed = rig.backing.commit_all(ranges);

  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().committed_ranges, 2U);
  EXPECT_NE(failed.error().error.as<MemoryError>(), nullptr);
  EXPECT_EQ(must(rig.backing.committed_bytes(owner)), 16_B);
  EXPECT_EQ(owner.outstanding_views(), 0U);
  EXPECT_TRUE(must(owner.release_now()).is_released());
}

}  // namespace
}  // namespace memstrata
