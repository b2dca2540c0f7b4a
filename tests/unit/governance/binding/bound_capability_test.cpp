// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/binding/bound_capability.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "support/binding_rig.hpp"
#include "support/capability_rig.hpp"
#include "support/watched_allocator.hpp"

namespace memstrata {
namespace {

using test::CapabilityRig;
using test::expect_quiescent;
using test::FakeOptions;
using test::must;
using test::must_do;
using test::WatchedAllocator;
using testing::ElementsAre;
using testing::IsEmpty;

[[nodiscard]] ByteRange range(std::uint64_t offset, std::uint64_t size) {
  return {.offset = Bytes{offset}, .size = Bytes{size}};
}

/// The two bindings of a refusal for something of another binding.
template <class T>
void expect_mismatch(const Result<T, BindingError>& result,
                     const MemoryBinding& asked,
                     const MemoryBinding& made) {
  ASSERT_FALSE(result.has_value());
  const auto* error = result.error().template as<BindingMismatch>();
  ASSERT_NE(error, nullptr) << result.error().message();
  EXPECT_EQ(error->expected, asked.identity().id);
  EXPECT_EQ(error->actual, made.identity().id);
}

// B-030, G-172
TEST(BoundVirtualBacking, ASelectionOfAnotherMechanismLeavesTheOldPathAlone) {
  const CapabilityRig rig;
  OwningAllocation owner = rig.allocate();
  const auto other = std::make_shared<WatchedAllocator>(FakeOptions{});
  const auto mechanism = must(rig.registry.register_allocator(rig.context, rig.authority, other));
  must_do(rig.registry.select(mechanism));
  const MemoryBinding fresh = must(rig.registry.bind(rig.device));

  must_do(rig.backing.commit(owner, range(8, 8)));

  EXPECT_EQ(rig.allocator->virtual_calls(), 1U);
  EXPECT_EQ(other->virtual_calls(), 0U);
  EXPECT_EQ(fresh.identity().mechanism, mechanism.identity);
  must_do(owner.release_now());
}

// B-031, G-172
TEST(BoundVirtualBacking, EachBindingReleasesThroughItsOwnMechanism) {
  const CapabilityRig rig;
  const auto other = std::make_shared<WatchedAllocator>(FakeOptions{});
  const auto mechanism = must(rig.registry.register_allocator(rig.context, rig.authority, other));
  const MemoryBinding binding = must(rig.registry.bind(mechanism));
  OwningAllocation first = rig.allocate();
  OwningAllocation second = must(binding.allocate(Bytes{64}, Bytes{16}));

  EXPECT_TRUE(must(first.release_now()).is_released());
  EXPECT_TRUE(must(second.release_now()).is_released());

  EXPECT_EQ(rig.allocator->calls("release"), 1U);
  EXPECT_EQ(other->calls("release"), 1U);
}

/// Two mechanisms with authorities of their own.
struct TwoMechanisms {
  CapabilityRig rig;
  RegisteredAuthority authority = must(rig.registry.register_authority(rig.device, nullptr));
  std::shared_ptr<WatchedAllocator> allocator = std::make_shared<WatchedAllocator>(FakeOptions{});
  MemoryBinding binding = must(
      rig.registry.bind(must(rig.registry.register_allocator(rig.context, authority, allocator))));
};

// B-033, G-173
TEST(BoundVirtualBacking, AnAllocationOfAnotherMechanismIsRefusedBeforeAnyCall) {
  const TwoMechanisms two;
  OwningAllocation owner = two.rig.allocate();
  const OwnedView view = must(owner.view(Bytes{}, Bytes{8}));
  const BoundVirtualBacking backing = must(two.binding.virtual_backing()).value();

  expect_mismatch(backing.commit(owner, range(0, 8)), two.binding, two.rig.binding);
  expect_mismatch(backing.decommit(owner, range(0, 8)), two.binding, two.rig.binding);
  expect_mismatch(backing.committed_bytes(owner), two.binding, two.rig.binding);

  EXPECT_EQ(two.allocator->virtual_calls(), 0U);
  EXPECT_EQ(two.rig.allocator->virtual_calls(), 0U);
}

// B-034, G-173
TEST(MemoryBindingView, AViewOfAnotherBindingIsRefusedAndItsOperationNotRun) {
  const TwoMechanisms two;
  OwningAllocation owner = two.rig.allocate();
  const OwnedView view = must(owner.view(Bytes{}, Bytes{8}));

  bool ran = false;
  const auto refused =
      two.binding.with_view(view, [&ran](ValidatedMemoryView /*view*/) { ran = true; });

  expect_mismatch(refused, two.binding, two.rig.binding);
  EXPECT_FALSE(ran);
  EXPECT_EQ(owner.outstanding_views(), 1U);
}

// B-035, G-171, G-173
TEST(MemoryBindingRelease, AnAllocationOfAnotherBindingStaysWithItsOwnerWhoReleasesItOnce) {
  const TwoMechanisms two;
  OwningAllocation owner = two.rig.allocate();
  const AllocationIdentity identity = owner.identity();

  expect_mismatch(two.binding.release_now(owner), two.binding, two.rig.binding);
  expect_mismatch(two.binding.prepare_release(owner), two.binding, two.rig.binding);
  ASSERT_FALSE(owner.empty());
  EXPECT_EQ(owner.identity(), identity);
  EXPECT_EQ(two.rig.snapshot().quarantined_allocations, 0U);
  EXPECT_EQ(two.rig.allocator->calls("release"), 0U);
  must_do(two.rig.binding.release_now(owner));

  EXPECT_EQ(two.rig.allocator->calls("release"), 1U);
  EXPECT_EQ(two.allocator->calls("release"), 0U);
  expect_quiescent(two.rig.snapshot());
}

// B-041, G-173
TEST(BoundSharedMapping, APrefixOfAnotherBindingIsRefusedBeforeAnyCostIsQuoted) {
  const CapabilityRig rig;
  const MemoryBinding second = must(rig.registry.bind(rig.mechanism));
  const BoundSharedMapping mapping = must(second.shared_mapping()).value();
  const BoundSharedPrefix prefix = rig.sealed_prefix();
  OwningAllocation owner = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));
  const auto before = rig.allocator->shared_calls();

