// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "memstrata/contract/fence.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"
#include "support/binding_rig.hpp"
#include "support/queue_rig.hpp"

namespace memstrata {
namespace {

using test::expect_quiescent;
using test::expect_reasons;
using test::QueueRig;
using Kind = QuarantineReason::Kind;
using Rejection = DeferredEnqueueRejection;
using State = ReleaseQueueState;
using std::chrono_literals::operator""h;

constexpr std::chrono::nanoseconds for_ever = std::chrono::nanoseconds::max();
constexpr std::chrono::nanoseconds never = 1h;  // longer than a test

/// The queue has no work left and has said so on whichever thread. Set once, on the first time.
class IdleSignal {
 public:
  [[nodiscard]] FencedReleaseQueueOptions options(std::chrono::nanoseconds poll_interval) {
    FencedReleaseQueueOptions made;
    made.polling = ReleasePolling::worker;
    made.poll_interval = poll_interval;
    made.on_idle = [state = state_] {
      if (!state->told.exchange(true)) {
        state->promise.set_value();
      }
      return true;
    };
    return made;
  }

  void wait() { state_->promise.get_future().wait(); }

 private:
  struct State {
    std::promise<void> promise;
    std::atomic<bool> told{false};
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// G-181
TEST(FencedReleaseQueueWorker, DrainsAlone) {
  IdleSignal idle;
  const QueueRig rig(idle.options(FencedReleaseQueueOptions{}.poll_interval));
  rig.put(300);
  EXPECT_EQ(rig.binding.allocator->releases(), 0U);

  rig.fences->set_all(FenceState::completed);
  idle.wait();

  EXPECT_EQ(rig.queue->pending(), 0U);
  EXPECT_EQ(rig.log->pins, 0U);
  expect_quiescent(rig.binding.snapshot());
}

// The worker waits without an end for the first release; its arrival alone wakes it.
// G-181
TEST(FencedReleaseQueueWorker, IsWokenByTheFirstRelease) {
  for (int round = 0; round < 50; ++round) {
    IdleSignal idle;
    const QueueRig rig(idle.options(never));
    rig.fences->first_state = FenceState::completed;

    rig.put();
    idle.wait();

    expect_quiescent(rig.binding.snapshot());
  }
}

// G-181
TEST(FencedReleaseQueueWorker, AsksTheIdleCallbackUntilItIsContent) {
  const auto content = std::make_shared<std::promise<void>>();
  const auto calls = std::make_shared<std::atomic<int>>(0);
  FencedReleaseQueueOptions options;
  options.polling = ReleasePolling::worker;
  options.on_idle = [content, calls] {
    if (++*calls < 4) {
      return false;
    }
    content->set_value();
    return true;
  };
  const QueueRig rig(std::move(options));
  rig.fences->first_state = FenceState::completed;

  rig.put();
  content->get_future().wait();

  EXPECT_EQ(*calls, 4);
}

// G-181
TEST(FencedReleaseQueueWorker, EndsTheWorkOfADrainedQueueWhoseHandleIsGone) {
  IdleSignal idle;
  QueueRig rig(idle.options(FencedReleaseQueueOptions{}.poll_interval));
  rig.put(3);
  rig.queue->close_after_drain();
  rig.put(3);

  rig.queue.reset();
  EXPECT_EQ(rig.binding.allocator->releases(), 0U) << "destruction neither frees nor waits";
  rig.fences->set_all(FenceState::completed);
  idle.wait();

  EXPECT_EQ(rig.binding.allocator->releases(), 6U);
  expect_quiescent(rig.binding.snapshot());
}

// G-181
TEST(FencedReleaseQueueWorker, OfAClosedDrainedQueueStillEndsTheWork) {
  IdleSignal idle;
  QueueRig rig(idle.options(FencedReleaseQueueOptions{}.poll_interval));
  rig.put();
  rig.queue->close_after_drain();
  rig.queue->close();

  rig.queue.reset();
  rig.fences->set_all(FenceState::completed);
  idle.wait();

  expect_quiescent(rig.binding.snapshot());
}

// G-181
TEST(FencedReleaseQueueWorker, LeavesTheWorkOfAQueueThatWasNotDrained) {
  for (int round = 0; round < 50; ++round) {
    FencedReleaseQueueOptions options;
    options.polling = ReleasePolling::worker;
    options.poll_interval = std::chrono::nanoseconds(0);  // in a poll at most times
    QueueRig rig(std::move(options));
    constexpr std::ptrdiff_t releases = 5;
    const auto gone = std::make_shared<std::latch>(releases);
    rig.log->on_pin_end = [gone] { gone->count_down(); };
    rig.put(releases);

    rig.queue.reset();
    gone->wait();  // here, or with the worker if it had them in hand

    EXPECT_EQ(rig.binding.allocator->releases(), 0U);
    EXPECT_EQ(rig.quarantined().size(), 5U);
    expect_reasons(rig.quarantined(), Kind::abandoned_request);
  }
}

// G-181, G-170
TEST(FencedReleaseQueueWorker, InTheAllocatorDoesNotBlockDestruction) {
  FencedReleaseQueueOptions options;
  options.polling = ReleasePolling::worker;
  QueueRig rig(std::move(options));
  std::latch inside(1);
  std::latch go_on(1);
  const auto gone = std::make_shared<std::latch>(3);
  rig.log->on_pin_end = [gone] { gone->count_down(); };
  std::vector<PreparedAllocationRelease> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(rig.prepare());
  }
  rig.binding.allocator->on_call([&](const char*) {
    inside.count_down();
    go_on.wait();
  });
  for (PreparedAllocationRelease& request : requests) {
    ASSERT_EQ(rig.queue->enqueue(std::move(request)), std::nullopt);
  }
  rig.fences->set_all(FenceState::completed);
  inside.wait();

