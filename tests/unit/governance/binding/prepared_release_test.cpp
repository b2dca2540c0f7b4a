// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "memstrata/contract/release.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "support/binding_rig.hpp"
#include "support/recorder.hpp"
#include "support/release_queues.hpp"

namespace memstrata {
namespace {

using test::BindingRig;
using test::expect_quiescent;
using test::must;
using test::refusal;
using test::RefusingQueue;
using test::ReleaseAnswer;
using State = AllocationReleaseState;
using Kind = QuarantineReason::Kind;
using Rejection = DeferredEnqueueRejection;

static_assert(sizeof(PreparedAllocationRelease) == 16);
static_assert(!std::is_copy_constructible_v<PreparedAllocationRelease>);
static_assert(std::is_nothrow_move_constructible_v<PreparedAllocationRelease>);
static_assert(std::is_nothrow_move_assignable_v<PreparedAllocationRelease>);

PreparedAllocationRelease prepare(const BindingRig& rig, Bytes bytes = 4096_B) {
  OwningAllocation owner = rig.allocate(bytes);
  return must(owner.prepare_release());
}

// B-068
TEST(PreparedReleaseAccessors, SayWhatTheOwnerSaid) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  const AllocationIdentity identity = owner.identity();
  const AllocationSpan span = owner.span();

  const PreparedAllocationRelease request = must(owner.prepare_release());

