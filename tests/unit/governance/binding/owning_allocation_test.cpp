// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/binding/owning_allocation.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "support/binding_rig.hpp"
#include "support/recorder.hpp"
#include "support/release_queues.hpp"

namespace memstrata {
namespace {

using test::BindingRig;
using test::expect_quiescent;
using test::HoldingQueue;
using test::must;
using test::refusal;
using test::ReleaseAnswer;
using State = AllocationReleaseState;
using Kind = QuarantineReason::Kind;

static_assert(sizeof(OwningAllocation) == 16);
static_assert(!std::is_copy_constructible_v<OwningAllocation>);
static_assert(std::is_nothrow_move_constructible_v<OwningAllocation>);
static_assert(std::is_nothrow_move_assignable_v<OwningAllocation>);

/// The one allocation that the rig's mechanism has in quarantine.
QuarantinedAllocation only_one(const BindingRig& rig) {
  const QuarantinedAllocations list = rig.binding.quarantined();
  EXPECT_EQ(list.size(), 1U);
  return list[0];
}

/// A second mechanism on the rig's context and authority.
struct OtherMechanism {
  explicit OtherMechanism(const BindingRig& rig)
      : mechanism(must(rig.registry.register_allocator(rig.context, rig.authority, allocator))),
        binding(must(rig.registry.bind(mechanism))) {}

  std::shared_ptr<test::Recorder> allocator = std::make_shared<test::Recorder>();
  RegisteredMechanism mechanism;
  MemoryBinding binding;
};

// B-061, G-162
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
  EXPECT_FALSE(outcome.residual().has_value());
  EXPECT_TRUE(outcome.failure().empty());
  EXPECT_EQ(rig.allocator->releases(), 1U);
  EXPECT_TRUE(owner.empty());
  expect_quiescent(rig.snapshot());
}

// B-062, G-162
TEST(OwningAllocationRelease, ZeroBytesAreAnAllocationLikeAnyOther) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate(0_B);
  EXPECT_TRUE(owner.is_empty());
  EXPECT_FALSE(owner.empty());
  EXPECT_FALSE(owner.address().is_null());

  const ReleaseOutcome outcome = must(owner.release_now());

  EXPECT_TRUE(outcome.is_released());
  EXPECT_EQ(outcome.accounting().allocation_bytes, 0_B);
  EXPECT_EQ(outcome.accounting().unmapped_bytes, 0_B);
  EXPECT_EQ(rig.allocator->live(), 0U);
  expect_quiescent(rig.snapshot());
}

// B-063, G-162
TEST(OwningAllocationRelease, SaysWhatTheAllocatorUnmapped) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  rig.allocator->answer_next({.kind = ReleaseAnswer::Kind::complete, .unmapped = 2048_B});

  const ReleaseOutcome outcome = must(owner.release_now());

  EXPECT_TRUE(outcome.is_released());
  EXPECT_EQ(outcome.accounting().allocation_bytes, 4096_B);
  EXPECT_EQ(outcome.accounting().unmapped_bytes, 2048_B);
  expect_quiescent(rig.snapshot());
}

// B-058, G-161
TEST(OwningAllocationAdopt, AnAdoptedAllocationIsOwnedLikeAnIssuedOne) {
  const BindingRig rig;
  const AllocationSpan made{
      .address = rig.allocator->make(512_B, 64_B), .bytes = 512_B, .alignment = 64_B};

  OwningAllocation owner = must(rig.binding.adopt_allocation(made, attest_sole_owner));

  EXPECT_EQ(owner.span(), made);
  EXPECT_EQ(owner.identity().binding, rig.binding.identity());
  EXPECT_EQ(rig.snapshot().live_allocations, 1U);
  EXPECT_EQ(rig.allocator->calls("allocate"), 0U);
  EXPECT_TRUE(must(owner.release_now()).is_released());
}

