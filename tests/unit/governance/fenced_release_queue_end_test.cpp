// SPDX-License-Identifier: Apache-2.0
// How a release queue is closed, destroyed and found idle.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <semaphore>
#include <stdexcept>
#include <utility>
#include <vector>

#include "memstrata/contract/fence.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"
#include "support/binding_rig.hpp"
#include "support/fault_script.hpp"
#include "support/queue_rig.hpp"

namespace memstrata::fenced_release_queue_end_test {
namespace {

using test::expect_quiescent;
using test::expect_reasons;
using test::QueueRig;
using Kind = QuarantineReason::Kind;
using Rejection = DeferredEnqueueRejection;
using State = ReleaseQueueState;

constexpr std::chrono::nanoseconds for_ever = std::chrono::nanoseconds::max();

// G-180
TEST(FencedReleaseQueueClose, RefusesNewWork) {
  const QueueRig rig;
  PreparedAllocationRelease request = rig.prepare();

  rig.queue->close();

  EXPECT_EQ(rig.queue->state(), State::closed);
  EXPECT_EQ(rig.queue->enqueue(std::move(request)), Rejection::closed);
  EXPECT_FALSE(request.empty());  // NOLINT(bugprone-use-after-move): a refused request stays
  EXPECT_EQ(rig.fences->recorded(), 0U);
  EXPECT_EQ(rig.pins->faults().all_calls(), 0U);
}

// G-180
TEST(FencedReleaseQueueClose, FinishesOldWork) {
  const QueueRig rig;
  rig.put(2);

  rig.queue->close();

  EXPECT_EQ(rig.queue->poll(), 0U);
  rig.fences->set_all(FenceState::completed);
  EXPECT_EQ(rig.queue->poll(), 2U);
  expect_quiescent(rig.binding.snapshot());
}

// G-181
TEST(FencedReleaseQueueCloseAfterDrain, TakesWhatTeardownProduces) {
  const QueueRig rig;
  rig.put();
  rig.fences->set_all(FenceState::completed);
  PreparedAllocationRelease late = rig.prepare();

  rig.queue->close_after_drain();

  EXPECT_EQ(rig.queue->state(), State::draining);
  EXPECT_EQ(rig.queue->poll(), 1U);
  EXPECT_EQ(rig.queue->enqueue(std::move(late)), std::nullopt);
  rig.fences->set_all(FenceState::completed);
  EXPECT_EQ(rig.queue->poll(), 1U);
  expect_quiescent(rig.binding.snapshot());
}

// G-181
TEST(FencedReleaseQueueCloseAfterDrain, IsNoHardCloseAndDoesNotUndoOne) {
  const QueueRig rig;
  PreparedAllocationRelease late = rig.prepare();
  rig.queue->close();

  rig.queue->close_after_drain();

  EXPECT_EQ(rig.queue->state(), State::closed);
  EXPECT_EQ(rig.queue->enqueue(std::move(late)), Rejection::closed);
}

TEST(ReleaseQueueStateNext, FollowsTheTable) {
  using Event = ReleaseQueueEvent;
  constexpr std::array<std::array<State, 4>, 4> table = {{
      {State::open, State::closed, State::draining, State::device_lost},
      {State::draining, State::closed, State::draining, State::device_lost},
      {State::closed, State::closed, State::closed, State::device_lost},
      {State::device_lost, State::device_lost, State::device_lost, State::device_lost},
  }};
  for (const auto& [from, close, drain, lose] : table) {
    EXPECT_EQ(next(from, Event::close), close) << to_string(from);
    EXPECT_EQ(next(from, Event::close_after_drain), drain) << to_string(from);
    EXPECT_EQ(next(from, Event::lose_device), lose) << to_string(from);
  }
  EXPECT_EQ(to_string(State::open), "open");
  EXPECT_EQ(to_string(State::draining), "draining");
  EXPECT_EQ(to_string(State::closed), "closed");
  EXPECT_EQ(to_string(State::device_lost), "device lost");
}

// G-181, B-083
TEST(FencedReleaseQueueDestruction, NeitherFreesNorAsksAndPutsPendingWorkIntoQuarantine) {
  QueueRig rig;
  rig.put(3);
  rig.fences->set_all(FenceState::completed);
  std::vector<std::uint64_t> queued;
  rig.log->on_pin_end = [&] { queued.push_back(rig.binding.snapshot().queued_releases); };

  rig.queue.reset();

  EXPECT_EQ(rig.binding.allocator->releases(), 0U);
  EXPECT_EQ(rig.log->asked, 0U);
  EXPECT_EQ(rig.quarantined().size(), 3U);
  expect_reasons(rig.quarantined(), Kind::abandoned_request);
  EXPECT_EQ(rig.log->ended, 6U);
  EXPECT_EQ(rig.log->pins, 0U);
  EXPECT_EQ(queued, (std::vector<std::uint64_t>{2, 1, 0})) << "the books first, then the claims";
  rig.log->on_pin_end = nullptr;
}

TEST(FencedReleaseQueueDestruction, WithoutAWorkerEndsNoWorkEvenIfItWasDraining) {
  QueueRig rig;
  rig.put(2);
  rig.fences->set_all(FenceState::completed);
  rig.queue->close_after_drain();

  rig.queue.reset();

  EXPECT_EQ(rig.binding.allocator->releases(), 0U);
  expect_reasons(rig.quarantined(), Kind::abandoned_request);
  EXPECT_EQ(rig.quarantined().size(), 2U);
}

TEST(FencedReleaseQueueDestruction, ByAReleaseOfItsOwnIsTheLastOne) {
  QueueRig rig;
  rig.put(70);
  rig.fences->set_all(FenceState::completed);
  rig.binding.allocator->on_call([&](const char*) { rig.queue.reset(); });

  EXPECT_EQ(rig.queue->poll(), 1U);

  EXPECT_EQ(rig.binding.allocator->releases(), 1U);
  EXPECT_EQ(rig.log->asked, 2U) << "no other release is looked at";
  EXPECT_EQ(rig.quarantined().size(), 69U);
  expect_reasons(rig.quarantined(), Kind::abandoned_request);
  EXPECT_EQ(rig.log->pins, 0U);
  EXPECT_EQ(rig.log->ended, 140U);
}

TEST(FencedReleaseQueueDestruction, WithoutAWorkerEndsADrainingRunToo) {
  QueueRig rig;
  rig.put(3);
  rig.fences->set_all(FenceState::completed);
  rig.queue->close_after_drain();
  rig.binding.allocator->on_call([&](const char*) { rig.queue.reset(); });

  EXPECT_EQ(rig.queue->poll(), 1U);

  EXPECT_EQ(rig.binding.allocator->releases(), 1U);
  EXPECT_EQ(rig.quarantined().size(), 2U);
}

TEST(FencedReleaseQueueDestruction, ByAFenceRunsNoRelease) {
  QueueRig rig;
  rig.put(2);
  rig.fences->set_all(FenceState::completed);
  rig.log->on_ask = [&] { rig.queue.reset(); };

  EXPECT_EQ(rig.queue->poll(), 0U);

  EXPECT_EQ(rig.binding.allocator->releases(), 0U);
  EXPECT_EQ(rig.quarantined().size(), 2U);
  EXPECT_EQ(rig.log->pins, 0U);
}

TEST(FencedReleaseQueueDestruction, ByTheIdleCallbackIsAllowed) {
  FencedReleaseQueueOptions options;
  QueueRig* where = nullptr;
  options.on_idle = [&where] {
    where->queue.reset();
    return false;
  };
  QueueRig rig(std::move(options));
  where = &rig;
  rig.put();
  rig.fences->set_all(FenceState::completed);

  EXPECT_TRUE(rig.queue->wait_idle(for_ever));

  EXPECT_EQ(rig.queue, nullptr);
  expect_quiescent(rig.binding.snapshot());
}

/// A rig whose idle callback answers from a list, true at its end, and is counted.
struct IdleRig {
  explicit IdleRig(std::vector<int> script = {}) : answers(std::move(script)) {
    FencedReleaseQueueOptions options;
    options.on_idle = [this] {
      const std::size_t call = calls++;
      if (inside) {
        inside();
      }
      if (call < answers.size() && answers[call] < 0) {
        throw std::runtime_error("scripted throw");
      }
      return call >= answers.size() || answers[call] != 0;
    };
    rig.emplace(std::move(options));
  }

