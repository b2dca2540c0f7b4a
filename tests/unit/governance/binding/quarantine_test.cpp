// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"
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
using test::Recorder;
using test::refusal;
using test::RefusingQueue;
using test::ReleaseAnswer;
using State = AllocationReleaseState;
using Kind = QuarantineReason::Kind;
using Rejection = DeferredEnqueueRejection;

/// A way into quarantine, and what it leads to.
struct Way {
  const char* name;
  void (*enter)(const BindingRig& rig, OwningAllocation owner);
  State state;
  QuarantineReason reason;
  Bytes retained;
  bool reclaimable;
};

void reject(OwningAllocation owner, Rejection why) {
  RefusingQueue queue(why);
  static_cast<void>(must(owner.release_deferred(queue)));
}

void answer(const BindingRig& rig, OwningAllocation owner, ReleaseAnswer answer) {
  rig.allocator->answer_next(answer);
  static_cast<void>(must(owner.release_now()));
}

void settle(OwningAllocation owner, UnexecutedReason reason) {
  static_cast<void>(must(owner.prepare_release()).quarantine(reason));
}

const std::array ways{
    Way{"owner dropped",
        [](const BindingRig&, OwningAllocation) {},
        State::quarantined,
        QuarantineReason(Kind::owner_dropped),
        4096_B,
        true},
    Way{"request abandoned",
        [](const BindingRig&, OwningAllocation owner) {
          static_cast<void>(must(owner.prepare_release()));
        },
        State::quarantined,
        QuarantineReason(Kind::abandoned_request),
        4096_B,
        true},
    Way{"queue closed",
        [](const BindingRig&, OwningAllocation owner) {
          reject(std::move(owner), Rejection::closed);
        },
        State::quarantined,
        QuarantineReason::enqueue_rejected(Rejection::closed),
        4096_B,
        true},
    Way{"queue full",
        [](const BindingRig&, OwningAllocation owner) {
          reject(std::move(owner), Rejection::full);
        },
        State::quarantined,
        QuarantineReason::enqueue_rejected(Rejection::full),
        4096_B,
        true},
    Way{"queue refused",
        [](const BindingRig&, OwningAllocation owner) {
          reject(std::move(owner), Rejection::refused);
        },
        State::quarantined,
        QuarantineReason::enqueue_rejected(Rejection::refused),
        4096_B,
        true},
    Way{"fence failed",
        [](const BindingRig&, OwningAllocation owner) {
          settle(std::move(owner), UnexecutedReason::fence_failed());
        },
        State::quarantined,
        QuarantineReason(Kind::fence_failed),
        4096_B,
        true},
    Way{"queue knows of a loss",
        [](const BindingRig&, OwningAllocation owner) {
          reject(std::move(owner), Rejection::device_lost);
        },
        State::device_lost,
        QuarantineReason::enqueue_rejected(Rejection::device_lost),
        4096_B,
        false},
    Way{"device lost",
        [](const BindingRig&, OwningAllocation owner) {
          static_cast<void>(must(owner.prepare_release()).quarantine_device_lost());
        },
        State::device_lost,
        QuarantineReason(Kind::device_lost),
        4096_B,
        false},
    Way{"stopped midway",
        [](const BindingRig& rig, OwningAllocation owner) {
          answer(rig,
                 std::move(owner),
                 {.kind = ReleaseAnswer::Kind::partial, .unmapped = 1024_B, .retained = 3072_B});
        },
        State::partially_unmapped,
        QuarantineReason(Kind::partial_release),
        3072_B,
        false},
    Way{"allocator refused",
        [](const BindingRig& rig, OwningAllocation owner) {
          answer(rig, std::move(owner), {.kind = ReleaseAnswer::Kind::unchanged});
        },
        State::quarantined,
        QuarantineReason(Kind::allocator_refused),
        4096_B,
        false},
    Way{"release aborted",
        [](const BindingRig& rig, OwningAllocation owner) {
          answer(rig, std::move(owner), {.kind = ReleaseAnswer::Kind::throws});
        },
        State::quarantined,
        QuarantineReason(Kind::release_aborted),
        4096_B,
        false},
};

/// Puts one allocation into quarantine that way.
AllocationIdentity enter(const BindingRig& rig, const Way& way) {
  OwningAllocation owner = rig.allocate();
  const AllocationIdentity identity = owner.identity();
  way.enter(rig, std::move(owner));
  return identity;
}

