// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/host_timeline.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "memstrata/contract/fence.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"
#include "support/binding_rig.hpp"

namespace memstrata {
namespace {

FenceSet recorded(HostTimeline& timeline) {
  FenceSet marks;
  test::must(timeline.record(marks));
  return marks;
}

TEST(ManualFence, EndsOnceInTheWayThatCameFirst) {
  for (const FenceState how : {FenceState::completed, FenceState::failed, FenceState::lost}) {
    ManualFence fence;
    EXPECT_EQ(fence.state(), FenceState::pending);
    fence.set(FenceState::pending);
    EXPECT_EQ(fence.state(), FenceState::pending);

    fence.set(how);
    fence.set(FenceState::completed);
    fence.set(FenceState::failed);
    fence.set(FenceState::lost);
    fence.set(FenceState::pending);

    EXPECT_EQ(fence.state(), how);
  }
}

TEST(HostTimelineRecord, OfATimelineWithoutStepsIsCompleted) {
  HostTimeline timeline;

  EXPECT_EQ(recorded(timeline).state(), FenceState::completed);
  EXPECT_EQ(timeline.submitted(), 0U);
  EXPECT_EQ(timeline.completed(), 0U);
}

TEST(HostTimelineRecord, GivesOneMarkThatWaitsForEveryStepSoFarAndNoLaterOne) {
  HostTimeline timeline;
  EXPECT_EQ(timeline.submit(), 1U);
  EXPECT_EQ(timeline.submit(), 2U);
  const FenceSet marks = recorded(timeline);
  EXPECT_EQ(timeline.submit(), 3U);
  EXPECT_EQ(marks.fences().size(), 1U);
  EXPECT_EQ(marks.state(), FenceState::pending);

  timeline.complete(1);
  EXPECT_EQ(marks.state(), FenceState::pending);
  timeline.complete(2);

  EXPECT_EQ(marks.state(), FenceState::completed);
  EXPECT_EQ(timeline.completed(), 2U);
  EXPECT_EQ(timeline.submitted(), 3U);
}

TEST(HostTimelineRecord, AddsToTheMarksThatAreThere) {
  HostTimeline first;
  HostTimeline second;
  first.submit();
  second.submit();
  FenceSet marks;
  test::must(first.record(marks));
  test::must(second.record(marks));

  first.complete(1);

  EXPECT_EQ(marks.fences().size(), 2U);
  EXPECT_EQ(marks.state(), FenceState::pending);
  second.complete(1);
  EXPECT_EQ(marks.state(), FenceState::completed);
}

TEST(HostTimelineComplete, NeverGoesBack) {
  HostTimeline timeline;
  timeline.submit();
  timeline.submit();
  const FenceSet marks = recorded(timeline);
  timeline.complete(2);

  timeline.complete(1);

  EXPECT_EQ(timeline.completed(), 2U);
  EXPECT_EQ(marks.state(), FenceState::completed);
}

TEST(HostTimelineComplete, OfAStepThatWasNotSubmittedStopsTheProgram) {
  HostTimeline timeline;
  timeline.submit();

  EXPECT_DEATH(timeline.complete(2), "never submitted");
}

TEST(HostTimelineFail, EndsWhatIsPendingAndNothingElse) {
  HostTimeline timeline;
  timeline.submit();
  const FenceSet done = recorded(timeline);
  timeline.submit();
  const FenceSet open = recorded(timeline);
  timeline.complete(1);

  timeline.fail();

  EXPECT_EQ(done.state(), FenceState::completed);
  EXPECT_EQ(open.state(), FenceState::failed);
  timeline.submit();
  EXPECT_EQ(recorded(timeline).state(), FenceState::failed);
}

TEST(HostTimelineFail, IsFinalForAFence) {
  HostTimeline timeline;
  timeline.submit();
  const FenceSet marks = recorded(timeline);
  timeline.fail();

  timeline.complete(1);
  timeline.lose();

  EXPECT_EQ(marks.state(), FenceState::failed);
  EXPECT_EQ(timeline.completed(), 0U);
}

TEST(HostTimelineLose, LosesWhatIsPendingAndNothingElse) {
  HostTimeline timeline;
  timeline.submit();
  const FenceSet done = recorded(timeline);
  timeline.submit();
  const FenceSet open = recorded(timeline);
  timeline.complete(1);

  timeline.lose();

  EXPECT_EQ(done.state(), FenceState::completed);
  EXPECT_EQ(open.state(), FenceState::lost);
}

TEST(HostTimelineLose, IsFinalForAFence) {
  HostTimeline timeline;
  timeline.submit();
  const FenceSet marks = recorded(timeline);
  timeline.lose();

  timeline.complete(1);
  timeline.fail();

  EXPECT_EQ(marks.state(), FenceState::lost);
}

TEST(HostTimelineLose, LosesEveryMarkThatIsRecordedLaterEvenWithoutAnOpenStep) {
  HostTimeline timeline;
  timeline.submit();
  timeline.complete(1);

  timeline.lose();

  EXPECT_EQ(recorded(timeline).state(), FenceState::lost);
  timeline.submit();
  EXPECT_EQ(recorded(timeline).state(), FenceState::lost);
}

TEST(HostTimelineFences, OutliveTheTimeline) {
  auto timeline = std::make_unique<HostTimeline>();
  timeline->submit();
  const FenceSet open = recorded(*timeline);
  timeline->submit();
  timeline->complete(1);
  const FenceSet still_open = recorded(*timeline);

  timeline.reset();

  EXPECT_EQ(open.state(), FenceState::completed);
  EXPECT_EQ(still_open.state(), FenceState::pending);
}

// G-178
TEST(HostTimelineQueue, ReleasesAfterTheStepThatUsedTheMemory) {
  const test::BindingRig rig;
  const auto timeline = std::make_shared<HostTimeline>();
  FencedReleaseQueue queue({.fences = timeline});
  const std::uint64_t step = timeline->submit();
  OwningAllocation owner = rig.allocate();
  ASSERT_TRUE(test::must(owner.release_deferred(queue)).is_queued());
  EXPECT_EQ(queue.poll(), 0U);

  timeline->complete(step);

  EXPECT_EQ(queue.poll(), 1U);
  test::expect_quiescent(rig.snapshot());
}

// G-180
TEST(HostTimelineQueue, ReleasesNothingOnceTheTimelineIsLost) {
  const test::BindingRig rig;
  const auto timeline = std::make_shared<HostTimeline>();
  FencedReleaseQueue queue({.fences = timeline});
  timeline->lose();
  OwningAllocation owner = rig.allocate();
  ASSERT_TRUE(test::must(owner.release_deferred(queue)).is_queued());

  EXPECT_EQ(queue.poll(), 1U);

  EXPECT_EQ(rig.allocator->releases(), 0U);
  EXPECT_EQ(queue.state(), ReleaseQueueState::device_lost);
}

}  // namespace
}  // namespace memstrata
