// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/fenced_release_queue.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memstrata/contract/fence.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "support/binding_rig.hpp"
#include "support/fault_script.hpp"
#include "support/queue_rig.hpp"
#include "support/recorder.hpp"

namespace memstrata {
namespace {

using test::BindingRig;
using test::expect_quiescent;
using test::expect_reasons;
using test::must;
using test::QueueRig;
using test::ReleaseAnswer;
using Kind = QuarantineReason::Kind;
using Rejection = DeferredEnqueueRejection;
using State = ReleaseQueueState;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""ns;

constexpr std::chrono::nanoseconds for_ever = std::chrono::nanoseconds::max();

// G-178
TEST(FencedReleaseQueueEnqueue, RecordsTwoMarksAndReturnsWithoutAskingThem) {
  const QueueRig rig;

  rig.put();

  EXPECT_EQ(rig.fences->recorded(), 2U);
  EXPECT_EQ(rig.log->asked, 0U);
  EXPECT_EQ(rig.log->ended, 0U);
  EXPECT_EQ(rig.queue->pending(), 1U);
  EXPECT_EQ(rig.binding.allocator->releases(), 0U);
  EXPECT_EQ(rig.binding.snapshot().queued_releases, 1U);
}

// G-178
TEST(FencedReleaseQueuePoll, AnOpenFirstFenceBlocks) {
  const QueueRig rig;
  rig.put();
  rig.fences->set(1, FenceState::completed);

  EXPECT_EQ(rig.queue->poll(), 0U);

  EXPECT_EQ(rig.queue->pending(), 1U);
  EXPECT_EQ(rig.binding.allocator->releases(), 0U);
}

// G-178
TEST(FencedReleaseQueuePoll, AnOpenSecondFenceBlocks) {
  const QueueRig rig;
  rig.put();
  rig.fences->set(0, FenceState::completed);

  EXPECT_EQ(rig.queue->poll(), 0U);

  EXPECT_EQ(rig.queue->pending(), 1U);
  EXPECT_EQ(rig.binding.allocator->releases(), 0U);
}

// G-178, G-163
TEST(FencedReleaseQueuePoll, RunsOnceBothFencesAreDone) {
  const QueueRig rig;
  rig.put();
  rig.fences->set_all(FenceState::completed);

  EXPECT_EQ(rig.queue->poll(), 1U);

  EXPECT_EQ(rig.queue->pending(), 0U);
  EXPECT_EQ(rig.binding.allocator->live(), 0U);
  EXPECT_EQ(rig.log->ended, 2U);
  expect_quiescent(rig.binding.snapshot());
}

TEST(FencedReleaseQueuePoll, RunsAtOnceWithoutFencesAndPins) {
  const BindingRig rig;
  FencedReleaseQueue queue;
  OwningAllocation owner = rig.allocate();
  ASSERT_TRUE(must(owner.release_deferred(queue)).is_queued());

  EXPECT_EQ(queue.poll(), 1U);

  expect_quiescent(rig.snapshot());
}

// G-180
TEST(FencedReleaseQueuePoll, NeverFreesWhatNeverCompletes) {
  const QueueRig rig;
  rig.put(3);

  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(rig.queue->poll(), 0U);
  }