/// An allocation in quarantine whose allocator was never called.
AllocationIdentity dropped(const BindingRig& rig, Bytes bytes = 4096_B) {
  return rig.allocate(bytes).identity();
}

TEST(QuarantineEnter, EveryWayIsListedWithStateReasonAndCharge) {
  for (const Way& way : ways) {
    SCOPED_TRACE(way.name);
    const BindingRig rig;
    OwningAllocation owner = rig.allocate();
    const AllocationIdentity identity = owner.identity();
    const AllocationSpan span = owner.span();

    way.enter(rig, std::move(owner));

    const QuarantinedAllocations list = must(rig.registry.quarantined(rig.mechanism));
    ASSERT_EQ(list.size(), 1U);
    EXPECT_EQ(list[0].identity, identity);
    EXPECT_EQ(list[0].address, span.address);
    EXPECT_EQ(list[0].bytes, span.bytes);
    EXPECT_EQ(list[0].alignment, span.alignment);
    EXPECT_EQ(list[0].state, way.state);
    EXPECT_EQ(list[0].reason, way.reason);
    EXPECT_EQ(list[0].retained_bytes, way.retained);
    EXPECT_EQ(rig.snapshot().quarantined_bytes, way.retained);
    EXPECT_EQ(rig.snapshot().quarantined_allocations, 1U);
    EXPECT_EQ(rig.snapshot().live_allocations, 0U);
    EXPECT_EQ(rig.snapshot().active_operations, 0U);
  }
}

// B-060, B-069, B-070, W-6
TEST(QuarantineReclaim, WhatNeverReachedItsAllocatorIsReleasedAfterAll) {
  for (const Way& way : ways) {
    if (!way.reclaimable) {
      continue;
    }
    SCOPED_TRACE(way.name);
    const BindingRig rig;
    const AllocationIdentity identity = enter(rig, way);
    EXPECT_EQ(rig.allocator->releases(), 0U);

    PreparedAllocationRelease again = must(rig.registry.reclaim(identity));

    EXPECT_EQ(again.identity(), identity);
    EXPECT_EQ(again.state(), State::queued);
    EXPECT_EQ(rig.snapshot().quarantined_allocations, 0U);
    EXPECT_EQ(rig.snapshot().quarantined_bytes, 0_B);
    EXPECT_EQ(rig.snapshot().queued_releases, 1U);
    EXPECT_TRUE(again.execute().is_released());
    EXPECT_EQ(rig.allocator->live(), 0U);
    expect_quiescent(rig.snapshot());
  }
}

// W-6
TEST(QuarantineReclaim, WhatReachedItsAllocatorOrIsLostIsNot) {
  for (const Way& way : ways) {
    if (way.reclaimable) {
      continue;
    }
    SCOPED_TRACE(way.name);
    const BindingRig rig;
    const AllocationIdentity identity = enter(rig, way);
    const std::uint64_t releases = rig.allocator->releases();

    const auto refused = refusal<NotReclaimable>(rig.registry.reclaim(identity));

    EXPECT_EQ(refused.allocation, identity);
    EXPECT_EQ(refused.state, way.state);
    EXPECT_EQ(refused.reason, way.reason);
    EXPECT_EQ(rig.snapshot().quarantined_bytes, way.retained);
    EXPECT_EQ(rig.allocator->releases(), releases);
  }
}

// W-6
TEST(QuarantineReclaim, MakesAMechanismRemovableWithoutTheLossOfItsDevice) {
  const BindingRig rig;
  const AllocationIdentity identity = dropped(rig);
  must(rig.registry.retire(rig.mechanism));
  EXPECT_EQ(refusal<QuarantinedOwnership>(rig.registry.remove(rig.mechanism)).count, 1U);

  EXPECT_TRUE(must(rig.registry.reclaim(identity)).execute().is_released());

  must(rig.registry.remove(rig.mechanism));
}

TEST(QuarantineReclaim, AReclaimedReleaseMayGoToQuarantineAndBeReclaimedAgain) {
  const BindingRig rig;
  const AllocationIdentity identity = dropped(rig);

  static_cast<void>(must(rig.registry.reclaim(identity)));

  EXPECT_EQ(rig.binding.quarantined()[0].reason, QuarantineReason(Kind::abandoned_request));
  EXPECT_TRUE(must(rig.registry.reclaim(identity)).execute().is_released());
  expect_quiescent(rig.snapshot());
}