// B-059, G-161
TEST(OwningAllocationAdopt, AViewKeepsAnAdoptedAllocationUntilItEnds) {
  const BindingRig rig;
  const AllocationSpan made{
      .address = rig.allocator->make(512_B, 64_B), .bytes = 512_B, .alignment = 64_B};
  OwningAllocation owner = must(rig.binding.adopt_allocation(made, attest_sole_owner));
  {
    const OwnedView view = must(owner.view(0_B, 512_B));
    EXPECT_EQ(refusal<OutstandingViews>(owner.prepare_release()).views, 1U);
    EXPECT_EQ(owner.span(), made);
  }

  const ReleaseOutcome outcome = must(owner.release_now());

  EXPECT_TRUE(outcome.is_released());
  EXPECT_EQ(outcome.accounting().allocation_bytes, 512_B);
  expect_quiescent(rig.snapshot());
}

// B-060, G-161
TEST(OwningAllocationAdopt, ADroppedAdoptedAllocationIsKeptAndNotReleased) {
  const BindingRig rig;
  const DeviceAddress address = rig.allocator->make(256_B, 32_B);
  {
    const OwningAllocation owner = must(rig.binding.adopt_allocation(
        {.address = address, .bytes = 256_B, .alignment = 32_B}, attest_sole_owner));
  }

  const QuarantinedAllocation kept = only_one(rig);
  EXPECT_EQ(kept.retained_bytes, 256_B);
  EXPECT_EQ(kept.address, address);
  EXPECT_EQ(kept.alignment, 32_B);
  EXPECT_EQ(rig.allocator->releases(), 0U);
  EXPECT_TRUE(rig.allocator->is_live(address));
}

// B-071, G-165
TEST(OwningAllocationDrop, GoesToQuarantineWithoutACall) {
  const BindingRig rig;
  const AllocationIdentity identity = rig.allocate().identity();

  const QuarantinedAllocation kept = only_one(rig);
  EXPECT_EQ(kept.identity, identity);
  EXPECT_EQ(kept.state, State::quarantined);
  EXPECT_EQ(kept.reason, QuarantineReason(Kind::owner_dropped));
  EXPECT_EQ(kept.retained_bytes, 4096_B);
  EXPECT_EQ(rig.snapshot().live_allocations, 0U);
  EXPECT_EQ(rig.snapshot().active_operations, 0U);
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

TEST(OwningAllocationDrop, AfterTheLossOfTheDeviceItStaysLiveUntilTheEndIsConfirmed) {
  const BindingRig rig;
  std::optional<OwningAllocation> owner = rig.allocate();
  const AllocationIdentity identity = owner->identity();
  rig.registry.invalidate_device(rig.device, "gone");
  owner.reset();

  EXPECT_EQ(rig.snapshot().live_allocations, 1U);
  EXPECT_TRUE(rig.binding.quarantined().empty());
  EXPECT_EQ(
      refusal<StaleAllocation>(rig.registry.reconcile(identity, attest_memory_gone)).allocation,
      identity);
  must(rig.registry.confirm_context_terminated(rig.context));
  expect_quiescent(rig.snapshot());
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

TEST(OwningAllocationDrop, OfAnOwnerThatOutlivesItsMechanismsEndChangesNothing) {
  const BindingRig rig;
  {
    OwningAllocation owner = rig.allocate();
    rig.registry.invalidate_device(rig.device, "gone");
    must(rig.registry.confirm_context_terminated(rig.context));
    EXPECT_EQ(refusal<InactiveMechanism>(owner.release_now()).lifecycle,
              MechanismLifecycle::terminated);
  }

  expect_quiescent(rig.snapshot());
}

// B-075, G-167
TEST(OwningAllocationRelease, StoppedMidwayNamesWhatIsStillHeld) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  const AllocationSpan span = owner.span();
  rig.allocator->answer_next(
      {.kind = ReleaseAnswer::Kind::partial, .unmapped = 2048_B, .retained = 2048_B});

  const ReleaseOutcome outcome = must(owner.release_now());

  EXPECT_EQ(outcome.state(), State::partially_unmapped);
  EXPECT_EQ(outcome.accounting().allocation_bytes, 4096_B);
  EXPECT_EQ(outcome.accounting().unmapped_bytes, 2048_B);
  ASSERT_TRUE(outcome.residual().has_value());
  EXPECT_EQ(outcome.residual()->state, State::partially_unmapped);
  EXPECT_EQ(outcome.residual()->reason, QuarantineReason(Kind::partial_release));
  EXPECT_EQ(outcome.residual()->retained_bytes, 2048_B);
  EXPECT_EQ(outcome.residual()->address, span.address);
  EXPECT_EQ(outcome.residual()->alignment, 64_B);
}

// B-076, G-167
TEST(OwningAllocationRelease, ASecondTryAfterAPartialOneIsImpossible) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  const AllocationIdentity identity = owner.identity();
  rig.allocator->answer_next(
      {.kind = ReleaseAnswer::Kind::partial, .unmapped = 2048_B, .retained = 2048_B});
  static_cast<void>(must(owner.release_now()));

  EXPECT_TRUE(owner.empty());
  EXPECT_EQ(refusal<NotReclaimable>(rig.registry.reclaim(identity)).state,
            State::partially_unmapped);
  EXPECT_EQ(rig.allocator->releases(), 1U);
}

