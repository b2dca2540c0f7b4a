// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
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

namespace memstrata {
namespace {

using test::BindingRig;
using test::expect_quiescent;
using test::must;
using test::refusal;
using State = AllocationReleaseState;

static_assert(sizeof(OwnedView) <= 40);
static_assert(std::is_nothrow_copy_constructible_v<OwnedView>);
static_assert(std::is_nothrow_move_constructible_v<OwnedView>);

/// Runs an operation that must not run, and gives the refusal.
template <class Alternative>
Alternative refused_view(const MemoryBinding& binding, const OwnedView& view) {
  bool ran = false;
  auto result = binding.with_view(view, [&](ValidatedMemoryView) { ran = true; });
  EXPECT_FALSE(ran);
  return refusal<Alternative>(result);
}

// B-072, X-010, G-166
TEST(OwnedViewCount, AViewAndItsCopyAreTwo) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  const OwnedView view = must(owner.view(64_B, 128_B));

  const OwnedView copy =
      view;  // NOLINT(performance-unnecessary-copy-initialization): the copy is the test

  EXPECT_EQ(owner.outstanding_views(), 2U);
  EXPECT_EQ(copy.size(), 128_B);
  EXPECT_EQ(copy.offset(), 64_B);
  EXPECT_EQ(copy.identity(), owner.identity());
  const auto refused = refusal<OutstandingViews>(owner.release_now());
  EXPECT_EQ(refused.views, 2U);
  EXPECT_EQ(refused.allocation, owner.identity());
  EXPECT_EQ(owner.state(), State::live);
  EXPECT_EQ(rig.allocator->releases(), 0U);
  EXPECT_EQ(rig.snapshot().live_allocations, 1U);
}

// B-073, G-166
TEST(OwnedViewCount, EachEndCountsDownAndTheLastLetsTheReleaseThrough) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  std::optional<OwnedView> first = must(owner.view(0_B, 4096_B));
  std::optional<OwnedView> second = first;

  first.reset();
  EXPECT_EQ(owner.outstanding_views(), 1U);
  EXPECT_EQ(refusal<OutstandingViews>(owner.release_now()).views, 1U);
  second.reset();
  EXPECT_EQ(owner.outstanding_views(), 0U);

  EXPECT_TRUE(must(owner.release_now()).is_released());
  expect_quiescent(rig.snapshot());
}

//
TEST(OwnedViewCount, MovesAndAssignmentsKeepTheCountRight) {
  const BindingRig rig;
  OwningAllocation one = rig.allocate();
  OwningAllocation two = rig.allocate();
  OwnedView a = must(one.view(0_B, 1_B));
  OwnedView b = must(two.view(0_B, 2_B));

  OwnedView moved = std::move(a);
  EXPECT_EQ(one.outstanding_views(), 1U);
  b = moved;
  EXPECT_EQ(one.outstanding_views(), 2U);
  EXPECT_EQ(two.outstanding_views(), 0U);
  EXPECT_EQ(b.size(), 1_B);
  const OwnedView& same = b;
  b = same;
  EXPECT_EQ(one.outstanding_views(), 2U);
  b = std::move(moved);
  EXPECT_EQ(one.outstanding_views(), 1U);

  EXPECT_EQ(b.identity(), one.identity());
  EXPECT_TRUE(must(two.release_now()).is_released());
}

TEST(OwnedViewAssignment, MakesItAViewOfTheOtherAllocation) {
  const BindingRig rig;
  const OwningAllocation one = rig.allocate();
  const OwningAllocation two = rig.allocate();
  OwnedView view = must(two.view(0_B, 1_B));

  view = must(one.view(64_B, 128_B));

  EXPECT_EQ(view.identity(), one.identity());
  const auto seen = must(rig.binding.with_view(
      view, [](ValidatedMemoryView at) { return std::pair(at.address, at.bytes); }));
  EXPECT_EQ(seen.first, one.address() + 64_B);
  EXPECT_EQ(seen.second, 128_B);
}

