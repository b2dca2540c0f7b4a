// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/binding/deferred_release.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memstrata/contract/release.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "support/binding_rig.hpp"
#include "support/release_queues.hpp"

namespace memstrata {
namespace {

using test::BindingRig;
using test::expect_quiescent;
using test::HoldingQueue;
using test::LyingQueue;
using test::must;
using test::refusal;
using test::RefusingQueue;
using State = AllocationReleaseState;
using Kind = QuarantineReason::Kind;
using Rejection = DeferredEnqueueRejection;
using Lie = LyingQueue::Lie;

/// What became of one allocation of 4096 bytes that was given to `queue`.
struct Given {
  explicit Given(const BindingRig& rig, DeferredReleaseQueue& queue)
      : Given(rig.allocate(), queue) {}

  Given(OwningAllocation owner, DeferredReleaseQueue& queue)
      : identity(owner.identity()), disposition(must(owner.release_deferred(queue))) {
    EXPECT_TRUE(owner.empty());
  }

  AllocationIdentity identity;
  DeferredReleaseDisposition disposition;
};

// B-064, G-163
TEST(DeferredReleaseQueued, LeavesTheAllocatorAloneAndCountsTheRelease) {
  const BindingRig rig;
  HoldingQueue queue;
  OwningAllocation owner = rig.allocate(8192_B);
  const AllocationIdentity identity = owner.identity();

  const DeferredReleaseDisposition disposition = must(owner.release_deferred(queue));

  EXPECT_TRUE(disposition.is_queued());
  EXPECT_EQ(disposition.identity(), identity);
  EXPECT_EQ(disposition.state(), State::queued);
  EXPECT_FALSE(disposition.rejection().has_value());
  EXPECT_FALSE(disposition.outcome().has_value());
  EXPECT_TRUE(owner.empty());
  EXPECT_EQ(queue.pending(), 1U);
  EXPECT_EQ(rig.allocator->releases(), 0U);
  EXPECT_EQ(rig.snapshot().live_allocations, 0U);
  EXPECT_EQ(rig.snapshot().queued_releases, 1U);
  EXPECT_EQ(rig.snapshot().active_operations, 1U);
  EXPECT_TRUE(rig.snapshot().retains_ownership());
}

// B-065, G-163
TEST(DeferredReleaseQueued, ADrainCompletesIt) {
  const BindingRig rig;
  HoldingQueue queue;
  OwningAllocation owner = rig.allocate(8192_B);
  static_cast<void>(must(owner.release_deferred(queue)));

  const std::vector<ReleaseOutcome> outcomes = queue.drain();

  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_TRUE(outcomes[0].is_released());
  EXPECT_EQ(outcomes[0].accounting().allocation_bytes, 8192_B);
  EXPECT_EQ(outcomes[0].accounting().unmapped_bytes, 0_B);
  EXPECT_EQ(rig.allocator->releases(), 1U);
  EXPECT_EQ(queue.pending(), 0U);
  expect_quiescent(rig.snapshot());
}

TEST(DeferredReleaseQueued, OutstandingViewsAreRefusedBeforeTheQueueIsAsked) {
  const BindingRig rig;
  HoldingQueue queue;
  OwningAllocation owner = rig.allocate();
  const OwnedView view = must(owner.view(0_B, 1_B));
  int asked = 0;
  queue.on_enqueue = [&] { ++asked; };

  EXPECT_EQ(refusal<OutstandingViews>(owner.release_deferred(queue)).views, 1U);

  EXPECT_EQ(asked, 0);
  EXPECT_EQ(owner.state(), State::live);
}

// B-066, G-164
TEST(DeferredReleaseRefused, IsADispositionThatSaysWhatIsHeld) {
  const BindingRig rig;
  RefusingQueue queue(Rejection::closed);
  OwningAllocation owner = rig.allocate(1024_B);
  const AllocationIdentity identity = owner.identity();
  const DeviceAddress address = owner.address();

  const DeferredReleaseDisposition disposition = must(owner.release_deferred(queue));

  EXPECT_EQ(disposition.identity(), identity);
  EXPECT_EQ(disposition.state(), State::quarantined);
  EXPECT_EQ(disposition.rejection(), Rejection::closed);
  ASSERT_TRUE(disposition.outcome().has_value());
  const ReleaseOutcome& outcome = *disposition.outcome();
  EXPECT_EQ(outcome.accounting().allocation_bytes, 1024_B);
  EXPECT_EQ(outcome.accounting().unmapped_bytes, 0_B);
  ASSERT_TRUE(outcome.residual().has_value());
  EXPECT_EQ(outcome.residual()->state, State::quarantined);
  EXPECT_EQ(outcome.residual()->reason, QuarantineReason::enqueue_rejected(Rejection::closed));
  EXPECT_EQ(outcome.residual()->retained_bytes, 1024_B);
  EXPECT_EQ(outcome.residual()->address, address);
  EXPECT_EQ(outcome.residual()->alignment, 64_B);
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

// B-067, G-164
TEST(DeferredReleaseRefused, IsOnTheListWithItsRejection) {
  const BindingRig rig;
  constexpr std::array rejections{Rejection::closed, Rejection::full, Rejection::refused};
  for (const Rejection why : rejections) {
    RefusingQueue queue(why);
    const Given given(rig, queue);

    EXPECT_EQ(rig.snapshot().quarantined_allocations, 1U);
    EXPECT_EQ(rig.snapshot().quarantined_bytes, 4096_B);
    EXPECT_EQ(rig.snapshot().queued_releases, 0U);
    ASSERT_EQ(rig.binding.quarantined().size(), 1U);
    EXPECT_EQ(rig.binding.quarantined()[0].identity, given.identity);
    EXPECT_EQ(rig.binding.quarantined()[0].bytes, 4096_B);
    EXPECT_EQ(rig.binding.quarantined()[0].reason, QuarantineReason::enqueue_rejected(why));
    EXPECT_TRUE(must(rig.registry.reclaim(given.identity)).execute().is_released());
  }
}

// X-011, W-19
TEST(DeferredReleaseRefused, ALossThatTheQueueKnowsOfIsRecordedAsLost) {
  const BindingRig rig;
  RefusingQueue queue(Rejection::device_lost);

  const Given given(rig, queue);

  EXPECT_EQ(given.disposition.state(), State::device_lost);
  EXPECT_EQ(given.disposition.rejection(), Rejection::device_lost);
  ASSERT_EQ(rig.binding.quarantined().size(), 1U);
  const QuarantinedAllocation kept = rig.binding.quarantined()[0];
  EXPECT_EQ(kept.state, State::device_lost);
  EXPECT_EQ(kept.reason, QuarantineReason::enqueue_rejected(Rejection::device_lost));
  EXPECT_EQ(refusal<NotReclaimable>(rig.registry.reclaim(given.identity)).state,
            State::device_lost);
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

//
TEST(DeferredReleaseLie, AQueueThatTakesAndDestroysLeavesAnAbandonedRecord) {
  const BindingRig rig;
  LyingQueue queue(Lie::accept_and_destroy);

  const Given given(rig, queue);

  EXPECT_TRUE(given.disposition.is_queued());
  ASSERT_EQ(rig.binding.quarantined().size(), 1U);
  EXPECT_EQ(rig.binding.quarantined()[0].identity, given.identity);
  EXPECT_EQ(rig.binding.quarantined()[0].reason, QuarantineReason(Kind::abandoned_request));
  EXPECT_EQ(rig.snapshot().queued_releases, 0U);
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

TEST(DeferredReleaseLie, ARequestThatIsStillHereWasRefused) {
  for (const Lie lie : {Lie::accept_and_leave, Lie::throw_and_leave, Lie::throw_a_number}) {
    const BindingRig rig;
    LyingQueue queue(lie);

    const Given given(rig, queue);

    EXPECT_EQ(given.disposition.rejection(), Rejection::refused);
    EXPECT_EQ(given.disposition.state(), State::quarantined);
    ASSERT_TRUE(given.disposition.outcome().has_value());
    ASSERT_EQ(rig.binding.quarantined().size(), 1U);
    EXPECT_EQ(rig.binding.quarantined()[0].reason,
              QuarantineReason::enqueue_rejected(Rejection::refused));
    EXPECT_EQ(rig.snapshot().queued_releases, 0U);
    EXPECT_TRUE(must(rig.registry.reclaim(given.identity)).execute().is_released());
  }
}

TEST(DeferredReleaseLie, ARefusalThatConsumedTheRequestHasNoOutcomeOfItsOwn) {
  constexpr std::array lies{std::pair(Lie::refuse_and_consume, Rejection::full),
                            std::pair(Lie::throw_and_consume, Rejection::refused)};
  for (const auto& [lie, rejection] : lies) {
    const BindingRig rig;
    LyingQueue queue(lie);

    const Given given(rig, queue);

    EXPECT_EQ(given.disposition.rejection(), rejection);
    EXPECT_EQ(given.disposition.state(), State::quarantined);
    EXPECT_FALSE(given.disposition.outcome().has_value());
    ASSERT_EQ(rig.binding.quarantined().size(), 1U);
    EXPECT_EQ(rig.binding.quarantined()[0].reason, QuarantineReason(Kind::abandoned_request));
    EXPECT_EQ(rig.snapshot().queued_releases, 0U);
    EXPECT_EQ(rig.allocator->releases(), 0U);
  }
}

TEST(DeferredReleaseQueue, SaysThatNothingIsPendingUnlessItCounts) {
  const RefusingQueue queue(Rejection::closed);

  EXPECT_EQ(queue.pending(), 0U);
}

// B-081, G-169
TEST(DeferredReleaseLoss, AQueuedReleaseEndsLostAndKeepsTheContextUntilThen) {
  std::shared_ptr<test::DropLog> drops;
  HoldingQueue queue;
  {
    const BindingRig rig;
    drops = rig.drops;
    const Given given(rig, queue);
    rig.registry.invalidate_device(rig.device, "gone");
    EXPECT_TRUE(drops->names().empty());

    const std::vector<ReleaseOutcome> outcomes = queue.drain();

    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_EQ(outcomes[0].state(), State::device_lost);
    ASSERT_TRUE(outcomes[0].residual().has_value());
    EXPECT_EQ(outcomes[0].residual()->reason, QuarantineReason(Kind::device_lost));
    EXPECT_EQ(outcomes[0].residual()->retained_bytes, 4096_B);
    EXPECT_EQ(rig.allocator->releases(), 0U);
    ASSERT_EQ(rig.binding.quarantined().size(), 1U);
    EXPECT_EQ(rig.binding.quarantined()[0].identity, given.identity);
    EXPECT_EQ(rig.binding.quarantined()[0].state, State::device_lost);
  }
}

TEST(DeferredReleaseLoss, AQueuedReleaseAloneKeepsAllocatorAuthorityAndContext) {
  std::shared_ptr<test::DropLog> drops;
  HoldingQueue queue;
  {
    const BindingRig rig;
    drops = rig.drops;
    static_cast<void>(Given(rig, queue));
  }
  EXPECT_TRUE(drops->names().empty());

  EXPECT_TRUE(queue.drain().front().is_released());

  EXPECT_EQ(drops->names(), (std::vector<std::string>{"allocator", "authority", "context"}));
}

// B-084, G-170
TEST(DeferredReleaseCallbacks, SeeNoLockOfTheStack) {
  const BindingRig rig;
  HoldingQueue queue;
  int probes = 0;
  // A thread of its own would wait for ever for a lock that the caller of the callback held.
  const auto probe = [&] {
    std::thread([&] {
      EXPECT_TRUE(rig.registry.snapshot(rig.mechanism).has_value());
      static_cast<void>(rig.binding.quarantined());
    }).join();
    ++probes;
  };
  OwningAllocation owner = rig.allocate();
  queue.on_enqueue = probe;
  rig.allocator->on_call([&](const char* /*operation*/) { probe(); });

  static_cast<void>(must(owner.release_deferred(queue)));
  const std::vector<ReleaseOutcome> outcomes = queue.drain();

  EXPECT_EQ(probes, 2);
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_TRUE(outcomes[0].is_released());
  expect_quiescent(rig.snapshot());
}

// B-085, G-170
TEST(DeferredReleaseThreads, EveryOwnerIsReleasedOnceFromEightThreads) {
  constexpr std::size_t threads = 8;
  constexpr std::size_t each = 32;
  const BindingRig rig;
  std::vector<std::vector<OwningAllocation>> owners(threads);
  for (std::vector<OwningAllocation>& of_one : owners) {
    for (std::size_t i = 0; i < each; ++i) {
      of_one.push_back(rig.allocate(Bytes{64 * (i + 1)}));
    }
  }
  std::barrier start(static_cast<std::ptrdiff_t>(threads));
  std::vector<std::size_t> released(threads, 0);
  {
    std::vector<std::jthread> workers;
    for (std::size_t t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        start.arrive_and_wait();
        for (OwningAllocation& owner : owners[t]) {
          released[t] += must(owner.release_now()).is_released() ? 1U : 0U;
        }
      });
    }
  }

  EXPECT_EQ(released, std::vector<std::size_t>(threads, each));
  EXPECT_EQ(rig.allocator->releases(), threads * each);
  EXPECT_EQ(rig.allocator->live(), 0U);
  expect_quiescent(rig.snapshot());
}

// B-086, G-170
TEST(DeferredReleaseBound, AQueueOfEightNeverHoldsMoreAndReleasesAll) {
  constexpr std::size_t bound = 8;
  const BindingRig rig;
  HoldingQueue queue(bound);
  std::size_t released = 0;
  std::uint64_t most_queued = 0;
  for (int i = 0; i < 256; ++i) {
    if (queue.pending() == bound) {
      released += queue.drain().size();
    }
    EXPECT_TRUE(Given(rig, queue).disposition.is_queued());
    EXPECT_LE(queue.pending(), bound);
    most_queued = std::max(most_queued, rig.snapshot().queued_releases);
  }
  released += queue.drain().size();

  EXPECT_EQ(most_queued, bound);
  EXPECT_EQ(released, 256U);
  EXPECT_EQ(rig.allocator->releases(), 256U);
  expect_quiescent(rig.snapshot());
}

TEST(DeferredReleaseBound, AFullQueueRefusesAndWhatItHoldsIsUntouched) {
  const BindingRig rig;
  HoldingQueue queue(1);
  static_cast<void>(Given(rig, queue));

  const Given given(rig, queue);

  EXPECT_EQ(given.disposition.rejection(), Rejection::full);
  EXPECT_EQ(queue.pending(), 1U);
  EXPECT_EQ(rig.snapshot().queued_releases, 1U);
  EXPECT_EQ(rig.snapshot().quarantined_allocations, 1U);
  EXPECT_TRUE(queue.drain().front().is_released());
}

}  // namespace
}  // namespace memstrata