  rig.queue.reset();
  go_on.count_down();
  gone->wait();

  EXPECT_EQ(rig.binding.allocator->releases(), 1U);
  EXPECT_EQ(rig.quarantined().size(), 2U);
  expect_reasons(rig.quarantined(), Kind::abandoned_request);
}

// G-179, G-170
TEST(FencedReleaseQueuePollers, RunEachReleaseOnce) {
  constexpr std::size_t releases = 2000;
  constexpr std::ptrdiff_t threads = 4;
  const QueueRig rig({}, 1);
  rig.put(releases);
  rig.fences->set_all(FenceState::completed);
  std::barrier start(threads);
  std::atomic<std::size_t> settled{0};
  {
    std::vector<std::jthread> pollers;
    for (std::ptrdiff_t i = 0; i < threads; ++i) {
      pollers.emplace_back([&] {
        start.arrive_and_wait();
        while (rig.queue->pending() != 0) {
          settled += rig.queue->poll();
          std::this_thread::yield();
        }
      });
    }
  }

  EXPECT_EQ(settled, releases);
  EXPECT_EQ(rig.binding.allocator->releases(), releases);
  EXPECT_EQ(rig.queue->counters().released, releases);
  expect_quiescent(rig.binding.snapshot());
}

/// Queues `each` releases from each of eight threads; full means again.
void enqueue_from_eight(const QueueRig& rig, std::size_t each, std::atomic<bool>& over_bound) {
  std::barrier start(8);
  std::vector<std::jthread> owners;
  for (int i = 0; i < 8; ++i) {
    owners.emplace_back([&] {
      start.arrive_and_wait();
      for (std::size_t n = 0; n < each; ++n) {
        PreparedAllocationRelease request = rig.prepare();
        while (const auto refused = rig.queue->enqueue(std::move(request))) {
          if (*refused != Rejection::full) {
            return;
          }
          std::this_thread::yield();
        }
        over_bound = over_bound || rig.queue->pending() > 8;
      }
    });
  }
}

// G-170, G-181, G-179
TEST(FencedReleaseQueueStress, ABoundHoldsWithEightOwnersAndTwoPollers) {
  constexpr std::size_t each = 250;
  const QueueRig rig({.capacity = 8}, 1);
  rig.fences->first_state = FenceState::completed;
  std::atomic<bool> done{false};
  std::atomic<bool> over_bound{false};
  {
    std::vector<std::jthread> pollers;
    for (int i = 0; i < 2; ++i) {
      pollers.emplace_back([&] {
        while (!done || rig.queue->pending() != 0) {
          rig.queue->poll();
          std::this_thread::yield();
        }
      });
    }
    enqueue_from_eight(rig, each, over_bound);
    done = true;
  }

  EXPECT_FALSE(over_bound);
  EXPECT_EQ(rig.binding.allocator->releases(), 8 * each);
  EXPECT_EQ(rig.queue->counters().accepted, 8 * each);
  EXPECT_EQ(rig.log->ended, rig.fences->recorded());
  EXPECT_EQ(rig.log->pins, 0U);
  expect_quiescent(rig.binding.snapshot());
}

TEST(FencedReleaseQueueStress, WaitersOfAllKindsSeeTheEndOfTheWork) {
  IdleSignal idle;
  const QueueRig rig(idle.options(FencedReleaseQueueOptions{}.poll_interval));
  rig.put(500);
  std::atomic<int> succeeded{0};
  {
    std::vector<std::jthread> waiters;
    for (int i = 0; i < 4; ++i) {
      waiters.emplace_back([&] { succeeded += rig.queue->wait_idle(for_ever) ? 1 : 0; });
    }
    rig.fences->set_all(FenceState::completed);
  }
  idle.wait();

  EXPECT_EQ(succeeded, 4);
  expect_quiescent(rig.binding.snapshot());
}

TEST(FencedReleaseQueueStress, TheIdleCallbackRunsOnOneThreadAtATime) {
  std::atomic<int> inside{0};
  std::atomic<bool> together{false};
  FencedReleaseQueueOptions options;
  options.on_idle = [&] {
    together = together || inside.fetch_add(1) != 0;
    std::this_thread::yield();
    --inside;
    return true;
  };
  const QueueRig rig(std::move(options), 1);
  rig.fences->first_state = FenceState::completed;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < 200; ++n) {
          rig.put();
          rig.queue->poll();
        }
      });
    }
  }
  EXPECT_TRUE(rig.queue->wait_idle(for_ever));

  EXPECT_FALSE(together);
}

