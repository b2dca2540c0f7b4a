// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "memstrata/contract/fence.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"
#include "support/binding_rig.hpp"
#include "support/fault_script.hpp"
#include "support/queue_rig.hpp"

namespace memstrata::fenced_release_queue_loss_test {
namespace {

using test::expect_quiescent;
using test::expect_reasons;
using test::must;
using test::QueueRig;
using Kind = QuarantineReason::Kind;
using Rejection = DeferredEnqueueRejection;
using State = ReleaseQueueState;

constexpr std::chrono::nanoseconds for_ever = std::chrono::nanoseconds::max();

// G-180, G-182
TEST(FencedReleaseQueueLoss, SettlesWhatIsPendingWithoutACall) {
  const QueueRig rig;
  rig.put(3);
  rig.fences->set_all(FenceState::completed);

  rig.queue->mark_device_lost();

  EXPECT_EQ(rig.queue->state(), State::device_lost);
  EXPECT_EQ(rig.queue->pending(), 0U);
  EXPECT_EQ(rig.binding.allocator->releases(), 0U);
  EXPECT_EQ(rig.log->asked, 0U);
  EXPECT_EQ(rig.quarantined().size(), 3U);
  expect_reasons(rig.quarantined(), Kind::device_lost);
  EXPECT_EQ(rig.quarantined()[0].state, AllocationReleaseState::device_lost);
  EXPECT_EQ(rig.queue->counters().quarantined, 3U);
  EXPECT_EQ(rig.queue->counters().executed, 0U);
}

// G-180
TEST(FencedReleaseQueueLoss, KeepsTheMarksAsLongAsTheQueue) {
  QueueRig rig;
  rig.put(100);

  rig.queue->mark_device_lost();
  EXPECT_EQ(rig.log->ended, 0U);

  rig.queue.reset();
  EXPECT_EQ(rig.log->ended, 200U);
}

// G-182
TEST(FencedReleaseQueueLoss, GivesThePinsBackOnceTheBooksAreSettled) {
  const QueueRig rig;
  rig.put(2);
  std::size_t queued = 2;
  rig.log->on_pin_end = [&] { EXPECT_EQ(rig.binding.snapshot().queued_releases, --queued); };

  rig.queue->mark_device_lost();

  EXPECT_EQ(rig.log->pins, 0U);
  EXPECT_EQ(queued, 0U);
  rig.log->on_pin_end = nullptr;
}

// G-182, X-040
TEST(FencedReleaseQueueLoss, LetsTheContextGoWhileTheQueueIsThere) {
  const QueueRig rig;
  rig.put(2);
  rig.binding.registry.invalidate_device(rig.binding.device, ErrorText("gone"));
  const auto early = rig.binding.registry.confirm_context_terminated(rig.binding.context);
  ASSERT_FALSE(early);
  ASSERT_NE(early.error().as<ContextNotQuiescent>(), nullptr);

  rig.queue->mark_device_lost();

  EXPECT_TRUE(rig.binding.registry.confirm_context_terminated(rig.binding.context));
  expect_quiescent(rig.binding.snapshot());
  EXPECT_EQ(rig.binding.allocator->releases(), 0U);
  EXPECT_EQ(rig.log->ended, 0U);
}

TEST(FencedReleaseQueueLoss, RefusesNewWorkAndCallsNobody) {
  const QueueRig rig;
  PreparedAllocationRelease request = rig.prepare();
  const AllocationIdentity identity = request.identity();
  rig.queue->mark_device_lost();

  EXPECT_EQ(rig.queue->enqueue(std::move(request)), Rejection::device_lost);

  EXPECT_EQ(request.identity(), identity);  // NOLINT(bugprone-use-after-move): it stays
  EXPECT_EQ(rig.fences->recorded(), 0U);
  EXPECT_EQ(rig.pins->faults().all_calls(), 0U);
  EXPECT_EQ(rig.queue->poll(), 0U);
  EXPECT_TRUE(rig.queue->wait_idle(for_ever));
  EXPECT_EQ(rig.queue->counters().rejected, 1U);
}

TEST(FencedReleaseQueueLoss, CannotBeReclaimed) {
  const QueueRig rig;
  const AllocationIdentity identity = rig.put();
  rig.queue->mark_device_lost();

  const auto refused = rig.binding.registry.reclaim(identity);

  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().as<NotReclaimable>(), nullptr);
}

TEST(FencedReleaseQueueLoss, IsFinalAndMayBeToldTwice) {
  const QueueRig rig;
  rig.put();
  rig.queue->mark_device_lost();

  rig.queue->mark_device_lost();
  rig.queue->close();
  rig.queue->close_after_drain();

  EXPECT_EQ(rig.queue->state(), State::device_lost);
  EXPECT_EQ(rig.queue->counters().quarantined, 1U);
}

TEST(FencedReleaseQueueLoss, MayBeToldAgainByAnotherThread) {
  const QueueRig rig;
  rig.put();
  {
    const std::jthread first([&rig] { rig.queue->mark_device_lost(); });
  }

  rig.queue->mark_device_lost();

  EXPECT_EQ(rig.queue->state(), State::device_lost);
  EXPECT_EQ(rig.queue->counters().quarantined, 1U);
}

TEST(FencedReleaseQueueLoss, OfAClosedQueueSettlesItsWork) {
  const QueueRig rig;
  rig.put();
  rig.queue->close();

  rig.queue->mark_device_lost();

  EXPECT_EQ(rig.queue->pending(), 0U);
  expect_reasons(rig.quarantined(), Kind::device_lost);
  EXPECT_EQ(rig.quarantined().size(), 1U);
}

TEST(FencedReleaseQueueLoss, IsNotToldToTheIdleCallback) {
  std::size_t calls = 0;
  FencedReleaseQueueOptions options;
  options.on_idle = [&calls] {
    ++calls;
    return true;
  };
  const QueueRig rig(std::move(options));
  rig.put();

  rig.queue->mark_device_lost();
  rig.queue->poll();

  EXPECT_EQ(calls, 0U);
}

// G-180, G-182
TEST(FencedReleaseQueueLoss, ByALostFenceSettlesItselfAndAllBehind) {
  const QueueRig rig;
  rig.put(4);
  rig.fences->set_all(FenceState::completed);
  rig.fences->set(3, FenceState::lost);  // of the second release

  EXPECT_EQ(rig.queue->poll(), 4U);

  EXPECT_EQ(rig.queue->state(), State::device_lost);
  EXPECT_EQ(rig.binding.allocator->releases(), 1U);
  EXPECT_EQ(rig.quarantined().size(), 3U);
  expect_reasons(rig.quarantined(), Kind::device_lost);
  EXPECT_EQ(rig.log->asked, 4U) << "nobody behind it was asked";
  EXPECT_EQ(rig.log->ended, 0U) << "nor ended, with those of the release before";
  EXPECT_EQ(rig.log->pins, 0U);
  EXPECT_EQ(rig.queue->counters().executed, 1U);
  EXPECT_EQ(rig.queue->counters().quarantined, 3U);
}

// A fence is lost at every release in turn: those before are released, the others settled as lost.
// G-182
TEST(FencedReleaseQueueLoss, AtEveryReleaseAgreesWithTheBooks) {
  constexpr std::size_t releases = 130;
  for (const std::size_t nth : {0U, 1U, 62U, 63U, 64U, 65U, 127U, 128U, 129U}) {
    QueueRig rig({}, 1);
    rig.put(releases);
    rig.fences->set_all(FenceState::completed);
    rig.fences->set(nth, FenceState::lost);

    EXPECT_EQ(rig.queue->poll(), releases);

    EXPECT_EQ(rig.queue->pending(), 0U);
    EXPECT_EQ(rig.binding.allocator->releases(), nth);
    EXPECT_EQ(rig.quarantined().size(), releases - nth);
    EXPECT_EQ(rig.queue->counters().released, nth);
    EXPECT_EQ(rig.queue->counters().quarantined, releases - nth);
    EXPECT_EQ(rig.log->pins, 0U);
    rig.queue.reset();
    EXPECT_EQ(rig.log->ended, releases);
  }
}

// G-182
TEST(FencedReleaseQueueLoss, ByAReleaseOfItsOwnLetsThatOneEndAndNoOtherBegin) {
  const QueueRig rig;
  rig.put(70);
  rig.fences->set_all(FenceState::completed);
  rig.binding.allocator->on_call([&](const char*) {
    rig.queue->mark_device_lost();
    EXPECT_EQ(rig.queue->pending(), 70U) << "the run settles them";
  });

  EXPECT_EQ(rig.queue->poll(), 70U);

  EXPECT_EQ(rig.binding.allocator->releases(), 1U);
  EXPECT_EQ(rig.queue->counters().released, 1U);
  EXPECT_EQ(rig.quarantined().size(), 69U);
  EXPECT_EQ(rig.queue->pending(), 0U);
  EXPECT_EQ(rig.log->ended, 0U);
  rig.binding.allocator->on_call([](const char*) {});
}

TEST(FencedReleaseQueueLoss, ByAFenceThatThenAnswersRunsNoRelease) {
  const QueueRig rig;
  rig.put(2);
  rig.fences->set_all(FenceState::completed);
  rig.log->on_ask = [&] { rig.queue->mark_device_lost(); };

  EXPECT_EQ(rig.queue->poll(), 2U);

  EXPECT_EQ(rig.binding.allocator->releases(), 0U);
  EXPECT_EQ(rig.quarantined().size(), 2U);
  EXPECT_EQ(rig.log->ended, 0U);
}

TEST(FencedReleaseQueueLoss, ByTheEndOfAPinSettlesTheRest) {
  const QueueRig rig;
  rig.put(3);
  rig.fences->set_all(FenceState::completed);
  rig.fences->set(2, FenceState::pending);
  rig.log->on_pin_end = [&] { rig.queue->mark_device_lost(); };

  EXPECT_EQ(rig.queue->poll(), 3U);

  EXPECT_EQ(rig.binding.allocator->releases(), 1U);
  EXPECT_EQ(rig.quarantined().size(), 2U);
  EXPECT_EQ(rig.log->pins, 0U);
  rig.log->on_pin_end = nullptr;
}

TEST(FencedReleaseQueueLoss, ByTheIdleCallbackIsFinal) {
  FencedReleaseQueueOptions options;
  QueueRig* where = nullptr;
  options.on_idle = [&where] {
    where->queue->mark_device_lost();
    return false;
  };
  QueueRig rig(std::move(options));
  where = &rig;
  rig.put();
  rig.fences->set_all(FenceState::completed);

  EXPECT_EQ(rig.queue->poll(), 1U);

  EXPECT_EQ(rig.queue->state(), State::device_lost);
}

TEST(FencedReleaseQueueLoss, WhileAMarkIsRecordedKeepsThatMark) {
  QueueRig rig;
  PreparedAllocationRelease request = rig.prepare();
  const AllocationIdentity identity = request.identity();
  rig.fences->on_record = [&] { rig.queue->mark_device_lost(); };

  EXPECT_EQ(rig.queue->enqueue(std::move(request)), Rejection::device_lost);

  EXPECT_EQ(request.identity(), identity);  // NOLINT(bugprone-use-after-move): it stays
  EXPECT_EQ(rig.queue->pending(), 0U);
  EXPECT_EQ(rig.log->ended, 0U);
  EXPECT_EQ(rig.log->pins, 0U);
  rig.queue.reset();
  EXPECT_EQ(rig.log->ended, 2U);
}

TEST(FencedReleaseQueueLoss, WhileAMarkCannotBeRecordedIsTheReasonOfTheRefusal) {
  const QueueRig rig;
  PreparedAllocationRelease request = rig.prepare();
  rig.fences->on_record = [&] { rig.queue->mark_device_lost(); };
  rig.fences->faults().fail_next("record");

  EXPECT_EQ(rig.queue->enqueue(std::move(request)), Rejection::device_lost);
}

TEST(FencedReleaseQueueLoss, InsideARunFollowedByDestructionSettlesAsLost) {
  QueueRig rig;
  rig.put(3);
  rig.fences->set_all(FenceState::completed);
  rig.binding.allocator->on_call([&](const char*) {
    rig.queue->mark_device_lost();
    rig.queue.reset();
  });

  EXPECT_EQ(rig.queue->poll(), 3U);

  EXPECT_EQ(rig.queue, nullptr);
  EXPECT_EQ(rig.binding.allocator->releases(), 1U);
  EXPECT_EQ(rig.quarantined().size(), 2U);
  expect_reasons(rig.quarantined(), Kind::device_lost);
  EXPECT_EQ(rig.log->ended, 6U);
  EXPECT_EQ(rig.log->pins, 0U);
}

}  // namespace
}  // namespace memstrata::fenced_release_queue_loss_test