TEST(OwnedViewAssignment, MakesItAViewOfTheOtherMechanism) {
  const BindingRig left;
  const BindingRig right;
  OwningAllocation one = left.allocate();
  OwningAllocation two = right.allocate();
  OwnedView view = must(two.view(0_B, 1_B));

  view = must(one.view(0_B, 1_B));

  EXPECT_EQ(view.identity(), one.identity());
  EXPECT_TRUE(left.binding.with_view(view, [](ValidatedMemoryView /*at*/) {}).has_value());
  EXPECT_TRUE(must(two.release_now()).is_released());
  EXPECT_EQ(refusal<OutstandingViews>(one.release_now()).views, 1U);
}

//
TEST(OwnedViewCount, ACopyOfAMovedFromViewCountsNothing) {
  const BindingRig rig;
  const OwningAllocation owner = rig.allocate();
  OwnedView view = must(owner.view(0_B, 1_B));
  const OwnedView moved = std::move(view);

  const OwnedView copy = view;  // NOLINT: what a moved one says

  EXPECT_EQ(owner.outstanding_views(), 1U);
}

//
TEST(OwnedViewBounds, TheWholeAndTheEmptyEndAreInside) {
  const BindingRig rig;
  const OwningAllocation owner = rig.allocate(100_B);

  const OwnedView whole = must(owner.view(0_B, 100_B));
  const OwnedView end = must(owner.view(100_B, 0_B));

  EXPECT_EQ(whole.size(), 100_B);
  EXPECT_FALSE(whole.is_empty());
  EXPECT_TRUE(end.is_empty());
  EXPECT_EQ(end.offset(), 100_B);
  const auto address =
      must(rig.binding.with_view(end, [](ValidatedMemoryView at) { return at.address; }));
  EXPECT_EQ(address, owner.address() + 100_B);
}

//
TEST(OwnedViewBounds, OneBytePastTheEndIsRefusedWithTheNumbers) {
  const BindingRig rig;
  const OwningAllocation owner = rig.allocate(100_B);

  const auto longer = refusal<ViewOutOfBounds>(owner.view(0_B, 101_B));
  const auto beyond = refusal<ViewOutOfBounds>(owner.view(101_B, 0_B));

  EXPECT_EQ(longer.offset, 0_B);
  EXPECT_EQ(longer.end, 101_B);
  EXPECT_EQ(longer.allocation_bytes, 100_B);
  EXPECT_EQ(beyond.offset, 101_B);
  EXPECT_EQ(beyond.end, 101_B);
  EXPECT_EQ(owner.outstanding_views(), 0U);
}

//
TEST(OwnedViewBounds, AnEndThatWrapsIsTheLargestNumber) {
  const BindingRig rig;
  const OwningAllocation owner = rig.allocate(100_B);

  const auto wrapped = refusal<ViewOutOfBounds>(owner.view(Bytes::max(), 2_B));

  EXPECT_EQ(wrapped.offset, Bytes::max());
  EXPECT_EQ(wrapped.end, Bytes::max());
  EXPECT_EQ(refusal<ViewOutOfBounds>(owner.view(1_B, Bytes::max())).end, Bytes::max());
}

TEST(OwnedViewBounds, ZeroBytesHaveOneEmptyView) {
  const BindingRig rig;
  const OwningAllocation owner = rig.allocate(0_B);

  EXPECT_TRUE(must(owner.view(0_B, 0_B)).is_empty());
  EXPECT_EQ(refusal<ViewOutOfBounds>(owner.view(0_B, 1_B)).allocation_bytes, 0_B);
}

//
TEST(OwnedViewBounds, AreRefusedBeforeTheLifecycle) {
  const BindingRig rig;
  const OwningAllocation owner = rig.allocate(100_B);
  rig.registry.invalidate_device(rig.device, "gone");

  EXPECT_EQ(refusal<ViewOutOfBounds>(owner.view(0_B, 101_B)).end, 101_B);
  EXPECT_EQ(refusal<DeviceLost>(owner.view(0_B, 100_B)).reason.view(), "gone");
}

