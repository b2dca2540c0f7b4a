// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <variant>

#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "support/fake_allocator.hpp"

namespace memstrata {
namespace {

using test::FakeAllocator;

/// A third party that implements the ordinary contract and nothing else.
class OrdinaryAllocator final : public DeviceAllocator {
 public:
  [[nodiscard]] Result<DeviceAddress> allocate(Bytes bytes, Bytes alignment) override {
    return inner_.allocate(bytes, alignment);
  }

  [[nodiscard]] MechanismRelease release(const AllocationSpan& allocation) noexcept override {
    return inner_.release(allocation);
  }

  [[nodiscard]] DeviceKey device() const noexcept override { return DeviceKey::device(1); }

 private:
  FakeAllocator inner_;
};

/// A prefix of nobody, all of whose sizes are zero.
class ForeignPrefix final : public SharedDevicePrefix {
 public:
  [[nodiscard]] DeviceAddress address() const noexcept override { return {}; }

  [[nodiscard]] Bytes committed_physical_bytes() const noexcept override { return {}; }

  [[nodiscard]] Bytes mapped_bytes() const noexcept override { return {}; }

  [[nodiscard]] Bytes requested_bytes() const noexcept override { return {}; }

  [[nodiscard]] Result<void> seal() override { return {}; }

  [[nodiscard]] bool is_sealed() const noexcept override { return true; }

  [[nodiscard]] const void* type_tag() const noexcept override { return this; }
};

[[nodiscard]] ByteRange range(std::uint64_t offset, std::uint64_t size) {
  return {.offset = Bytes{offset}, .size = Bytes{size}};
}

// B-002
TEST(DeviceAllocator, AnOrdinaryOneHasNoCapabilityAndMakesNoPromise) {
  const std::unique_ptr<DeviceAllocator> allocator = std::make_unique<OrdinaryAllocator>();

  EXPECT_FALSE(allocator->commits_on_demand());
  EXPECT_EQ(allocator->virtual_backing(), nullptr);
  EXPECT_EQ(allocator->shared_mapping(), nullptr);
}

// B-002
TEST(DeviceAllocator, AnOrdinaryOneAllocatesAndTakesBack) {
  const std::unique_ptr<DeviceAllocator> allocator = std::make_unique<OrdinaryAllocator>();

  const auto address = allocator->allocate(64_B, 16_B);

  ASSERT_TRUE(address.has_value());
  EXPECT_TRUE(is_multiple(Bytes{address->value()}, 16_B));
  EXPECT_TRUE(
      allocator->release({.address = *address, .bytes = 64_B, .alignment = 16_B}).is_complete());
}

// B-007
TEST(DeviceKey, TellsDevicesOfOneTierApart) {
  EXPECT_EQ(DeviceKey::host(), (DeviceKey{.tier = Tier::host, .index = 0}));
  EXPECT_NE(DeviceKey::device(0), DeviceKey::device(1));
  EXPECT_EQ(DeviceKey::device(1).tier, Tier::device);
}

// B-008
TEST(VirtualBacking, IsUsedThroughTheErasedAllocatorAlone) {
  FakeAllocator fake({.shared_mapping = false});
  DeviceAllocator& allocator = fake;
  VirtualBacking* const backing = allocator.virtual_backing();
  ASSERT_NE(backing, nullptr);

  const std::array first{range(0, 8)};
  const auto address = backing->allocate_committed(64_B, 16_B, first);
  ASSERT_TRUE(address.has_value());
  const AllocationSpan span{.address = *address, .bytes = 64_B, .alignment = 16_B};
  EXPECT_EQ(backing->committed_bytes(span), 8_B);
  EXPECT_TRUE(backing->commit(span, range(8, 8)).has_value());
  EXPECT_EQ(backing->decommit(span, range(8, 8)).value(), 8_B);
  EXPECT_TRUE(backing->commit(span, range(0, 64)).has_value());

  EXPECT_EQ(backing->committed_bytes(span), 64_B);
  EXPECT_EQ(fake.faults().calls("commit"), 2U);
  EXPECT_EQ(fake.faults().calls("decommit"), 1U);
}

// B-009
TEST(VirtualBacking, ItsAllocationsAreReleasedThroughTheAllocator) {
  FakeAllocator fake({.shared_mapping = false});
  DeviceAllocator& allocator = fake;
  const std::array first{range(0, 8)};
  const auto address = allocator.virtual_backing()->allocate_committed(64_B, 16_B, first);
  ASSERT_TRUE(address.has_value());

  const MechanismRelease answer =
      allocator.release({.address = *address, .bytes = 64_B, .alignment = 16_B});

  EXPECT_TRUE(answer.is_complete());
  EXPECT_EQ(answer.unmapped_bytes(), 8_B);
  EXPECT_EQ(fake.live_allocations(), 0U);
  EXPECT_EQ(fake.faults().calls("decommit"), 0U);
}

// B-010
TEST(SharedMapping, ItDoesNotBringVirtualBackingAlong) {
  const std::unique_ptr<DeviceAllocator> allocator =
      std::make_unique<FakeAllocator>(test::FakeOptions{.virtual_backing = false});

  EXPECT_EQ(allocator->virtual_backing(), nullptr);
  EXPECT_NE(allocator->shared_mapping(), nullptr);
}

// B-011
TEST(SharedMapping, AForeignPrefixOfZeroBytesIsAnErrorAndNotACostOfZero) {
  FakeAllocator allocator({.virtual_backing = false});
  const ForeignPrefix foreign;

  const auto quote = allocator.shared_mapping()->incremental_owned_bytes(foreign);

  ASSERT_FALSE(quote.has_value());
  EXPECT_TRUE(std::holds_alternative<InvalidRequest>(quote.error().kind));
}

// B-012
TEST(VirtualBacking, BehindASharedPointerItIsFoundAndPromisesNoAccounting) {
  const std::shared_ptr<DeviceAllocator> allocator =
      std::make_shared<FakeAllocator>(test::FakeOptions{.shared_mapping = false});

  EXPECT_NE(allocator->virtual_backing(), nullptr);
  EXPECT_EQ(allocator->virtual_backing(), allocator->virtual_backing());
  EXPECT_EQ(allocator->shared_mapping(), nullptr);
  EXPECT_FALSE(allocator->commits_on_demand());
}

// B-013
TEST(VirtualBacking, BehindASharedPointerItServesAnAllocationAndItsRelease) {
  const std::shared_ptr<DeviceAllocator> allocator =
      std::make_shared<FakeAllocator>(test::FakeOptions{.shared_mapping = false});
  const std::array committed{range(0, 16)};

  const auto address = allocator->virtual_backing()->allocate_committed(64_B, 16_B, committed);

  ASSERT_TRUE(address.has_value());
  EXPECT_TRUE(
      allocator->release({.address = *address, .bytes = 64_B, .alignment = 16_B}).is_complete());
}

// B-014
TEST(SharedMapping, BehindASharedPointerItIsFoundAlone) {
  const std::shared_ptr<DeviceAllocator> allocator =
      std::make_shared<FakeAllocator>(test::FakeOptions{.virtual_backing = false});

  EXPECT_EQ(allocator->virtual_backing(), nullptr);
  EXPECT_NE(allocator->shared_mapping(), nullptr);
}

TEST(SharedPrefixCommitInfo, IsAllZeroByDefault) {
  EXPECT_EQ(SharedPrefixCommitInfo{},
            (SharedPrefixCommitInfo{
                .additional_owned_bytes = 0_B, .newly_mapped_bytes = 0_B, .granules = 0}));
}

TEST(MappedAllocation, OwnedAndMappedAreIndependent) {
  const MappedAllocation<DeviceAddress> pooled{.allocation = DeviceAddress{0x1000},
                                               .additional_owned_bytes = 0_B,
                                               .newly_mapped_bytes = 64_KiB};

  EXPECT_EQ(pooled.additional_owned_bytes, 0_B);
  EXPECT_EQ(pooled.newly_mapped_bytes, 64_KiB);
}

/// An allocation of 64 bytes in a fake, none of it committed, and a batch of three ranges.
struct DefaultBatch {
  FakeAllocator fake;
  AllocationSpan span;
  std::array<AllocationCommitRange, 3> ranges;