  EXPECT_EQ(rig.queue->pending(), 3U);
  EXPECT_EQ(rig.binding.allocator->releases(), 0U);
  EXPECT_EQ(rig.log->ended, 0U);
}

TEST(FencedReleaseQueuePoll, RunsFirstInFirstOut) {
  const QueueRig rig;
  std::vector<DeviceAddress> addresses;
  for (int i = 0; i < 3; ++i) {
    PreparedAllocationRelease request = rig.prepare();
    addresses.push_back(request.span().address);
    ASSERT_EQ(rig.queue->enqueue(std::move(request)), std::nullopt);
  }
  std::vector<std::vector<bool>> live;
  rig.binding.allocator->on_call([&](const char*) {
    live.emplace_back();
    for (const DeviceAddress address : addresses) {
      live.back().push_back(rig.binding.allocator->is_live(address));
    }
  });
  rig.fences->set_all(FenceState::completed);

  EXPECT_EQ(rig.queue->poll(), 3U);

  const std::vector<std::vector<bool>> expected = {
      {true, true, true}, {false, true, true}, {false, false, true}};
  EXPECT_EQ(live, expected);
}

TEST(FencedReleaseQueuePoll, APendingReleaseHoldsBackThoseBehindIt) {
  const QueueRig rig;
  rig.put(3);
  rig.fences->set_all(FenceState::completed);
  rig.fences->set(2, FenceState::pending);  // of the second release

  EXPECT_EQ(rig.queue->poll(), 1U);
  EXPECT_EQ(rig.queue->pending(), 2U);

  rig.fences->set(2, FenceState::completed);
  EXPECT_EQ(rig.queue->poll(), 2U);
}

TEST(FencedReleaseQueuePoll, KeepsTheOrderOfWhatReturnsToTheQueue) {
  const QueueRig rig({}, 1);
  rig.put(5);

  for (std::size_t nth = 0; nth < 5; ++nth) {
    rig.fences->set(nth, FenceState::completed);
    EXPECT_EQ(rig.queue->poll(), 1U);
  }

  EXPECT_EQ(rig.queue->pending(), 0U);
}

TEST(FencedReleaseQueuePoll, RunsMoreThanOneBatchAtATime) {
  const QueueRig rig;
  rig.put(200);
  rig.fences->set_all(FenceState::completed);

  EXPECT_EQ(rig.queue->poll(), 200U);

  EXPECT_EQ(rig.log->pins, 0U);
  expect_quiescent(rig.binding.snapshot());
}

TEST(FencedReleaseQueueEnqueue, GrowsAsNeededAndKeepsTheOrder) {
  const QueueRig rig;
  std::vector<DeviceAddress> addresses;
  const auto put = [&](int count) {
    for (int i = 0; i < count; ++i) {
      PreparedAllocationRelease request = rig.prepare();
      addresses.push_back(request.span().address);
      ASSERT_EQ(rig.queue->enqueue(std::move(request)), std::nullopt);
    }
  };
  put(40);
  rig.fences->set_all(FenceState::completed);
  ASSERT_EQ(rig.queue->poll(), 40U);
  addresses.clear();
  put(300);  // wraps, and grows three times
  std::size_t next = 0;
  rig.binding.allocator->on_call([&](const char*) {
    EXPECT_TRUE(next == 0 || !rig.binding.allocator->is_live(addresses[next - 1]));
    EXPECT_TRUE(rig.binding.allocator->is_live(addresses[next++]));
  });
  rig.fences->set_all(FenceState::completed);

  EXPECT_EQ(rig.queue->poll(), 300U);

  EXPECT_EQ(next, 300U);
}

TEST(FencedReleaseQueueEnqueue, KeepsAPlaceForWhatAPollHasInHand) {
  for (const std::size_t count : {62U, 63U, 64U, 65U, 200U}) {  // the first array holds 64
    const QueueRig rig;
    rig.put(2);
    rig.fences->set_all(FenceState::completed);
    rig.fences->set(3, FenceState::pending);  // the second one returns to the front
    std::vector<PreparedAllocationRelease> more;
    for (std::size_t i = 0; i < count; ++i) {
      more.push_back(rig.prepare());
    }
    rig.binding.allocator->on_call([&](const char*) {
      for (PreparedAllocationRelease& request : std::exchange(more, {})) {
        EXPECT_EQ(rig.queue->enqueue(std::move(request)), std::nullopt);
      }
    });

    EXPECT_EQ(rig.queue->poll(), 1U);
    EXPECT_EQ(rig.queue->pending(), count + 1);

    rig.fences->set_all(FenceState::completed);
    EXPECT_EQ(rig.queue->poll(), count + 1);
    expect_quiescent(rig.binding.snapshot());
  }
}

// G-179, B-078
TEST(FencedReleaseQueueEnqueue, AFullQueueReturnsTheSameRequest) {
  const QueueRig rig({.capacity = 1});
  rig.put();
  PreparedAllocationRelease request = rig.prepare();
  const AllocationIdentity identity = request.identity();

  EXPECT_EQ(rig.queue->enqueue(std::move(request)), Rejection::full);

  ASSERT_FALSE(request.empty());  // NOLINT(bugprone-use-after-move): a refused request stays
  EXPECT_EQ(request.identity(), identity);
  EXPECT_TRUE(request.execute().is_released());
  EXPECT_EQ(rig.queue->pending(), 1U);
  EXPECT_EQ(rig.log->pins, 1U);
  EXPECT_EQ(rig.log->ended, 2U);
}

TEST(FencedReleaseQueueEnqueue, ABoundIsFreeAgainOnceSomethingWasSettled) {
  const QueueRig rig({.capacity = 2});
  rig.put(2);
  rig.fences->set_all(FenceState::completed);
  ASSERT_EQ(rig.queue->poll(), 2U);

  rig.put(2);

  EXPECT_EQ(rig.queue->pending(), 2U);
}

TEST(FencedReleaseQueueEnqueue, ABoundCountsWhatAPollHasInHand) {
  const QueueRig rig({.capacity = 2});
  rig.put(2);
  rig.fences->set_all(FenceState::completed);
  std::optional<PreparedAllocationRelease> extra = rig.prepare();
  std::optional<Rejection> answer;
  rig.binding.allocator->on_call([&](const char*) {
    if (extra) {
      answer = rig.queue->enqueue(std::move(*extra));
      extra.reset();
    }
  });

  EXPECT_EQ(rig.queue->poll(), 2U);

  EXPECT_EQ(answer, Rejection::full);
}

TEST(FencedReleaseQueueEnqueue, ACapacityOfNothingTakesNothing) {
  const QueueRig rig({.capacity = 0});
  PreparedAllocationRelease request = rig.prepare();

  EXPECT_EQ(rig.queue->enqueue(std::move(request)), Rejection::full);
}

TEST(FencedReleaseQueueEnqueue, ALargeBoundTakesNoMemoryInAdvance) {
  const QueueRig rig({.capacity = std::numeric_limits<std::size_t>::max()});

  rig.put(100);

  EXPECT_EQ(rig.queue->pending(), 100U);
}

TEST(FencedReleaseQueueEnqueue, AnEmptyRequestStopsTheProgram) {
  const QueueRig rig;
  PreparedAllocationRelease request = rig.prepare();
  const PreparedAllocationRelease taken = std::move(request);

  EXPECT_DEATH(static_cast<void>(rig.queue->enqueue(std::move(request))), "settled or moved from");
}

struct GuardFault {
  std::string_view operation;
  bool of_fences;
};

class FencedReleaseQueueGuardFault : public testing::TestWithParam<GuardFault> {};

// Every call of the source fails in turn; the queue is as before each time, and goes on.
// G-179, X-040
TEST_P(FencedReleaseQueueGuardFault, LeavesTheRequestWithTheCallerAtEveryCall) {
  constexpr std::uint64_t calls = 5;
  for (std::uint64_t nth = 1; nth <= calls; ++nth) {
    const QueueRig rig;
    (GetParam().of_fences ? rig.fences->faults() : rig.pins->faults())
        .fail_nth(GetParam().operation, nth);
    for (std::uint64_t call = 1; call <= calls; ++call) {
      PreparedAllocationRelease request = rig.prepare();
      const AllocationIdentity identity = request.identity();
      const std::size_t before = rig.queue->pending();
      const auto refused = rig.queue->enqueue(std::move(request));
      if (call != nth) {
        ASSERT_EQ(refused, std::nullopt);
        continue;
      }
      ASSERT_EQ(refused, Rejection::refused);
      ASSERT_EQ(request.identity(), identity);  // NOLINT(bugprone-use-after-move): it stays
      EXPECT_EQ(rig.queue->pending(), before);
      EXPECT_EQ(rig.log->pins, before);
      EXPECT_EQ(rig.queue->counters().rejected, 1U);
      ASSERT_EQ(rig.queue->enqueue(std::move(request)), std::nullopt);
    }
    rig.fences->set_all(FenceState::completed);
    EXPECT_EQ(rig.queue->poll(), calls);
    EXPECT_EQ(rig.log->pins, 0U);
    expect_quiescent(rig.binding.snapshot());
  }
}

INSTANTIATE_TEST_SUITE_P(Guards,
                         FencedReleaseQueueGuardFault,
                         testing::Values(GuardFault{"record", true},
                                         GuardFault{"record_throws", true},
                                         GuardFault{"pin", false},
                                         GuardFault{"pin_throws", false}),
                         [](const auto& each) { return std::string(each.param.operation); });

//
TEST(FencedReleaseQueueEnqueue, ARetiringContextCannotBePinnedAndIsNotMarked) {
  const QueueRig rig;
  PreparedAllocationRelease request = rig.prepare();
  ASSERT_TRUE(rig.binding.registry.retire_provider_context(rig.binding.context));

  EXPECT_EQ(rig.queue->enqueue(std::move(request)), Rejection::refused);

  EXPECT_EQ(rig.fences->recorded(), 0U);
  EXPECT_TRUE(request.execute().is_released());  // NOLINT(bugprone-use-after-move): it stays
}

//
TEST(FencedReleaseQueuePins, LetTeardownSeeThatWorkIsPending) {
  const QueueRig rig;
  rig.put(2);
  EXPECT_EQ(must(rig.binding.registry.provider_context(rig.binding.context)).pins, 2U);
  const auto refused = rig.binding.registry.remove_provider_context(rig.binding.context);
  ASSERT_FALSE(refused);
  ASSERT_NE(refused.error().as<ProviderContextInUse>(), nullptr);
  EXPECT_EQ(refused.error().as<ProviderContextInUse>()->pins, 2U);

  rig.fences->set_all(FenceState::completed);
  EXPECT_EQ(rig.queue->poll(), 2U);

  EXPECT_EQ(must(rig.binding.registry.provider_context(rig.binding.context)).pins, 0U);
}

//
TEST(FencedReleaseQueuePins, EndAfterTheBooksAreSettled) {
  const QueueRig rig;
  rig.put(70);
  rig.fences->set_all(FenceState::completed);
  std::size_t ended = 0;
  rig.log->on_pin_end = [&] {
    const std::uint64_t handled = ended++ < 64 ? 64 : 70;
    EXPECT_EQ(rig.binding.snapshot().queued_releases, 70U - handled);
  };

  EXPECT_EQ(rig.queue->poll(), 70U);

  EXPECT_EQ(ended, 70U);
  rig.log->on_pin_end = nullptr;
}

TEST(FencedReleaseQueuePins, EndAfterTheMarksOfTheirRelease) {
  const QueueRig rig;
  rig.put(2);
  rig.fences->set_all(FenceState::completed);
  std::vector<std::uint64_t> marks;
  rig.log->on_pin_end = [&] { marks.push_back(rig.log->ended); };

  EXPECT_EQ(rig.queue->poll(), 2U);

  EXPECT_EQ(marks, (std::vector<std::uint64_t>{2, 4}));
  rig.log->on_pin_end = nullptr;
}

TEST(FencedReleaseQueuePins, OfARefusedReleaseEndAfterItsMarks) {
  const QueueRig rig({.capacity = 0});
  std::vector<std::uint64_t> marks;
  rig.log->on_pin_end = [&] { marks.push_back(rig.log->ended); };
  PreparedAllocationRelease request = rig.prepare();

  EXPECT_EQ(rig.queue->enqueue(std::move(request)), Rejection::full);

  EXPECT_EQ(marks, (std::vector<std::uint64_t>{2}));
  rig.log->on_pin_end = nullptr;
}

TEST(FencedReleaseQueueFailedFence, PutsTheReleaseIntoQuarantineWithoutACall) {
  const QueueRig rig;
  const AllocationIdentity first = rig.put();
  rig.put();
  rig.fences->set_all(FenceState::completed);
  rig.fences->set(1, FenceState::failed);

  EXPECT_EQ(rig.queue->poll(), 2U);

  ASSERT_EQ(rig.quarantined().size(), 1U);
  EXPECT_EQ(rig.quarantined()[0].identity, first);
  EXPECT_EQ(rig.quarantined()[0].reason.kind(), Kind::fence_failed);
  EXPECT_EQ(rig.quarantined()[0].state, AllocationReleaseState::quarantined);
  EXPECT_EQ(rig.quarantined()[0].retained_bytes, 4096_B);
  EXPECT_EQ(rig.binding.allocator->releases(), 1U);
  EXPECT_EQ(rig.queue->counters().executed, 1U);
  EXPECT_EQ(rig.log->pins, 0U);
}

TEST(FencedReleaseQueueFailedFence, CanBeReclaimedAndQueuedAgain) {
  const QueueRig rig;
  const AllocationIdentity identity = rig.put();
  rig.fences->set(0, FenceState::failed);
  ASSERT_EQ(rig.queue->poll(), 1U);

  PreparedAllocationRelease again = must(rig.binding.registry.reclaim(identity));
  ASSERT_EQ(rig.queue->enqueue(std::move(again)), std::nullopt);
  rig.fences->set_all(FenceState::completed);

  EXPECT_EQ(rig.queue->poll(), 1U);
  expect_quiescent(rig.binding.snapshot());
}

// A fence fails at every release in turn: that one is kept and all others are released.
TEST(FencedReleaseQueueFailedFence, AtEveryReleaseLosesOnlyThatOne) {
  constexpr std::size_t releases = 5;
  for (std::size_t nth = 0; nth < 2 * releases; ++nth) {
    const QueueRig rig;
    rig.put(releases);
    rig.fences->set_all(FenceState::completed);
    rig.fences->set(nth, FenceState::failed);

    EXPECT_EQ(rig.queue->poll(), releases);

    EXPECT_EQ(rig.binding.allocator->releases(), releases - 1);
    EXPECT_EQ(rig.quarantined().size(), 1U);
    EXPECT_EQ(rig.queue->pending(), 0U);
    EXPECT_EQ(rig.log->pins, 0U);
  }
}

// G-181
TEST(FencedReleaseQueueCounters, DoNotCountQuarantineAsAFree) {
  const QueueRig rig;
  rig.binding.allocator->answer_next({.kind = ReleaseAnswer::Kind::unchanged});
  rig.binding.allocator->answer_next(
      {.kind = ReleaseAnswer::Kind::partial, .unmapped = 2048_B, .retained = 2048_B});
  rig.binding.allocator->answer_next({.kind = ReleaseAnswer::Kind::throws});
  rig.put(5);
  rig.fences->set_all(FenceState::completed);
  rig.fences->set(8, FenceState::failed);

  EXPECT_EQ(rig.queue->poll(), 5U);

  const ReleaseQueueCounters counters = rig.queue->counters();
  EXPECT_EQ(counters.accepted, 5U);
  EXPECT_EQ(counters.executed, 4U);
  EXPECT_EQ(counters.released, 1U);
  EXPECT_EQ(counters.quarantined, 4U);
  EXPECT_EQ(rig.quarantined().size(), 4U);
}

TEST(FencedReleaseQueueCounters, CountAsExecutedOnlyWhatReachedTheAllocator) {
  const QueueRig rig;
  rig.put(2);
  rig.fences->set_all(FenceState::completed);
  rig.binding.registry.invalidate_device(rig.binding.device, ErrorText("gone"));

  EXPECT_EQ(rig.queue->poll(), 2U);

  EXPECT_EQ(rig.queue->counters().executed, 0U);
  EXPECT_EQ(rig.queue->counters().quarantined, 2U);
  expect_reasons(rig.quarantined(), Kind::device_lost);
}

TEST(FencedReleaseQueueCounters, CountEveryRejection) {
  const QueueRig rig({.capacity = 1});
  rig.put();
  PreparedAllocationRelease request = rig.prepare();

  EXPECT_EQ(rig.queue->enqueue(std::move(request)), Rejection::full);
  rig.queue->close();
  // NOLINTNEXTLINE(bugprone-use-after-move): a refused request stays
  EXPECT_EQ(rig.queue->enqueue(std::move(request)), Rejection::closed);

  EXPECT_EQ(rig.queue->counters().rejected, 2U);
  EXPECT_EQ(rig.queue->counters().accepted, 1U);
}

// G-179
TEST(FencedReleaseQueueWaitIdle, RefusesWhileAFenceIsOpen) {
  const ManualClock clock;
  const QueueRig rig({.clock = &clock});
  rig.put(2);

  const auto refused = rig.queue->wait_idle(0ns);

  ASSERT_FALSE(refused);
  const auto* error = refused.error().as<QueueNotIdle>();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->pending, 2U);
  EXPECT_FALSE(error->called_from_queue);
  EXPECT_EQ(rig.queue->pending(), 2U);
  EXPECT_EQ(rig.binding.allocator->releases(), 0U);
}