TEST(OwnedViewLifecycle, ARetiredMechanismMakesNoView) {
  const BindingRig rig;
  const OwningAllocation owner = rig.allocate();
  must(rig.registry.retire(rig.mechanism));

  const auto refused = refusal<InactiveMechanism>(owner.view(0_B, 1_B));

  EXPECT_EQ(refused.lifecycle, MechanismLifecycle::retired);
  EXPECT_STREQ(refused.operation, "view");
  EXPECT_EQ(owner.outstanding_views(), 0U);
}

TEST(OwnedViewUse, ShowsAddressAndSizeAndGivesTheResult) {
  const BindingRig rig;
  const OwningAllocation owner = rig.allocate();
  const OwnedView view = must(owner.view(64_B, 128_B));

  const auto seen = must(rig.binding.with_view(
      view, [](ValidatedMemoryView at) { return std::pair(at.address, at.bytes); }));

  EXPECT_EQ(seen.first, owner.address() + 64_B);
  EXPECT_EQ(seen.second, 128_B);
}

// W-10
TEST(OwnedViewUse, TheAllocationCannotBeReleasedWhileTheOperationRuns) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  std::optional<OwnedView> view = must(owner.view(0_B, 4096_B));

  must(rig.binding.with_view(*view, [&](ValidatedMemoryView) {
    EXPECT_EQ(rig.snapshot().active_operations, 1U);
    EXPECT_EQ(refusal<OutstandingViews>(owner.release_now()).views, 2U);
    view.reset();
    EXPECT_EQ(refusal<OutstandingViews>(owner.release_now()).views, 1U);
    EXPECT_EQ(refusal<OutstandingViews>(owner.prepare_release()).views, 1U);
    EXPECT_EQ(refusal<OutstandingViews>(rig.binding.release_now(owner)).views, 1U);
  }));

  EXPECT_EQ(rig.allocator->releases(), 0U);
  EXPECT_TRUE(must(owner.release_now()).is_released());
  expect_quiescent(rig.snapshot());
}

TEST(OwnedViewUse, AnOperationThatThrowsIsAnErrorAndEndsItsPin) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  {
    const OwnedView view = must(owner.view(0_B, 1_B));
    const auto thrown = refusal<CallbackFailed>(rig.binding.with_view(
        view, [](ValidatedMemoryView) -> int { throw std::runtime_error("out of luck"); }));
    EXPECT_STREQ(thrown.callback, "view operation");
    EXPECT_EQ(thrown.reason.view(), "out of luck");
    EXPECT_EQ(owner.outstanding_views(), 1U);
    EXPECT_EQ(rig.snapshot().active_operations, 0U);
  }

  EXPECT_TRUE(must(owner.release_now()).is_released());
}

// B-034, X-019
TEST(OwnedViewUse, AnotherBindingIsRefusedAfterTheLifecycle) {
  const BindingRig rig;
  const MemoryBinding second = must(rig.registry.bind(rig.mechanism));
  const OwningAllocation owner = rig.allocate();
  const OwnedView view = must(owner.view(0_B, 1_B));

  const auto refused = refused_view<BindingMismatch>(second, view);
  EXPECT_EQ(refused.expected, second.identity().id);
  EXPECT_EQ(refused.actual, rig.binding.identity().id);
  rig.registry.invalidate_device(rig.device, "gone");

  EXPECT_EQ(refused_view<DeviceLost>(second, view).reason.view(), "gone");
  EXPECT_EQ(refused_view<DeviceLost>(rig.binding, view).reason.view(), "gone");
  EXPECT_EQ(rig.snapshot().active_operations, 0U);
}

// B-074, G-166
TEST(OwnedViewStale, AViewWhoseOwnerIsGoneNeverValidates) {
  const BindingRig rig;
  std::optional<OwningAllocation> owner = rig.allocate();
  const AllocationIdentity identity = owner->identity();
  const OwnedView view = must(owner->view(0_B, 4096_B));
  owner.reset();

  EXPECT_EQ(refused_view<StaleAllocation>(rig.binding, view).allocation, identity);

  EXPECT_EQ(view.identity(), identity);
  EXPECT_EQ(rig.allocator->releases(), 0U);
  EXPECT_EQ(rig.snapshot().active_operations, 0U);
  EXPECT_EQ(rig.binding.quarantined().size(), 1U);
}