//
TEST(QuarantineReclaim, ASecondOneIsStale) {
  const BindingRig rig;
  const AllocationIdentity identity = dropped(rig);
  PreparedAllocationRelease first = must(rig.registry.reclaim(identity));

  EXPECT_EQ(refusal<StaleAllocation>(rig.registry.reclaim(identity)).allocation, identity);

  EXPECT_TRUE(first.execute().is_released());
  EXPECT_EQ(refusal<StaleAllocation>(rig.registry.reclaim(identity)).allocation, identity);
  EXPECT_EQ(rig.allocator->releases(), 1U);
}

//
TEST(QuarantineReclaim, OfTwoThreadsExactlyOneGetsTheRelease) {
  constexpr int rounds = 100;
  const BindingRig rig;
  for (int round = 0; round < rounds; ++round) {
    const AllocationIdentity identity = dropped(rig);
    std::barrier start(2);
    std::array<int, 2> released{};
    std::array<int, 2> stale{};
    const auto compete = [&](std::size_t me) {
      start.arrive_and_wait();
      if (auto mine = rig.registry.reclaim(identity)) {
        released[me] += mine->execute().is_released() ? 1 : 0;
      } else {
        stale[me] += mine.error().as<StaleAllocation>() != nullptr ? 1 : 0;
      }
    };
    {
      const std::jthread other(compete, 1U);
      compete(0);
    }
    ASSERT_EQ(released[0] + released[1], 1);
    ASSERT_EQ(stale[0] + stale[1], 1);
  }

  EXPECT_EQ(rig.allocator->releases(), static_cast<std::uint64_t>(rounds));
  expect_quiescent(rig.snapshot());
}

TEST(QuarantineReclaim, WaitsForTheLastView) {
  const BindingRig rig;
  std::optional<OwningAllocation> owner = rig.allocate();
  const AllocationIdentity identity = owner->identity();
  std::optional<OwnedView> view = must(owner->view(0_B, 1_B));
  owner.reset();

  const auto refused = refusal<OutstandingViews>(rig.registry.reclaim(identity));
  EXPECT_EQ(refused.views, 1U);
  EXPECT_EQ(refused.allocation, identity);
  EXPECT_EQ(rig.snapshot().quarantined_allocations, 1U);
  view.reset();

  EXPECT_TRUE(must(rig.registry.reclaim(identity)).execute().is_released());
  expect_quiescent(rig.snapshot());
}

TEST(QuarantineReclaim, FollowsTheLifecycle) {
  const BindingRig rig;
  const AllocationIdentity identity = dropped(rig);
  rig.registry.invalidate_device(rig.device, "bus error");

  EXPECT_EQ(refusal<DeviceLost>(rig.registry.reclaim(identity)).reason.view(), "bus error");
  EXPECT_EQ(rig.snapshot().quarantined_allocations, 1U);
  must(rig.registry.confirm_context_terminated(rig.context));

  EXPECT_EQ(refusal<InactiveMechanism>(rig.registry.reclaim(identity)).lifecycle,
            MechanismLifecycle::terminated);
}

// B-083, W-6
TEST(QuarantineReconcile, DischargesEveryReasonWithoutACall) {
  for (const Way& way : ways) {
    SCOPED_TRACE(way.name);
    const BindingRig rig;
    const AllocationIdentity identity = enter(rig, way);
    const std::uint64_t releases = rig.allocator->releases();

    must(rig.registry.reconcile(identity, attest_memory_gone));

    expect_quiescent(rig.snapshot());
    EXPECT_TRUE(rig.binding.quarantined().empty());
    EXPECT_EQ(rig.allocator->releases(), releases);
    EXPECT_EQ(
        refusal<StaleAllocation>(rig.registry.reconcile(identity, attest_memory_gone)).allocation,
        identity);
    must(rig.registry.retire(rig.mechanism));
    must(rig.registry.remove(rig.mechanism));
  }
}

TEST(QuarantineReconcile, IsAllowedAfterTheLossAndNotAfterTheEnd) {
  const BindingRig rig;
  const AllocationIdentity first = dropped(rig);
  const AllocationIdentity second = dropped(rig);
  rig.registry.invalidate_device(rig.device, "gone");

  must(rig.registry.reconcile(first, attest_memory_gone));
  EXPECT_EQ(rig.snapshot().quarantined_allocations, 1U);
  must(rig.registry.confirm_context_terminated(rig.context));

  const auto refused =
      refusal<InactiveMechanism>(rig.registry.reconcile(second, attest_memory_gone));
  EXPECT_EQ(refused.lifecycle, MechanismLifecycle::terminated);
  expect_quiescent(rig.snapshot());
}