// G-179
TEST(FencedReleaseQueueWaitIdle, AsksUntilTheDeadlineOfItsClock) {
  ManualClock clock;
  const QueueRig rig({.poll_interval = 0ns, .clock = &clock}, 1);
  rig.log->on_ask = [&clock] { clock.advance(1ms); };
  rig.put();

  ASSERT_FALSE(rig.queue->wait_idle(5ms));

  EXPECT_EQ(clock.now(), 5ms);
  EXPECT_EQ(rig.queue->pending(), 1U);
}

TEST(FencedReleaseQueueWaitIdle, EndsWithTheWork) {
  ManualClock clock;
  const QueueRig rig({.poll_interval = 0ns, .clock = &clock}, 1);
  rig.log->on_ask = [&] {
    clock.advance(1ms);
    if (rig.log->asked == 3) {
      rig.fences->set_all(FenceState::completed);
    }
  };
  rig.put();

  EXPECT_TRUE(rig.queue->wait_idle(5ms));

  EXPECT_EQ(clock.now(), 3ms);
  EXPECT_EQ(rig.queue->pending(), 0U);
}

TEST(FencedReleaseQueueWaitIdle, SucceedsAfterTheDeadlineIfNothingIsLeft) {
  const ManualClock clock;
  const QueueRig rig({.clock = &clock});
  rig.put();
  rig.fences->set_all(FenceState::completed);

  EXPECT_TRUE(rig.queue->wait_idle(0ns));
}