  expect_mismatch(mapping.incremental_owned_bytes(prefix), second, rig.binding);
  expect_mismatch(mapping.commit_shared_prefix(prefix, owner, Bytes{}), second, rig.binding);

  EXPECT_EQ(rig.allocator->shared_calls(), before);
  EXPECT_EQ(owner.outstanding_views(), 0U);
}

// B-041, G-173
TEST(BoundSharedMapping, AnAllocationOfAnotherBindingIsRefusedEvenForAnOwnPrefix) {
  const CapabilityRig rig;
  const MemoryBinding second = must(rig.registry.bind(rig.mechanism));
  const BoundSharedPrefix prefix = rig.sealed_prefix();
  OwningAllocation owner = must(second.allocate(Bytes{64}, Bytes{16}));
  const auto before = rig.allocator->shared_calls();

  expect_mismatch(rig.mapping.commit_shared_prefix(prefix, owner, Bytes{}), rig.binding, second);
  expect_mismatch(rig.mapping.break_shared(owner, range(0, 8)), rig.binding, second);

  EXPECT_EQ(rig.allocator->shared_calls(), before);
}

TEST(BoundSharedMapping, MapsAnOwnPrefixAndBreaksItAgain) {
  const CapabilityRig rig;
  const BoundSharedPrefix prefix = rig.sealed_prefix(Bytes{16});
  OwningAllocation owner = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));

  EXPECT_EQ(must(rig.mapping.incremental_owned_bytes(prefix)), 0_B);
  EXPECT_EQ(must(rig.mapping.commit_shared_prefix(prefix, owner, Bytes{8})).newly_mapped_bytes,
            16_B);
  EXPECT_EQ(must(rig.backing.committed_bytes(owner)), 16_B);
  EXPECT_EQ(must(rig.mapping.break_shared(owner, range(8, 8))), 8_B);

  EXPECT_EQ(prefix.binding_identity(), rig.binding.identity());
  EXPECT_EQ(rig.mapping.binding_identity(), rig.binding.identity());
  must_do(owner.release_now());
  expect_quiescent(rig.snapshot());
}