TEST(QuarantineReconcile, FreesTheRecordForTheNextAllocation) {
  const BindingRig rig;
  const AllocationIdentity before = dropped(rig);
  must(rig.registry.reconcile(before, attest_memory_gone));

  OwningAllocation again = rig.allocate();

  EXPECT_EQ(again.identity().place, before.place);
  EXPECT_NE(again.identity().generation, before.generation);
  EXPECT_EQ(refusal<StaleAllocation>(rig.registry.reclaim(before)).allocation, before);
  EXPECT_TRUE(must(again.release_now()).is_released());
}

/// Both ways out refuse `identity` as stale.
void expect_stale(const BindingRig& rig, const AllocationIdentity& identity) {
  EXPECT_EQ(refusal<StaleAllocation>(rig.registry.reclaim(identity)).allocation, identity);
  EXPECT_EQ(
      refusal<StaleAllocation>(rig.registry.reconcile(identity, attest_memory_gone)).allocation,
      identity);
}

TEST(QuarantineExit, OnlyARecordInQuarantineHasOne) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  const AllocationIdentity identity = owner.identity();

  expect_stale(rig, identity);
  PreparedAllocationRelease queued = must(owner.prepare_release());
  expect_stale(rig, identity);
  EXPECT_TRUE(queued.execute().is_released());
  expect_stale(rig, identity);
  EXPECT_EQ(rig.allocator->releases(), 1U);
}

TEST(QuarantineExit, AnIdentityThatNamesAnotherRecordIsStale) {
  const BindingRig rig;
  const AllocationIdentity one = dropped(rig);
  const AllocationIdentity two = dropped(rig);
  AllocationIdentity exchanged = one;
  exchanged.place = two.place;
  AllocationIdentity nowhere = one;
  nowhere.place = 0xFFFF'FFFFU;

  expect_stale(rig, exchanged);
  expect_stale(rig, nowhere);

  EXPECT_EQ(rig.snapshot().quarantined_allocations, 2U);
}

TEST(QuarantineExit, AnIdentityOfAnotherMechanismIsStale) {
  const BindingRig rig;
  const auto other = must(rig.registry.register_allocator(
      rig.context, rig.authority, std::make_shared<Recorder>(rig.device)));
  AllocationIdentity moved = dropped(rig);
  moved.binding.mechanism = other.identity;

  expect_stale(rig, moved);

  EXPECT_EQ(rig.snapshot().quarantined_allocations, 1U);
}

TEST(QuarantineExit, AForeignIdentityIsRefusedByItsRegistry) {
  const BindingRig rig;
  const BindingRig other;
  const AllocationIdentity foreign = dropped(other);
  AllocationIdentity mixed = dropped(rig);
  mixed.binding.mechanism = other.mechanism.identity;

  EXPECT_EQ(refusal<ForeignRegistry>(rig.registry.reclaim(foreign)).kind,
            RegisteredKind::allocation);
  EXPECT_EQ(refusal<ForeignRegistry>(rig.registry.reconcile(foreign, attest_memory_gone)).kind,
            RegisteredKind::allocation);
  EXPECT_EQ(refusal<ForeignRegistry>(rig.registry.reclaim(mixed)).kind, RegisteredKind::mechanism);
  EXPECT_EQ(refusal<ForeignRegistry>(rig.registry.reconcile(mixed, attest_memory_gone)).kind,
            RegisteredKind::mechanism);
  EXPECT_EQ(other.snapshot().quarantined_allocations, 1U);
}

TEST(QuarantineExit, ARemovedMechanismIsNamed) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  const AllocationIdentity identity = owner.identity();
  static_cast<void>(must(owner.release_now()));
  must(rig.registry.retire(rig.mechanism));
  must(rig.registry.remove(rig.mechanism));

  EXPECT_EQ(refusal<UnregisteredMechanism>(rig.registry.reclaim(identity)).mechanism,
            rig.mechanism.identity);
  EXPECT_EQ(refusal<UnregisteredMechanism>(rig.registry.reconcile(identity, attest_memory_gone))
                .mechanism,
            rig.mechanism.identity);
}

/// An adopted owner of memory that nobody has to release.
OwningAllocation adopt(const BindingRig& rig, Bytes bytes) {
  return must(rig.binding.adopt_allocation(
      {.address = DeviceAddress{0x1000}, .bytes = bytes, .alignment = 64_B}, attest_sole_owner));
}