// B-077, G-167
TEST(OwningAllocationRelease, APartialOneIsChargedAndBlocksRemoval) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  rig.allocator->answer_next(
      {.kind = ReleaseAnswer::Kind::partial, .unmapped = 2048_B, .retained = 2048_B});
  static_cast<void>(must(owner.release_now()));
  must(rig.registry.retire(rig.mechanism));

  EXPECT_EQ(rig.snapshot().quarantined_allocations, 1U);
  EXPECT_EQ(rig.snapshot().quarantined_bytes, 2048_B);
  const auto refused = refusal<QuarantinedOwnership>(rig.registry.remove(rig.mechanism));
  EXPECT_EQ(refused.mechanism, rig.mechanism.identity);
  EXPECT_EQ(refused.count, 1U);
}

// B-078, G-160, G-168
TEST(OwningAllocationRelease, ARefusalByTheAllocatorKeepsAllBytes) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  const AllocationIdentity identity = owner.identity();
  rig.allocator->answer_next({.kind = ReleaseAnswer::Kind::unchanged});

  const ReleaseOutcome outcome = must(owner.release_now());

  EXPECT_EQ(outcome.state(), State::quarantined);
  EXPECT_EQ(outcome.accounting().unmapped_bytes, 0_B);
  ASSERT_TRUE(outcome.residual().has_value());
  EXPECT_EQ(outcome.residual()->reason, QuarantineReason(Kind::allocator_refused));
  EXPECT_EQ(outcome.residual()->retained_bytes, 4096_B);
  EXPECT_EQ(only_one(rig).identity, identity);
  EXPECT_EQ(only_one(rig).reason, QuarantineReason(Kind::allocator_refused));
}

// W-9
TEST(OwningAllocationRelease, TheOutcomeSaysWhyTheAllocatorDidNotComplete) {
  const BindingRig rig;
  OwningAllocation refused = rig.allocate();
  OwningAllocation midway = rig.allocate();
  OwningAllocation thrown = rig.allocate();
  rig.allocator->answer_next({.kind = ReleaseAnswer::Kind::unchanged});
  rig.allocator->answer_next(
      {.kind = ReleaseAnswer::Kind::partial, .unmapped = 1_B, .retained = 4095_B});
  rig.allocator->answer_next({.kind = ReleaseAnswer::Kind::throws});

  EXPECT_EQ(must(refused.release_now()).failure().view(), "driver busy");
  EXPECT_EQ(must(midway.release_now()).failure().view(), "stopped midway");
  EXPECT_EQ(must(thrown.release_now()).failure().view(), "scripted throw");
}