TEST(OwnedViewStale, AnOwnerDroppedWhileTheOperationRunsTakesNothingAway) {
  const BindingRig rig;
  std::optional<OwningAllocation> owner = rig.allocate();
  const AllocationIdentity identity = owner->identity();
  {
    const OwnedView view = must(owner->view(0_B, 4096_B));
    must(rig.binding.with_view(view, [&](ValidatedMemoryView) {
      owner.reset();
      EXPECT_EQ(refusal<OutstandingViews>(rig.registry.reclaim(identity)).views, 2U);
    }));
    EXPECT_EQ(refused_view<StaleAllocation>(rig.binding, view).allocation, identity);
  }

  EXPECT_TRUE(must(rig.registry.reclaim(identity)).execute().is_released());
  expect_quiescent(rig.snapshot());
}

// B-036, B-037
TEST(OwnedViewStale, TheRecordIsNotUsedAgainBeforeItsLastViewEnds) {
  const BindingRig rig;
  std::optional<OwningAllocation> owner = rig.allocate();
  const AllocationIdentity before = owner->identity();
  std::optional<OwnedView> view = must(owner->view(0_B, 4096_B));
  std::optional<OwnedView> copy = view;
  owner.reset();
  must(rig.registry.reconcile(before, attest_memory_gone));
  expect_quiescent(rig.snapshot());

  std::vector<OwningAllocation> others;
  for (int i = 0; i < 64; ++i) {
    others.push_back(rig.allocate());
    EXPECT_NE(others.back().identity().place, before.place);
  }
  EXPECT_EQ(refused_view<StaleAllocation>(rig.binding, *view).allocation, before);
  view.reset();
  EXPECT_NE(rig.allocate().identity().place, before.place);
  copy.reset();

  const AllocationIdentity again = rig.allocate().identity();
  EXPECT_EQ(again.place, before.place);
  EXPECT_NE(again.generation, before.generation);
}

// B-026, B-054
TEST(OwnedViewStale, TheLastViewKeepsAllocatorAuthorityAndContext) {
  std::shared_ptr<test::DropLog> drops;
  std::optional<OwnedView> view;
  {
    const BindingRig rig;
    drops = rig.drops;
    std::optional<OwningAllocation> owner = rig.allocate();
    view = must(owner->view(0_B, 1_B));
    owner.reset();
  }
  EXPECT_TRUE(drops->names().empty());
  EXPECT_EQ(view->size(), 1_B);
  static_cast<void>(view->identity());

  view.reset();

  EXPECT_EQ(drops->names(), (std::vector<std::string>{"allocator", "authority", "context"}));
}

TEST(OwnedViewStale, AfterTheEndOfTheContextOnlyTheLifecycleAnswers) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  const OwnedView view = must(owner.view(0_B, 1_B));
  rig.registry.invalidate_device(rig.device, "gone");
  must(rig.registry.confirm_context_terminated(rig.context));

  EXPECT_EQ(refused_view<InactiveMechanism>(rig.binding, view).lifecycle,
            MechanismLifecycle::terminated);
  EXPECT_EQ(refusal<InactiveMechanism>(owner.view(0_B, 1_B)).lifecycle,
            MechanismLifecycle::terminated);
}

TEST(OwnedViewDeathTest, AMovedFromViewStopsTheProgram) {
  const BindingRig rig;
  const OwningAllocation owner = rig.allocate();
  OwnedView view = must(owner.view(0_B, 1_B));
  const OwnedView moved = std::move(view);
  constexpr const char* message = "a view was used after it was moved from";

  // NOLINTBEGIN(bugprone-use-after-move): the misuse is the test
  EXPECT_DEATH(static_cast<void>(view.identity()), message);
  EXPECT_DEATH(static_cast<void>(rig.binding.with_view(view, [](ValidatedMemoryView) {})), message);
  // NOLINTEND(bugprone-use-after-move)
}

}  // namespace
}  // namespace memstrata