  void finish_one() const {
    rig->put();
    rig->fences->set_all(FenceState::completed);
    EXPECT_EQ(rig->queue->poll(), 1U);
  }

  std::vector<int> answers;  ///< 1: content; 0: ask again; -1: throw
  std::size_t calls = 0;
  std::function<void()> inside;
  std::optional<QueueRig> rig;
};

TEST(FencedReleaseQueueOnIdle, IsCalledOnceWhenTheQueueHasBecomeEmpty) {
  const IdleRig idle;
  idle.rig->queue->poll();
  EXPECT_EQ(idle.calls, 0U) << "it has not become empty";
  idle.rig->put(2);
  idle.rig->fences->set(0, FenceState::completed);
  idle.rig->fences->set(1, FenceState::completed);
  idle.rig->queue->poll();
  EXPECT_EQ(idle.calls, 0U) << "one is left";

  idle.rig->fences->set_all(FenceState::completed);
  idle.rig->queue->poll();
  idle.rig->queue->poll();

  EXPECT_EQ(idle.calls, 1U);
  idle.finish_one();
  EXPECT_EQ(idle.calls, 2U);
}

TEST(FencedReleaseQueueOnIdle, IsCalledAgainAtTheNextPollIfItAsksForThat) {
  const IdleRig idle({0, 0, 1});
  idle.finish_one();
  EXPECT_EQ(idle.calls, 1U);

  idle.rig->queue->poll();
  EXPECT_EQ(idle.calls, 2U);
  idle.rig->queue->poll();
  idle.rig->queue->poll();

  EXPECT_EQ(idle.calls, 3U);
}

TEST(FencedReleaseQueueOnIdle, IsCalledAgainAfterAnException) {
  const IdleRig idle({-1, 1});
  idle.finish_one();
  EXPECT_EQ(idle.calls, 1U);

  idle.rig->queue->poll();

  EXPECT_EQ(idle.calls, 2U);
  idle.finish_one();
  EXPECT_EQ(idle.calls, 3U);
}

TEST(FencedReleaseQueueOnIdle, IsNotCalledInsideItself) {
  IdleRig idle;
  std::size_t deepest = 0;
  std::size_t depth = 0;
  idle.inside = [&] {
    deepest = std::max(deepest, ++depth);
    if (idle.calls == 1) {
      idle.finish_one();
    }
    --depth;
  };
  idle.finish_one();

  EXPECT_EQ(deepest, 1U);
  EXPECT_EQ(idle.calls, 2U) << "for what came and went inside";
  idle.inside = nullptr;
}

TEST(FencedReleaseQueueOnIdle, MayWaitForWhatItQueued) {
  IdleRig idle;
  std::optional<bool> idle_inside;
  idle.inside = [&] {
    if (idle.calls == 1) {
      idle.rig->put();
      idle.rig->fences->set_all(FenceState::completed);
      idle_inside = idle.rig->queue->wait_idle(for_ever).has_value();
    }
  };

  idle.finish_one();

  EXPECT_EQ(idle_inside, true);
  idle.inside = nullptr;
}

/// Options of a queue with a worker that polls when work comes, and not again within a test.
FencedReleaseQueueOptions worked(std::move_only_function<bool()> on_idle) {
  FencedReleaseQueueOptions options;
  options.polling = ReleasePolling::worker;
  options.poll_interval = std::chrono::hours(1);
  options.on_idle = std::move(on_idle);
  return options;
}

// G-181
TEST(FencedReleaseQueueWorkerWake, ComesWithEachReleaseThatFindsTheQueueIdle) {
  const auto told = std::make_shared<std::counting_semaphore<>>(0);  // the worker leaves it last
  const QueueRig rig(worked([told] {
    told->release();
    return true;
  }));
  rig.fences->first_state = FenceState::completed;

  for (int i = 0; i < 200; ++i) {
    rig.put();
    told->acquire();
  }

  EXPECT_EQ(rig.binding.allocator->releases(), 200U);
  expect_quiescent(rig.binding.snapshot());
}

// G-181
TEST(FencedReleaseQueueWorkerEnd, LeavesADrainedQueuesReleasesWithTheWorker) {
  QueueRig rig(worked(nullptr));
  const auto gone = std::make_shared<std::latch>(2);
  rig.log->on_pin_end = [gone] { gone->count_down(); };
  rig.fences->first_state = FenceState::completed;
  std::latch asked(1);
  std::latch go_on(1);
  std::atomic<bool> is_first{true};
  rig.log->on_ask = [&] {
    if (is_first.exchange(false)) {
      asked.count_down();
      go_on.wait();
    }
  };
  rig.put(2);
  asked.wait();
  rig.queue->close_after_drain();

  rig.queue.reset();
  EXPECT_EQ(rig.binding.snapshot().queued_releases, 2U);
  go_on.count_down();
  gone->wait();

  EXPECT_EQ(rig.binding.allocator->releases(), 2U);
  expect_quiescent(rig.binding.snapshot());
}

// G-181
TEST(FencedReleaseQueueWorkerEnd, OfAQueueThatWasClosedBeforeItWasDrainedAbandonsItsReleases) {
  QueueRig rig(worked(nullptr));
  const auto gone = std::make_shared<std::latch>(2);
  rig.log->on_pin_end = [gone] { gone->count_down(); };
  rig.put(2);
  rig.queue->close();
  rig.queue->close_after_drain();

  rig.queue.reset();
  gone->wait();  // here, or with the worker if it has them in hand

  expect_reasons(rig.quarantined(), Kind::abandoned_request);
  EXPECT_EQ(rig.quarantined().size(), 2U);
}

// G-181
TEST(FencedReleaseQueueWorkerEnd, FollowsTheWorkOfADrainedQueue) {
  const auto told = std::make_shared<std::binary_semaphore>(0);
  const auto ended = std::make_shared<std::binary_semaphore>(0);
  auto callers = std::make_shared<test::Probe>(std::make_shared<test::DropLog>(), "callback");
  callers->at_end = [ended] { ended->release(); };
  QueueRig rig(worked([told, kept = std::move(callers)] {
    told->release();
    return true;
  }));
  rig.fences->first_state = FenceState::completed;
  rig.put();
  told->acquire();
  rig.queue->close_after_drain();

  rig.queue.reset();
  ended->acquire();

  expect_quiescent(rig.binding.snapshot());
}

TEST(FencedReleaseQueueOnIdle, IsNotCalledForAbandonedWork) {
  IdleRig idle;
  idle.rig->put(2);

  idle.rig->queue.reset();

  EXPECT_EQ(idle.calls, 0U);
}

}  // namespace
}  // namespace memstrata::fenced_release_queue_end_test