TEST(BoundSharedMapping, APrefixThatEndsBeyondTheAllocationIsRefusedBeforeAnyCall) {
  const CapabilityRig rig;
  const BoundSharedPrefix prefix = rig.sealed_prefix(Bytes{16});
  OwningAllocation owner = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));

  const auto refused = rig.mapping.commit_shared_prefix(prefix, owner, Bytes{56});

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<ViewOutOfBounds>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->offset, 56_B);
  EXPECT_EQ(error->end, 72_B);
  EXPECT_EQ(error->allocation_bytes, 64_B);
  EXPECT_EQ(rig.allocator->calls("map_prefix"), 0U);
}

// B-052, G-175, G-177
TEST(MemoryBinding, AnAllocatorKnownOnlyByItsInterfaceIsReachedOnceEach) {
  const CapabilityRig rig;
  const auto watched = std::make_shared<WatchedAllocator>(FakeOptions{});
  const std::shared_ptr<DeviceAllocator> erased = watched;
  const MemoryBinding binding = must(
      rig.registry.bind(must(rig.registry.register_allocator(rig.context, rig.authority, erased))));

  OwningAllocation owner = must(binding.allocate(Bytes{64}, Bytes{16}));
  must_do(owner.release_now());

  EXPECT_EQ(watched->calls("allocate"), 1U);
  EXPECT_EQ(watched->calls("release"), 1U);
  EXPECT_TRUE(must(binding.virtual_backing()).has_value());
  EXPECT_TRUE(must(binding.shared_mapping()).has_value());
}

// G-177
TEST(MemoryBinding, EachCapabilityIsFoundWithoutTheOther) {
  const CapabilityRig rig;
  for (const bool is_virtual : {false, true}) {
    for (const bool is_shared : {false, true}) {
      const auto allocator = std::make_shared<WatchedAllocator>(
          FakeOptions{.virtual_backing = is_virtual, .shared_mapping = is_shared});
      const MemoryBinding binding = must(rig.registry.bind(
          must(rig.registry.register_allocator(rig.context, rig.authority, allocator))));

      EXPECT_EQ(must(binding.virtual_backing()).has_value(), is_virtual);
      EXPECT_EQ(must(binding.shared_mapping()).has_value(), is_shared);
    }
  }
}

// G-177
TEST(BoundVirtualBacking, TerminalReleaseOfACommittedAllocationGoesThroughTheAllocator) {
  const CapabilityRig rig;
  const std::array ranges{range(0, 8), range(16, 8)};
  OwningAllocation owner = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, ranges));
  must_do(rig.backing.commit(owner, range(8, 8)));
  EXPECT_EQ(must(rig.backing.committed_bytes(owner)), 24_B);
  EXPECT_EQ(must(rig.backing.decommit(owner, range(8, 8))), 8_B);

  EXPECT_EQ(must(owner.release_now()).accounting().unmapped_bytes, 16_B);

  EXPECT_EQ(rig.allocator->calls("release"), 1U);
  EXPECT_EQ(rig.allocator->live_allocations(), 0U);
  expect_quiescent(rig.snapshot());
}

TEST(BoundVirtualBacking, QuotesAWholeAllocationAndABatch) {
  const CapabilityRig rig;
  OwningAllocation owner = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));
  const std::array batch{BoundCommitRange{.allocation = &owner, .range = range(0, 8)},
                         BoundCommitRange{.allocation = &owner, .range = range(4, 8)}};

  EXPECT_EQ(must(rig.backing.mapped_bytes(Bytes{60}, Bytes{16})), 64_B);
  EXPECT_EQ(must(rig.backing.mapped_bytes(batch)), 16_B);
  EXPECT_EQ(rig.backing.binding_identity(), rig.binding.identity());
  EXPECT_EQ(owner.outstanding_views(), 0U);
  must_do(owner.release_now());
}