TEST(FencedReleaseQueueWaitIdle, RefusesAtOnceInsideTheQueue) {
  const QueueRig rig;
  std::optional<BindingError> error;
  rig.binding.allocator->on_call([&](const char* operation) {
    if (operation == std::string_view("release")) {
      error = std::move(rig.queue->wait_idle(for_ever)).error();
    }
  });
  rig.put(2);
  rig.fences->set_all(FenceState::completed);

  EXPECT_EQ(rig.queue->poll(), 2U);

  ASSERT_TRUE(error);
  const auto* inside = error->as<QueueNotIdle>();
  ASSERT_NE(inside, nullptr);
  EXPECT_TRUE(inside->called_from_queue);
  EXPECT_EQ(inside->pending, 2U);
}

// G-170
TEST(FencedReleaseQueueCallbacks, MayCallBack) {
  const QueueRig rig;
  std::optional<PreparedAllocationRelease> extra = rig.prepare();
  const auto call_back = [&] {
    EXPECT_EQ(rig.queue->poll(), 0U);
    EXPECT_GE(rig.queue->pending(), 1U);
    EXPECT_EQ(rig.queue->state(), State::open);
    EXPECT_EQ(rig.queue->counters().accepted, 1U);
    static_cast<void>(rig.binding.snapshot());
  };
  rig.put();
  rig.log->on_ask = call_back;
  rig.log->on_fence_end = call_back;
  rig.log->on_pin_end = call_back;
  rig.binding.allocator->on_call([&](const char*) { call_back(); });
  rig.fences->set_all(FenceState::completed);

  EXPECT_EQ(rig.queue->poll(), 1U);

  rig.log->on_ask = nullptr;
  rig.log->on_fence_end = nullptr;
  rig.log->on_pin_end = nullptr;
  rig.binding.allocator->on_call([](const char*) {});
}

}  // namespace
}  // namespace memstrata