// X-008, W-14
TEST(OwningAllocationRelease, AnAllocatorThatThrowsLeavesNothingQueued) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  rig.allocator->answer_next({.kind = ReleaseAnswer::Kind::throws});

  const ReleaseOutcome outcome = must(owner.release_now());

  EXPECT_EQ(outcome.state(), State::quarantined);
  ASSERT_TRUE(outcome.residual().has_value());
  EXPECT_EQ(outcome.residual()->reason, QuarantineReason(Kind::release_aborted));
  EXPECT_EQ(outcome.residual()->retained_bytes, 4096_B);
  EXPECT_EQ(rig.snapshot().queued_releases, 0U);
  EXPECT_EQ(rig.snapshot().active_operations, 0U);
  EXPECT_EQ(rig.snapshot().quarantined_bytes, 4096_B);
}

//
TEST(OwningAllocationRelease, AThrownNumberIsAnAbortOfUnknownType) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  rig.allocator->on_call([](const char* operation) {
    if (std::string(operation) == "release") {
      throw 7;  // NOLINT(hicpp-exception-baseclass): foreign code throws what it likes
    }
  });

  const ReleaseOutcome outcome = must(owner.release_now());

  EXPECT_EQ(outcome.failure().view(), "an exception of unknown type");
  EXPECT_EQ(only_one(rig).reason, QuarantineReason(Kind::release_aborted));
  EXPECT_EQ(rig.snapshot().queued_releases, 0U);
}

// X-013, W-16
TEST(OwningAllocationRelease, TheResidualIsTheRequestsOwnAddressAndAlignment) {
  static_assert(!std::is_constructible_v<MechanismRelease::Partial, ResidualOwnership>);
  const BindingRig rig;
  OwningAllocation owner = rig.allocate(8192_B, 256_B);
  const AllocationSpan span = owner.span();
  rig.allocator->answer_next(
      {.kind = ReleaseAnswer::Kind::partial, .unmapped = 1_B, .retained = 16384_B});

  const ReleaseOutcome outcome = must(owner.release_now());

  ASSERT_TRUE(outcome.residual().has_value());
  EXPECT_EQ(outcome.residual()->address, span.address);
  EXPECT_EQ(outcome.residual()->alignment, 256_B);
  EXPECT_EQ(outcome.residual()->retained_bytes, 16384_B);
  EXPECT_EQ(only_one(rig).address, span.address);
  EXPECT_EQ(only_one(rig).bytes, 8192_B);
}

// B-079, G-168
TEST(OwningAllocationIdentity, TheNextAllocationHasANewGeneration) {
  const BindingRig rig;
  OwningAllocation first = rig.allocate();
  const AllocationIdentity before = first.identity();
  static_cast<void>(must(first.release_now()));

  OwningAllocation second = rig.allocate();

  EXPECT_NE(second.identity().generation, before.generation);
  EXPECT_NE(second.identity(), before);
  static_cast<void>(must(second.release_now()));
  EXPECT_EQ(rig.allocator->releases(), 2U);
  EXPECT_EQ(rig.allocator->live(), 0U);
  expect_quiescent(rig.snapshot());
}

// B-080, G-169
TEST(OwningAllocationRelease, AfterTheLossOfTheDeviceTheOwnerStaysAsItWas) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  const AllocationIdentity identity = owner.identity();
  HoldingQueue queue;
  rig.registry.invalidate_device(rig.device, "bus error");

  EXPECT_EQ(refusal<DeviceLost>(owner.release_now()).reason.view(), "bus error");
  EXPECT_EQ(refusal<DeviceLost>(owner.prepare_release()).device, rig.device);
  EXPECT_EQ(refusal<DeviceLost>(owner.release_deferred(queue)).device, rig.device);

  EXPECT_EQ(owner.state(), State::live);
  EXPECT_EQ(owner.size(), 4096_B);
  EXPECT_EQ(owner.identity(), identity);
  EXPECT_EQ(queue.pending(), 0U);
  EXPECT_EQ(rig.snapshot().live_allocations, 1U);
  EXPECT_EQ(rig.snapshot().queued_releases, 0U);
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