// G-180, G-182
TEST(FencedReleaseQueueLossRace, WaitsForTheReleaseThatAPollerRuns) {
  const QueueRig rig;
  rig.put(100);
  rig.fences->set_all(FenceState::completed);
  std::latch inside(1);
  std::atomic<bool> released{false};
  rig.binding.allocator->on_call([&](const char*) {
    inside.count_down();
    while (rig.queue->state() != State::device_lost) {
      std::this_thread::yield();
    }
    released = true;
  });
  std::jthread poller([&] { rig.queue->poll(); });
  inside.wait();

  rig.queue->mark_device_lost();

  EXPECT_TRUE(released);
  EXPECT_EQ(rig.binding.allocator->releases(), 1U);
  EXPECT_EQ(rig.quarantined().size(), 99U);
  expect_reasons(rig.quarantined(), Kind::device_lost);
  EXPECT_EQ(rig.queue->pending(), 0U);
  EXPECT_EQ(rig.log->pins, 0U);
  EXPECT_EQ(rig.log->ended, 0U) << "also of those that the poller had in hand";
  poller.join();
  rig.binding.registry.invalidate_device(rig.binding.device, ErrorText("gone"));
  EXPECT_TRUE(rig.binding.registry.confirm_context_terminated(rig.binding.context));
}

// G-182
TEST(FencedReleaseQueueLossRace, EveryCallReturnsOnceAllIsSettled) {
  for (int round = 0; round < 20; ++round) {
    const QueueRig rig({}, 1);
    rig.put(200);
    std::barrier start(3);
    const auto lose = [&] {
      start.arrive_and_wait();
      rig.queue->mark_device_lost();
      EXPECT_EQ(rig.queue->pending(), 0U);
      EXPECT_EQ(rig.log->pins, 0U);
    };
    {
      const std::jthread first(lose);
      const std::jthread second(lose);
      const std::jthread third(lose);
    }
    EXPECT_EQ(rig.quarantined().size(), 200U);
    EXPECT_EQ(rig.queue->counters().quarantined, 200U);
  }
}

// G-182, G-174
TEST(FencedReleaseQueueLossRace, WithOwnersAndPollersLosesNoReleaseAndStartsNone) {
  for (int round = 0; round < 10; ++round) {
    QueueRig rig({}, 1);
    rig.fences->first_state = FenceState::completed;
    std::atomic<bool> marked{false};
    std::atomic<bool> late_call{false};
    std::atomic<bool> over_bound{false};
    rig.log->on_ask = [&] { late_call = late_call || marked; };
    rig.binding.allocator->on_call([&](const char* operation) {
      if (operation[0] == 'r') {
        late_call = late_call || marked;
      }
    });
    {
      std::vector<std::jthread> others;
      for (int i = 0; i < 2; ++i) {
        others.emplace_back([&] {
          while (!marked) {
            rig.queue->poll();
            std::this_thread::yield();
          }
        });
      }
      others.emplace_back([&] {
        while (rig.queue->counters().accepted < 50) {
          std::this_thread::yield();
        }
        rig.queue->mark_device_lost();
        marked = true;
      });
      enqueue_from_eight(rig, 100, over_bound);
    }
    const ReleaseQueueCounters counters = rig.queue->counters();
    EXPECT_FALSE(late_call);
    EXPECT_EQ(rig.queue->pending(), 0U);
    EXPECT_EQ(counters.accepted, counters.released + counters.quarantined);
    EXPECT_EQ(rig.binding.allocator->releases(), counters.released);
    EXPECT_EQ(rig.binding.snapshot().queued_releases, 0U);
    EXPECT_EQ(rig.log->pins, 0U);
    rig.queue.reset();
    EXPECT_EQ(rig.log->ended, rig.fences->recorded());
  }
}

}  // namespace
}  // namespace memstrata