  EXPECT_TRUE(owner.empty());
  EXPECT_EQ(request.state(), State::queued);
  EXPECT_EQ(request.identity(), identity);
  EXPECT_EQ(request.span(), span);
  EXPECT_EQ(request.device(), rig.device);
  EXPECT_EQ(request.binding_identity(), rig.binding.identity());
  EXPECT_EQ(request.authority(), rig.binding.identity().authority);
  EXPECT_EQ(request.provider_context(), rig.binding.identity().context);
}

TEST(PreparedReleaseAccessors, ItIsQueuedAndNotLive) {
  const BindingRig rig;
  const PreparedAllocationRelease request = prepare(rig);

  EXPECT_EQ(rig.snapshot().live_allocations, 0U);
  EXPECT_EQ(rig.snapshot().queued_releases, 1U);
  EXPECT_EQ(rig.snapshot().active_operations, 1U);
  EXPECT_TRUE(rig.snapshot().retains_ownership());
  EXPECT_FALSE(rig.snapshot().quiescent());
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

// B-068, G-164
TEST(PreparedReleaseRefused, TheVerySameRequestIsLeftAndCanBeExecuted) {
  const BindingRig rig;
  PreparedAllocationRelease request = prepare(rig);
  const AllocationIdentity identity = request.identity();
  RefusingQueue queue(Rejection::closed);

  EXPECT_EQ(queue.enqueue(std::move(request)), Rejection::closed);

  ASSERT_FALSE(request.empty());  // NOLINT(bugprone-use-after-move): a refusal leaves it
  EXPECT_EQ(request.identity(), identity);
  EXPECT_TRUE(request.execute().is_released());
  EXPECT_TRUE(request.empty());
  EXPECT_EQ(rig.allocator->releases(), 1U);
  expect_quiescent(rig.snapshot());
}

// B-069, G-164
TEST(PreparedReleaseRefused, ARefusedRequestThatIsDestroyedIsAbandoned) {
  const BindingRig rig;
  {
    PreparedAllocationRelease request = prepare(rig);
    RefusingQueue queue(Rejection::closed);
    EXPECT_EQ(queue.enqueue(std::move(request)), Rejection::closed);
  }

  EXPECT_EQ(rig.allocator->releases(), 0U);
  EXPECT_EQ(rig.snapshot().quarantined_allocations, 1U);
  EXPECT_EQ(rig.snapshot().queued_releases, 0U);
  EXPECT_EQ(rig.binding.quarantined()[0].reason, QuarantineReason(Kind::abandoned_request));
}

// B-070, G-165
TEST(PreparedReleaseDestruction, IsAQuarantineAndNeverARelease) {
  const BindingRig rig;
  const AllocationIdentity identity = prepare(rig).identity();

  ASSERT_EQ(rig.binding.quarantined().size(), 1U);
  const QuarantinedAllocation kept = rig.binding.quarantined()[0];
  EXPECT_EQ(kept.identity, identity);
  EXPECT_EQ(kept.reason, QuarantineReason(Kind::abandoned_request));
  EXPECT_EQ(kept.state, State::quarantined);
  EXPECT_EQ(kept.retained_bytes, 4096_B);
  EXPECT_EQ(rig.snapshot().queued_releases, 0U);
  EXPECT_EQ(rig.snapshot().active_operations, 0U);
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

TEST(PreparedReleaseQuarantine, SettlesWithoutACallAndKeepsAllBytes) {
  const BindingRig rig;
  PreparedAllocationRelease request = prepare(rig);
  const AllocationSpan span = request.span();

  const ReleaseOutcome outcome = request.quarantine(UnexecutedReason::fence_failed());

  EXPECT_TRUE(request.empty());
  EXPECT_EQ(outcome.state(), State::quarantined);
  EXPECT_EQ(outcome.accounting().allocation_bytes, 4096_B);
  EXPECT_EQ(outcome.accounting().unmapped_bytes, 0_B);
  ASSERT_TRUE(outcome.residual().has_value());
  EXPECT_EQ(outcome.residual()->reason, QuarantineReason(Kind::fence_failed));
  EXPECT_EQ(outcome.residual()->retained_bytes, 4096_B);
  EXPECT_EQ(outcome.residual()->address, span.address);
  EXPECT_EQ(outcome.residual()->alignment, 64_B);
  EXPECT_EQ(rig.allocator->releases(), 0U);
  EXPECT_EQ(rig.snapshot().active_operations, 0U);
}

TEST(PreparedReleaseQuarantine, AQueueThatKnowsOfALossFirstSettlesItAsLost) {
  const BindingRig rig;
  PreparedAllocationRelease request = prepare(rig);

  const ReleaseOutcome outcome = request.quarantine_device_lost();

  EXPECT_EQ(outcome.state(), State::device_lost);
  ASSERT_TRUE(outcome.residual().has_value());
  EXPECT_EQ(outcome.residual()->reason, QuarantineReason(Kind::device_lost));
  EXPECT_EQ(outcome.residual()->retained_bytes, 4096_B);
  EXPECT_EQ(rig.binding.quarantined()[0].state, State::device_lost);
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

// B-081, G-169
TEST(PreparedReleaseLoss, ExecuteAfterTheLossDoesNotCallTheAllocator) {
  const BindingRig rig;
  PreparedAllocationRelease request = prepare(rig);
  rig.registry.invalidate_device(rig.device, "gone");

  const ReleaseOutcome outcome = request.execute();

  EXPECT_EQ(outcome.state(), State::device_lost);
  ASSERT_TRUE(outcome.residual().has_value());
  EXPECT_EQ(outcome.residual()->reason, QuarantineReason(Kind::device_lost));
  EXPECT_EQ(outcome.residual()->retained_bytes, 4096_B);
  EXPECT_TRUE(outcome.failure().empty());
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

TEST(PreparedReleaseLoss, OneThatIsDestroyedAfterTheLossIsAbandoned) {
  const BindingRig rig;
  {
    const PreparedAllocationRelease request = prepare(rig);
    rig.registry.invalidate_device(rig.device, "gone");
  }

  ASSERT_EQ(rig.binding.quarantined().size(), 1U);
  EXPECT_EQ(rig.binding.quarantined()[0].reason, QuarantineReason(Kind::abandoned_request));
  EXPECT_EQ(rig.snapshot().active_operations, 0U);
}

// B-082, G-169
TEST(PreparedReleaseLoss, BlocksRemovalAndTheEndOfTheContext) {
  const BindingRig rig;
  const PreparedAllocationRelease request = prepare(rig);
  must(rig.registry.retire(rig.mechanism));
  EXPECT_EQ(refusal<InactiveMechanism>(rig.registry.remove(rig.mechanism)).lifecycle,
            MechanismLifecycle::retired);
  rig.registry.invalidate_device(rig.device, "gone");

  const auto refused =
      refusal<ContextNotQuiescent>(rig.registry.confirm_context_terminated(rig.context));

  EXPECT_EQ(refused.context, rig.context.identity);
  EXPECT_EQ(refused.active_operations, 1U);
  EXPECT_TRUE(rig.drops->names().empty());
}

// B-083, G-169
TEST(PreparedReleaseLoss, OnceSettledTheEndIsConfirmedAndQuarantineEnds) {
  const BindingRig rig;
  PreparedAllocationRelease request = prepare(rig);
  must(rig.registry.retire(rig.mechanism));
  rig.registry.invalidate_device(rig.device, "gone");
  static_cast<void>(request.execute());
  EXPECT_EQ(rig.binding.quarantined().size(), 1U);
  EXPECT_EQ(refusal<QuarantinedOwnership>(rig.registry.remove(rig.mechanism)).count, 1U);

  must(rig.registry.confirm_context_terminated(rig.context));

  EXPECT_EQ(rig.snapshot().lifecycle, MechanismLifecycle::terminated);
  expect_quiescent(rig.snapshot());
  EXPECT_TRUE(rig.binding.quarantined().empty());
  must(rig.registry.remove(rig.mechanism));
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

TEST(PreparedReleaseMove, MovesTheOneRelease) {
  const BindingRig rig;
  PreparedAllocationRelease first = prepare(rig);
  const AllocationIdentity identity = first.identity();

  PreparedAllocationRelease second = std::move(first);

  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move): what a moved one says
  EXPECT_EQ(second.identity(), identity);
  EXPECT_EQ(rig.snapshot().queued_releases, 1U);
  EXPECT_TRUE(second.execute().is_released());
}

TEST(PreparedReleaseMove, AssignmentAbandonsWhatTheTargetHeld) {
  const BindingRig rig;
  PreparedAllocationRelease target = prepare(rig);
  PreparedAllocationRelease source = prepare(rig);
  const AllocationIdentity abandoned = target.identity();
  const AllocationIdentity kept = source.identity();

  target = std::move(source);

  EXPECT_EQ(target.identity(), kept);
  ASSERT_EQ(rig.binding.quarantined().size(), 1U);
  EXPECT_EQ(rig.binding.quarantined()[0].identity, abandoned);
  EXPECT_EQ(rig.snapshot().queued_releases, 1U);
  EXPECT_TRUE(target.execute().is_released());
}

TEST(PreparedReleaseMove, AssignmentToItselfChangesNothing) {
  const BindingRig rig;
  PreparedAllocationRelease request = prepare(rig);
  PreparedAllocationRelease& same = request;

  request = std::move(same);

  EXPECT_EQ(request.state(), State::queued);
  EXPECT_TRUE(rig.binding.quarantined().empty());
  EXPECT_TRUE(request.execute().is_released());
}

TEST(PreparedReleaseMove, ASettledOneMayBeDestroyedAndAssignedTo) {
  const BindingRig rig;
  PreparedAllocationRelease request = prepare(rig);
  static_cast<void>(request.execute());

  request = prepare(rig);

  EXPECT_FALSE(request.empty());
  EXPECT_TRUE(rig.binding.quarantined().empty());
  EXPECT_TRUE(request.execute().is_released());
  expect_quiescent(rig.snapshot());
}

TEST(PreparedReleaseCallback, TheAllocatorMayReleaseAnotherAllocation) {
  const BindingRig rig;
  PreparedAllocationRelease first = prepare(rig);
  std::optional<PreparedAllocationRelease> second = prepare(rig);
  rig.allocator->on_call([&](const char* operation) {
    if (std::string(operation) == "release" && second) {
      std::optional<PreparedAllocationRelease> inner = std::move(second);
      second.reset();
      EXPECT_TRUE(inner->execute().is_released());
    }
  });

  EXPECT_TRUE(first.execute().is_released());

  EXPECT_EQ(rig.allocator->releases(), 2U);
  expect_quiescent(rig.snapshot());
}

TEST(PreparedReleaseCallback, TheAllocatorCannotReclaimWhatItIsReleasing) {
  const BindingRig rig;
  PreparedAllocationRelease request = prepare(rig);
  const AllocationIdentity identity = request.identity();
  rig.allocator->on_call([&](const char* /*operation*/) {
    EXPECT_EQ(refusal<StaleAllocation>(rig.registry.reclaim(identity)).allocation, identity);
    EXPECT_EQ(
        refusal<StaleAllocation>(rig.registry.reconcile(identity, attest_memory_gone)).allocation,
        identity);
  });

  EXPECT_TRUE(request.execute().is_released());

  EXPECT_EQ(rig.allocator->releases(), 1U);
  expect_quiescent(rig.snapshot());
}

TEST(ReleaseBatch, CountsAsQueuedUntilTheBatchIsSettled) {
  const BindingRig rig;
  PreparedAllocationRelease first = prepare(rig);
  PreparedAllocationRelease second = prepare(rig);
  ReleaseBatch batch;

  EXPECT_TRUE(batch.execute(first).is_released());
  EXPECT_TRUE(batch.execute(second).is_released());
  EXPECT_TRUE(first.empty());
  EXPECT_EQ(rig.snapshot().queued_releases, 2U);
  batch.settle();

  expect_quiescent(rig.snapshot());
  EXPECT_EQ(rig.allocator->releases(), 2U);
}

TEST(ReleaseBatch, WhatWentToQuarantineIsSettledAtOnce) {
  const BindingRig rig;
  PreparedAllocationRelease first = prepare(rig);
  PreparedAllocationRelease second = prepare(rig);
  ReleaseBatch batch;
  rig.allocator->answer_next({.kind = ReleaseAnswer::Kind::unchanged});

  EXPECT_FALSE(batch.execute(first).is_released());
  EXPECT_EQ(rig.snapshot().queued_releases, 1U);
  EXPECT_TRUE(batch.execute(second).is_released());
  batch.settle();

  EXPECT_EQ(rig.snapshot().queued_releases, 0U);
  EXPECT_EQ(rig.snapshot().quarantined_allocations, 1U);
}

TEST(ReleaseBatch, AChangeOfMechanismSettlesTheOneBefore) {
  const BindingRig one;
  const BindingRig two;
  PreparedAllocationRelease first = prepare(one);
  PreparedAllocationRelease second = prepare(two);
  {
    ReleaseBatch batch;
    static_cast<void>(batch.execute(first));
    EXPECT_EQ(one.snapshot().queued_releases, 1U);
    static_cast<void>(batch.execute(second));
    expect_quiescent(one.snapshot());
    EXPECT_EQ(two.snapshot().queued_releases, 1U);
  }

  expect_quiescent(two.snapshot());
}

// Each one settled once: a reference too many would end the mechanism, one too few would keep it.
TEST(ReleaseBatch, SettlesEachTimeOnlyWhatCameSince) {
  std::shared_ptr<test::DropLog> drops;
  {
    const BindingRig rig;
    drops = rig.drops;
    ReleaseBatch batch;
    for (int round = 0; round < 10; ++round) {
      PreparedAllocationRelease request = prepare(rig);
      EXPECT_TRUE(batch.execute(request).is_released());
      batch.settle();
      batch.settle();
      expect_quiescent(rig.snapshot());
    }
    EXPECT_TRUE(drops->names().empty());
  }

  EXPECT_EQ(drops->names().size(), 3U);
}

TEST(ReleaseBatch, OfAnyLengthLeavesABoundedNumberUnsettled) {
  constexpr std::uint64_t releases = 10'000;
  const BindingRig rig;
  ReleaseBatch batch;
  std::uint64_t most = 0;
  for (std::uint64_t i = 0; i < releases; ++i) {
    PreparedAllocationRelease request = prepare(rig);
    EXPECT_TRUE(batch.execute(request).is_released());
    most = std::max(most, rig.snapshot().queued_releases);
  }
  batch.settle();

  EXPECT_LT(most, releases / 2);
  expect_quiescent(rig.snapshot());
}

//
TEST(ReleaseBatch, TheMechanismEndsWithTheBatchThatHoldsItsLastReference) {
  std::shared_ptr<test::DropLog> drops;
  std::vector<PreparedAllocationRelease> requests;
  {
    const BindingRig rig;
    drops = rig.drops;
    requests.push_back(prepare(rig));
    requests.push_back(prepare(rig));
  }
  ReleaseBatch batch;
  for (PreparedAllocationRelease& request : requests) {
    EXPECT_TRUE(batch.execute(request).is_released());
  }
  EXPECT_TRUE(drops->names().empty());

  batch.settle();

  EXPECT_EQ(drops->names(), (std::vector<std::string>{"allocator", "authority", "context"}));
}

TEST(PreparedReleaseDeathTest, ASettledOneStopsTheProgram) {
  const BindingRig rig;
  PreparedAllocationRelease settled = prepare(rig);
  static_cast<void>(settled.execute());
  RefusingQueue queue(Rejection::closed);
  constexpr const char* used = "a prepared release was used after it was settled";

  EXPECT_DEATH(static_cast<void>(settled.identity()), used);
  EXPECT_DEATH(static_cast<void>(settled.binding_identity()), used);
  EXPECT_DEATH(static_cast<void>(settled.device()), used);
  EXPECT_DEATH(static_cast<void>(settled.authority()), used);
  EXPECT_DEATH(static_cast<void>(settled.provider_context()), used);
  EXPECT_DEATH(static_cast<void>(settled.span()), used);
  EXPECT_DEATH(static_cast<void>(settled.state()), used);
  EXPECT_DEATH(static_cast<void>(enqueue_or_quarantine(settled, queue)), used);
}

TEST(PreparedReleaseDeathTest, ASecondSettlementStopsTheProgram) {
  const BindingRig rig;
  PreparedAllocationRelease settled = prepare(rig);
  static_cast<void>(settled.execute());

  EXPECT_DEATH(settled.execute(), "a prepared release was executed after it was settled");
  EXPECT_DEATH(settled.quarantine(UnexecutedReason::fence_failed()),
               "a prepared release was settled twice");
  EXPECT_DEATH(settled.quarantine_device_lost(), "a prepared release was settled twice");
}

TEST(PreparedReleaseDeathTest, AMovedFromOneStopsTheProgram) {
  const BindingRig rig;
  PreparedAllocationRelease first = prepare(rig);
  PreparedAllocationRelease second = std::move(first);

  // NOLINTNEXTLINE(bugprone-use-after-move): the misuse is the test
  EXPECT_DEATH(first.execute(), "a prepared release was executed after it was settled");

  EXPECT_TRUE(second.execute().is_released());
}

}  // namespace
}  // namespace memstrata