TEST(OwningAllocationRelease, ALossWhileTheAllocatorRunsDoesNotUndoWhatItDid) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  rig.allocator->on_call([&](const char* operation) {
    if (std::string(operation) == "release") {
      rig.registry.invalidate_device(rig.device, "gone");
      EXPECT_EQ(refusal<ContextNotQuiescent>(rig.registry.confirm_context_terminated(rig.context))
                    .active_operations,
                1U);
    }
  });

  EXPECT_TRUE(must(owner.release_now()).is_released());

  expect_quiescent(rig.snapshot());
}

// B-087, B-035, G-171
TEST(OwningAllocationBinding, AnotherBindingMayNotRelease) {
  const BindingRig rig;
  const MemoryBinding second = must(rig.registry.bind(rig.mechanism));
  const OtherMechanism other(rig);
  OwningAllocation owner = rig.allocate();
  const AllocationIdentity identity = owner.identity();

  for (const MemoryBinding* binding : {&second, &other.binding}) {
    const auto refused = refusal<BindingMismatch>(binding->release_now(owner));
    EXPECT_EQ(refused.expected, binding->identity().id);
    EXPECT_EQ(refused.actual, rig.binding.identity().id);
    EXPECT_EQ(refusal<BindingMismatch>(binding->prepare_release(owner)).expected,
              binding->identity().id);
  }

  EXPECT_EQ(owner.identity(), identity);
  EXPECT_EQ(rig.snapshot().quarantined_allocations, 0U);
  EXPECT_EQ(rig.allocator->releases(), 0U);
  EXPECT_TRUE(must(rig.binding.release_now(owner)).is_released());
  EXPECT_EQ(rig.allocator->releases(), 1U);
  EXPECT_EQ(other.allocator->releases(), 0U);
  expect_quiescent(rig.snapshot());
}

//
TEST(OwningAllocationBinding, TheLifecycleIsRefusedBeforeTheBinding) {
  const BindingRig rig(DeviceKey::device(0));
  const MemoryBinding second = must(rig.registry.bind(rig.mechanism));
  OwningAllocation owner = rig.allocate();
  rig.registry.invalidate_device(rig.device, "gone");

  EXPECT_EQ(refusal<DeviceLost>(second.prepare_release(owner)).device, rig.device);
  EXPECT_EQ(refusal<DeviceLost>(second.release_now(owner)).device, rig.device);
}

TEST(OwningAllocationBinding, ARetiredMechanismStillReleases) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  must(rig.registry.retire(rig.mechanism));

  EXPECT_TRUE(must(rig.binding.release_now(owner)).is_released());

  must(rig.registry.remove(rig.mechanism));
}

TEST(OwningAllocationAllocate, AnAlignmentThatIsNoPowerOfTwoIsRefusedBeforeTheAllocator) {
  const BindingRig rig;
  constexpr std::array odd{0_B, 3_B, 96_B, Bytes::max()};
  for (const Bytes alignment : odd) {
    const auto refused = rig.binding.allocate(64_B, alignment);
    const auto adopted = rig.binding.adopt_allocation(
        {.address = DeviceAddress{0x1000}, .bytes = 64_B, .alignment = alignment},
        attest_sole_owner);

    ASSERT_FALSE(refused.has_value());
    ASSERT_FALSE(adopted.has_value());
    const auto* memory = refused.error().as<MemoryError>();
    ASSERT_NE(memory, nullptr);
    ASSERT_NE(std::get_if<InvalidRequest>(&memory->kind), nullptr);
    EXPECT_EQ(std::get<InvalidRequest>(memory->kind).requested, 64_B);
    EXPECT_NE(adopted.error().as<MemoryError>(), nullptr);
  }

  EXPECT_EQ(rig.allocator->calls("allocate"), 0U);
  expect_quiescent(rig.snapshot());
}