// X-020, G-173
TEST(BoundBatch, OneForeignAllocationStopsItBeforeAnyCall) {
  const CapabilityRig rig;
  const MemoryBinding second = must(rig.registry.bind(rig.mechanism));
  OwningAllocation own = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));
  OwningAllocation foreign = must(second.allocate(Bytes{64}, Bytes{16}));
  const std::array batch{BoundCommitRange{.allocation = &own, .range = range(0, 8)},
                         BoundCommitRange{.allocation = &foreign, .range = range(0, 8)}};
  const auto before = rig.allocator->virtual_calls();

  const auto refused = rig.backing.commit_all(batch);
  const auto quote = rig.backing.mapped_bytes(batch);

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().committed_ranges, 0U);
  const auto* error = refused.error().error.as<BindingMismatch>();
  ASSERT_NE(error, nullptr) << refused.error().error.message();
  EXPECT_EQ(error->actual, second.identity().id);
  expect_mismatch(quote, rig.binding, second);
  EXPECT_EQ(rig.allocator->virtual_calls(), before);
  EXPECT_EQ(own.outstanding_views(), 0U);
  EXPECT_EQ(rig.snapshot().active_operations, 0U);
}

//
TEST(BoundBatch, OneRangeBeyondItsAllocationStopsItBeforeAnyCall) {
  const CapabilityRig rig;
  OwningAllocation owner = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));
  const std::array batch{BoundCommitRange{.allocation = &owner, .range = range(0, 8)},
                         BoundCommitRange{.allocation = &owner, .range = range(60, 8)}};
  const auto before = rig.allocator->virtual_calls();

  const auto refused = rig.backing.commit_all(batch);

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().committed_ranges, 0U);
  const auto* error = refused.error().error.as<ViewOutOfBounds>();
  ASSERT_NE(error, nullptr) << refused.error().error.message();
  EXPECT_EQ(error->end, 68_B);
  EXPECT_EQ(rig.allocator->virtual_calls(), before);
}

//
TEST(BoundBatch, AFailureInTheMiddleSaysHowManyRangesTookEffect) {
  const CapabilityRig rig;
  OwningAllocation owner = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));
  const std::array batch{BoundCommitRange{.allocation = &owner, .range = range(0, 8)},
                         BoundCommitRange{.allocation = &owner, .range = range(16, 8)},
                         BoundCommitRange{.allocation = &owner, .range = range(32, 8)}};
  rig.allocator->faults().fail_nth("commit", 3);

  const auto refused = rig.backing.commit_all(batch);

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().committed_ranges, 2U);
  EXPECT_NE(refused.error().error.as<MemoryError>(), nullptr);
  EXPECT_EQ(must(rig.backing.committed_bytes(owner)), 16_B);
  EXPECT_TRUE(rig.backing.commit_all(batch).has_value());
  must_do(owner.release_now());
}

TEST(BoundBatch, AMechanismThatThrowsAtTheFirstRangeHasCommittedNone) {
  const CapabilityRig rig;
  OwningAllocation owner = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));
  const BoundCommitRange one{.allocation = &owner, .range = range(0, 8)};
  rig.allocator->on_call([](std::string_view /*operation*/) { throw std::runtime_error("no"); });

  const auto refused = rig.backing.commit_all({&one, 1});

  rig.allocator->on_call([](std::string_view /*operation*/) {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().committed_ranges, 0U);
  EXPECT_NE(refused.error().error.as<CallbackFailed>(), nullptr);
  must_do(owner.release_now());
}

TEST(BoundBatch, KeepsEveryAllocationFromBeingReleasedWhileItRuns) {
  const CapabilityRig rig;
  OwningAllocation one = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));
  OwningAllocation two = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));
  const std::array batch{BoundCommitRange{.allocation = &one, .range = range(0, 8)},
                         BoundCommitRange{.allocation = &two, .range = range(0, 8)}};
  std::size_t kept = 0;
  rig.allocator->on_call([&](std::string_view /*operation*/) {
    for (OwningAllocation* const owner : {&one, &two}) {
      const auto refused = owner->release_now();
      kept += !refused && refused.error().as<OutstandingViews>() != nullptr ? 1U : 0U;
    }
  });

  ASSERT_TRUE(rig.backing.commit_all(batch).has_value());

  rig.allocator->on_call([](std::string_view /*operation*/) {});
  EXPECT_EQ(kept, 4U);  // both, at both ranges
  must_do(one.release_now());
  must_do(two.release_now());
}