//
TEST(QuarantineBytes, StayAtTheLargestNumberAndComeDownExactly) {
  const BindingRig rig;
  const AllocationIdentity largest = adopt(rig, Bytes::max()).identity();
  EXPECT_EQ(rig.snapshot().quarantined_bytes, Bytes::max());

  const AllocationIdentity small = adopt(rig, 100_B).identity();
  const AllocationIdentity again = adopt(rig, Bytes::max()).identity();

  EXPECT_EQ(rig.snapshot().quarantined_bytes, Bytes::max());
  EXPECT_EQ(rig.snapshot().quarantined_allocations, 3U);
  must(rig.registry.reconcile(largest, attest_memory_gone));
  EXPECT_EQ(rig.snapshot().quarantined_bytes, Bytes::max());
  must(rig.registry.reconcile(again, attest_memory_gone));
  EXPECT_EQ(rig.snapshot().quarantined_bytes, 100_B);
  must(rig.registry.reconcile(small, attest_memory_gone));
  expect_quiescent(rig.snapshot());
}

//
TEST(QuarantineBytes, OfASumAboveTheLargestNumberAreGoneWithTheContext) {
  const BindingRig rig;
  static_cast<void>(adopt(rig, Bytes::max()));
  static_cast<void>(adopt(rig, 100_B));
  ASSERT_EQ(rig.snapshot().quarantined_bytes, Bytes::max());
  rig.registry.invalidate_device(rig.device, "gone");

  must(rig.registry.confirm_context_terminated(rig.context));

  expect_quiescent(rig.snapshot());
}

TEST(QuarantineBytes, ZeroBytesInQuarantineStillCountAsAnAllocation) {
  const BindingRig rig;
  const AllocationIdentity identity = dropped(rig, 0_B);

  EXPECT_EQ(rig.snapshot().quarantined_allocations, 1U);
  EXPECT_EQ(rig.snapshot().quarantined_bytes, 0_B);
  EXPECT_TRUE(must(rig.registry.reclaim(identity)).execute().is_released());
}

std::set<std::uint64_t> generations(const QuarantinedAllocations& list) {
  std::set<std::uint64_t> found;
  for (const QuarantinedAllocation& each : list) {
    found.insert(each.identity.generation.serial());
  }
  return found;
}

TEST(QuarantineList, NamesEveryRecordAmongLiveOnesWhateverTheirNumber) {
  constexpr int records = 1500;
  const BindingRig rig;
  std::set<std::uint64_t> expected;
  std::vector<OwningAllocation> live;
  std::vector<AllocationIdentity> held;
  for (int i = 0; i < records; ++i) {
    OwningAllocation owner = rig.allocate(64_B);
    if (i % 3 == 0) {
      live.push_back(std::move(owner));
    } else {
      held.push_back(owner.identity());
      expected.insert(owner.identity().generation.serial());
    }
  }
  EXPECT_EQ(generations(rig.binding.quarantined()), expected);

  for (std::size_t i = 0; i < held.size(); i += 2) {
    must(rig.registry.reconcile(held[i], attest_memory_gone));
    expected.erase(held[i].generation.serial());
  }

  const QuarantinedAllocations list = rig.binding.quarantined();
  EXPECT_EQ(generations(list), expected);
  EXPECT_EQ(list.size(), expected.size());
  EXPECT_EQ(rig.snapshot().quarantined_allocations, expected.size());
}

TEST(QuarantineList, IsWalkedByEitherStepOfAnIterator) {
  const BindingRig rig;
  const std::set<std::uint64_t> dropped_here{dropped(rig).generation.serial(),
                                             dropped(rig).generation.serial()};
  const QuarantinedAllocations list = rig.binding.quarantined();
  std::set<std::uint64_t> found;

  QuarantinedAllocations::Iterator at = list.begin();
  found.insert((*at++).identity.generation.serial());
  found.insert((*at).identity.generation.serial());

  EXPECT_EQ(found, dropped_here);
  EXPECT_NE(at, list.end());
  EXPECT_EQ(++at, list.end());
}

TEST(QuarantineList, IsOfTheMechanismWhicheverBindingAllocated) {
  const BindingRig rig;
  const MemoryBinding second = must(rig.registry.bind(rig.mechanism));
  const AllocationIdentity identity = must(second.allocate(64_B, 64_B)).identity();

  ASSERT_EQ(rig.binding.quarantined().size(), 1U);
  EXPECT_EQ(rig.binding.quarantined()[0].identity, identity);
  EXPECT_EQ(rig.binding.quarantined()[0].identity.binding, second.identity());
}

}  // namespace
}  // namespace memstrata