// Otherwise the books would grow with every refusal, up to the most that they can count.
TEST(OwningAllocationAllocate, AFailureLeavesItsPlaceToTheNextAllocation) {
  for (const char* const fault : {"allocate", "allocate_throws"}) {
    SCOPED_TRACE(fault);
    const BindingRig rig;
    OwningAllocation before = rig.allocate();
    const std::uint32_t place = before.identity().place;
    ASSERT_TRUE(must(before.release_now()).is_released());
    rig.allocator->faults().fail_next(fault);

    ASSERT_FALSE(rig.binding.allocate(64_B, 64_B).has_value());

    EXPECT_EQ(rig.allocate().identity().place, place);
  }
}

TEST(OwningAllocationMove, MovesTheOneOwnership) {
  const BindingRig rig;
  OwningAllocation first = rig.allocate();
  const AllocationIdentity identity = first.identity();

  OwningAllocation second = std::move(first);

  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move): what a moved one says
  EXPECT_EQ(second.identity(), identity);
  EXPECT_EQ(rig.snapshot().live_allocations, 1U);
  EXPECT_TRUE(must(second.release_now()).is_released());
}

TEST(OwningAllocationMove, AssignmentDropsWhatTheTargetOwned) {
  const BindingRig rig;
  OwningAllocation target = rig.allocate();
  OwningAllocation source = rig.allocate();
  const AllocationIdentity dropped = target.identity();
  const AllocationIdentity kept = source.identity();

  target = std::move(source);

  EXPECT_EQ(target.identity(), kept);
  EXPECT_EQ(only_one(rig).identity, dropped);
  EXPECT_EQ(rig.snapshot().live_allocations, 1U);
  EXPECT_TRUE(must(target.release_now()).is_released());
}

TEST(OwningAllocationMove, AssignmentToItselfChangesNothing) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  OwningAllocation& same = owner;

  owner = std::move(same);

  EXPECT_EQ(owner.state(), State::live);
  EXPECT_TRUE(rig.binding.quarantined().empty());
  EXPECT_TRUE(must(owner.release_now()).is_released());
}

TEST(OwningAllocationMove, AnEmptyOwnerTakesAnAllocationAgain) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  static_cast<void>(must(owner.release_now()));

  owner = rig.allocate();

  EXPECT_FALSE(owner.empty());
  EXPECT_TRUE(rig.binding.quarantined().empty());
  EXPECT_TRUE(must(owner.release_now()).is_released());
}

TEST(OwningAllocationDeathTest, AnEmptyOwnerAnswersNothingAndStopsTheProgram) {
  const BindingRig rig;
  OwningAllocation empty = rig.allocate();
  static_cast<void>(must(empty.release_now()));
  HoldingQueue queue;
  constexpr const char* message = "an owner was used after its allocation was released or moved";

  EXPECT_DEATH(static_cast<void>(empty.identity()), message);
  EXPECT_DEATH(static_cast<void>(empty.binding_identity()), message);
  EXPECT_DEATH(static_cast<void>(empty.span()), message);
  EXPECT_DEATH(static_cast<void>(empty.state()), message);
  EXPECT_DEATH(static_cast<void>(empty.outstanding_views()), message);
  EXPECT_DEATH(static_cast<void>(empty.view(0_B, 0_B)), message);
  EXPECT_DEATH(static_cast<void>(empty.prepare_release()), message);
  EXPECT_DEATH(static_cast<void>(empty.release_now()), message);
  EXPECT_DEATH(static_cast<void>(empty.release_deferred(queue)), message);
  EXPECT_DEATH(static_cast<void>(rig.binding.release_now(empty)), message);
  EXPECT_DEATH(static_cast<void>(rig.binding.prepare_release(empty)), message);
}

TEST(OwningAllocationDeathTest, AMovedFromOwnerStopsTheProgram) {
  const BindingRig rig;
  OwningAllocation first = rig.allocate();
  OwningAllocation second = std::move(first);

  // NOLINTNEXTLINE(bugprone-use-after-move): the misuse is the test
  EXPECT_DEATH(static_cast<void>(first.release_now()),
               "used after its allocation was released or moved");

  EXPECT_TRUE(must(second.release_now()).is_released());
}

}  // namespace
}  // namespace memstrata