//
TEST(BoundVirtualBacking, ARangeBeyondItsAllocationIsRefusedBeforeAnyCall) {
  const CapabilityRig rig;
  OwningAllocation owner = must(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));
  const auto before = rig.allocator->virtual_calls() + rig.allocator->shared_calls();
  const auto is_out_of_bounds = [](const auto& result, Bytes end) {
    const auto* error =
        result.has_value() ? nullptr : result.error().template as<ViewOutOfBounds>();
    return error != nullptr && error->end == end && error->allocation_bytes == 64_B;
  };
  const ByteRange wraps{.offset = Bytes{8}, .size = Bytes::max()};

  EXPECT_TRUE(is_out_of_bounds(rig.backing.commit(owner, range(60, 5)), 65_B));
  EXPECT_TRUE(is_out_of_bounds(rig.backing.commit(owner, wraps), Bytes::max()));
  EXPECT_TRUE(is_out_of_bounds(rig.backing.decommit(owner, range(64, 1)), 65_B));
  EXPECT_TRUE(is_out_of_bounds(rig.mapping.break_shared(owner, range(0, 65)), 65_B));
  EXPECT_TRUE(is_out_of_bounds(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {{wraps}}),
                               Bytes::max()));

  EXPECT_EQ(rig.allocator->virtual_calls() + rig.allocator->shared_calls(), before);
  EXPECT_EQ(owner.outstanding_views(), 0U);
}

TEST(BoundVirtualBacking, AFailedReservationLeavesNothingOnTheBooks) {
  const CapabilityRig rig;
  rig.allocator->faults().fail_next("allocate_committed");

  const auto refused = rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {});

  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().as<MemoryError>(), nullptr);
  expect_quiescent(rig.snapshot());
}

TEST(BoundVirtualBacking, AFailedReservationLeavesItsPlaceToTheNextAllocation) {
  const CapabilityRig rig;
  OwningAllocation before = rig.allocate();
  const std::uint32_t place = before.identity().place;
  must_do(before.release_now());
  rig.allocator->faults().fail_next("allocate_committed");

  ASSERT_FALSE(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}).has_value());

  EXPECT_EQ(rig.allocate().identity().place, place);
}

// W-20
TEST(BoundSharedPrefix, IsCountedWithItsBytesWhileItLives) {
  const CapabilityRig rig;
  {
    const BoundSharedPrefix first = rig.sealed_prefix(Bytes{20});
    const BoundSharedPrefix second = rig.sealed_prefix(Bytes{8});

    EXPECT_EQ(rig.snapshot().shared_prefixes, 2U);
    EXPECT_EQ(rig.snapshot().shared_prefix_bytes, 32_B);
  }

  EXPECT_EQ(rig.snapshot().shared_prefixes, 0U);
  EXPECT_EQ(rig.snapshot().shared_prefix_bytes, 0_B);
  EXPECT_THAT(rig.drops->names(), ElementsAre("prefix", "prefix"));
}

TEST(BoundSharedPrefix, AnAssignedOneIsOfTheBindingThatMadeIt) {
  const CapabilityRig rig;
  const MemoryBinding second = must(rig.registry.bind(rig.mechanism));
  const BoundSharedMapping mapping = must(second.shared_mapping()).value();
  BoundSharedPrefix prefix = must(rig.mapping.create_shared_prefix(Bytes{16}));

  prefix = must(mapping.create_shared_prefix(Bytes{16}));

  EXPECT_EQ(prefix.binding_identity(), second.identity());
  must_do(prefix.seal());
  EXPECT_TRUE(mapping.incremental_owned_bytes(prefix).has_value());
}

// W-20
TEST(BoundSharedPrefix, OfARetiredMechanismIsDestroyedAtOnce) {
  const CapabilityRig rig;
  {
    const BoundSharedPrefix prefix = rig.sealed_prefix();
    must_do(rig.registry.retire(rig.mechanism));
  }

  EXPECT_THAT(rig.drops->names(), ElementsAre("prefix"));
  EXPECT_EQ(rig.snapshot().shared_prefixes, 0U);
}