  DefaultBatch() {
    const auto address = fake.virtual_backing()->allocate_committed(64_B, 8_B, {});
    span = {.address = *address, .bytes = 64_B, .alignment = 8_B};
    ranges = {AllocationCommitRange{.allocation = span, .range = range(0, 8)},
              AllocationCommitRange{.allocation = span, .range = range(16, 8)},
              AllocationCommitRange{.allocation = span, .range = range(32, 8)}};
  }
};

TEST(VirtualBackingCommitAll, TheDefaultCommitsEveryRangeInOrder) {
  DefaultBatch batch;

  EXPECT_TRUE(batch.fake.virtual_backing()->commit_all(batch.ranges).has_value());

  EXPECT_EQ(batch.fake.virtual_backing()->committed_bytes(batch.span), 24_B);
}

TEST(VirtualBackingCommitAll, AnEmptyBatchSucceedsWithoutACommit) {
  DefaultBatch batch;

  EXPECT_TRUE(batch.fake.virtual_backing()->commit_all({}).has_value());

  EXPECT_EQ(batch.fake.faults().calls("commit"), 0U);
}

//
TEST(VirtualBackingCommitAll, TheDefaultSaysHowManyRangesTookEffect) {
  for (std::size_t fault = 0; fault < 3; ++fault) {
    SCOPED_TRACE(fault);
    DefaultBatch batch;
    batch.fake.faults().fail_nth("commit", fault + 1);

    const auto failed = batch.fake.virtual_backing()->commit_all(batch.ranges);

    ASSERT_FALSE(failed.has_value());
    EXPECT_EQ(failed.error().committed_ranges, fault);
    EXPECT_TRUE(std::holds_alternative<AllocationFailed>(failed.error().error.kind));
    EXPECT_EQ(batch.fake.virtual_backing()->committed_bytes(batch.span), 8_B * fault);
    EXPECT_EQ(batch.fake.faults().calls("commit"), fault + 1);
  }
}

}  // namespace
}  // namespace memstrata