// W-20
TEST(BoundSharedPrefix, AfterTheLossOfTheDeviceIsKeptUntilTheEndIsConfirmed) {
  const CapabilityRig rig;
  {
    const BoundSharedPrefix prefix = rig.sealed_prefix();
    rig.registry.invalidate_device(rig.device, "fell off the bus");
  }

  EXPECT_THAT(rig.drops->names(), IsEmpty());
  EXPECT_EQ(rig.snapshot().shared_prefixes, 1U);
  EXPECT_EQ(rig.snapshot().shared_prefix_bytes, 16_B);
  must_do(rig.registry.confirm_context_terminated(rig.context));

  EXPECT_THAT(rig.drops->names(), ElementsAre("prefix"));
  EXPECT_EQ(rig.snapshot().shared_prefixes, 0U);
  EXPECT_EQ(rig.snapshot().shared_prefix_bytes, 0_B);
}

// W-20
TEST(BoundSharedPrefix, AKeptOneHoldsItsMechanismInTheRegistryUntilTheEndIsConfirmed) {
  const CapabilityRig rig;
  {
    const BoundSharedPrefix prefix = rig.sealed_prefix();
    rig.registry.invalidate_device(rig.device, "fell off the bus");
  }

  const auto refused = rig.registry.remove(rig.mechanism);

  ASSERT_FALSE(refused.has_value());
  ASSERT_NE(refused.error().as<InactiveMechanism>(), nullptr) << refused.error().message();
  must_do(rig.registry.confirm_context_terminated(rig.context));
  EXPECT_TRUE(rig.registry.remove(rig.mechanism).has_value());
}

// W-20
TEST(BoundSharedPrefix, ItsEndIsAnActiveOperationOfTheMechanism) {
  const CapabilityRig rig;
  std::optional<Result<void, BindingError>> confirmed;
  std::optional<BoundSharedPrefix> prefix = rig.sealed_prefix();
  rig.watch([&](std::string_view operation) {
    if (operation == "end_prefix") {
      rig.registry.invalidate_device(rig.device, "fell off the bus");
      confirmed = rig.registry.confirm_context_terminated(rig.context);
    }
  });

  prefix.reset();

  ASSERT_TRUE(confirmed && !confirmed->has_value());
  const auto* error = confirmed->error().as<ContextNotQuiescent>();
  ASSERT_NE(error, nullptr) << confirmed->error().message();
  EXPECT_EQ(error->active_operations, 1U);
  EXPECT_TRUE(rig.registry.confirm_context_terminated(rig.context).has_value());
}

// W-20, X-005
TEST(BoundSharedPrefix, AKeptOneGoesBeforeItsAllocatorEvenIfItsEndRemovesTheMechanism) {
  auto rig = std::make_unique<CapabilityRig>();
  const auto drops = rig->drops;
  const BindingRegistry registry = rig->registry;
  const RegisteredProviderContext context = rig->context;
  const RegisteredMechanism mechanism = rig->mechanism;
  {
    const BoundSharedPrefix prefix = rig->sealed_prefix();
    registry.invalidate_device(rig->device, "fell off the bus");
  }
  rig->watch([&](std::string_view operation) {
    if (operation == "end_prefix") {
      must_do(registry.remove(mechanism));
    }
  });
  rig.reset();

  must_do(registry.confirm_context_terminated(context));

  EXPECT_THAT(drops->names(), ElementsAre("prefix", "allocator"));
}

TEST(BoundSharedPrefixDeathTest, AMovedFromOneStopsTheProgram) {
  const CapabilityRig rig;
  BoundSharedPrefix prefix = rig.sealed_prefix();
  const BoundSharedPrefix moved = std::move(prefix);

  // NOLINTNEXTLINE(bugprone-use-after-move): this is the misuse
  EXPECT_DEATH(static_cast<void>(prefix.mapped_bytes()), "after it was moved from");
}

}  // namespace
}  // namespace memstrata
