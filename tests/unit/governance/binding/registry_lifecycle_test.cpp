// SPDX-License-Identifier: Apache-2.0
// Retirement, loss, termination and removal of mechanisms and of what they stand on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

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
#include "support/capability_rig.hpp"
#include "support/recorder.hpp"

namespace memstrata::registry_lifecycle_test {
namespace {

using test::add_mechanism;
using test::BindingRig;
using test::CapabilityRig;
using test::expect_quiescent;
using test::must;
using test::must_do;
using testing::ElementsAre;
using testing::IsEmpty;
using State = MechanismLifecycle;

template <class T>
void expect_inactive(const Result<T, BindingError>& result,
                     MechanismIdentity mechanism,
                     State lifecycle) {
  ASSERT_FALSE(result.has_value());
  const auto* error = result.error().template as<InactiveMechanism>();
  ASSERT_NE(error, nullptr) << result.error().message();
  EXPECT_EQ(error->mechanism, mechanism);
  EXPECT_EQ(error->lifecycle, lifecycle);
  EXPECT_NE(std::string_view(error->operation), "");
}

template <class T>
void expect_lost(const Result<T, BindingError>& result,
                 DeviceKey device,
                 std::string_view reason = "fell off the bus") {
  ASSERT_FALSE(result.has_value());
  const auto* error = result.error().template as<DeviceLost>();
  ASSERT_NE(error, nullptr) << result.error().message();
  EXPECT_EQ(error->device, device);
  EXPECT_EQ(error->reason.view(), reason);
}

template <class Rig>
void lose(const Rig& rig) {
  rig.registry.invalidate_device(rig.device, "fell off the bus");
}

/// Brings the rig's mechanism, which owns nothing, into a state.
void bring_to(const BindingRig& rig, State state) {
  if (state == State::retired) {
    must_do(rig.registry.retire(rig.mechanism));
  } else if (state != State::active) {
    lose(rig);
  }
  if (state == State::terminated) {
    must_do(rig.registry.confirm_context_terminated(rig.context));
  }
  ASSERT_EQ(rig.snapshot().lifecycle, state);
}

constexpr std::array all_states{State::active,
                                State::retired,
                                State::device_lost,
                                State::terminated};

TEST(MechanismTable, RetirementOnlyChangesAnActiveOne) {
  constexpr std::array after{State::retired, State::retired, State::device_lost, State::terminated};
  for (std::size_t i = 0; i < all_states.size(); ++i) {
    const BindingRig rig;
    bring_to(rig, all_states[i]);

    EXPECT_TRUE(rig.registry.retire(rig.mechanism).has_value());

    EXPECT_EQ(rig.snapshot().lifecycle, after[i]);
  }
}

TEST(MechanismTable, LossChangesEveryOneThatIsNotTerminated) {
  for (const State before : all_states) {
    const BindingRig rig;
    bring_to(rig, before);

    lose(rig);

    EXPECT_EQ(rig.snapshot().lifecycle,
              before == State::terminated ? State::terminated : State::device_lost);
  }
}

TEST(MechanismTable, TheEndOfTheContextIsConfirmedOnlyAfterItsLoss) {
  for (const State before : all_states) {
    const BindingRig rig;
    bring_to(rig, before);

    const auto confirmed = rig.registry.confirm_context_terminated(rig.context);

    if (before == State::device_lost) {
      EXPECT_TRUE(confirmed.has_value());
      EXPECT_EQ(rig.snapshot().lifecycle, State::terminated);
    } else {
      expect_inactive(confirmed, rig.mechanism.identity, before);
      EXPECT_EQ(rig.snapshot().lifecycle, before);
    }
  }
}

// B-049
TEST(MechanismTable, RemovalIsRefusedOnlyForAnActiveOneThatOwnsNothing) {
  for (const State before : all_states) {
    const BindingRig rig;
    bring_to(rig, before);

    const auto removed = rig.registry.remove(rig.mechanism);

    if (before == State::active) {
      expect_inactive(removed, rig.mechanism.identity, State::active);
      EXPECT_TRUE(rig.registry.snapshot(rig.mechanism).has_value());
    } else {
      EXPECT_TRUE(removed.has_value());
      EXPECT_FALSE(rig.registry.snapshot(rig.mechanism).has_value());
    }
  }
}

// B-044, G-169, G-174
TEST(DeviceLoss, AViewIsRefusedAndItsOperationNotRun) {
  const BindingRig rig(DeviceKey::device(3));
  OwningAllocation owner = rig.allocate();
  const OwnedView view = must(owner.view(Bytes{}, Bytes{64}));

  lose(rig);
  bool ran = false;
  const auto refused =
      rig.binding.with_view(view, [&ran](ValidatedMemoryView /*view*/) { ran = true; });

  expect_lost(refused, DeviceKey::device(3));
  EXPECT_FALSE(ran);
}

// B-045, B-080, G-169, G-174
TEST(DeviceLoss, AReleaseIsRefusedAndTheOwnerKeepsItsAllocation) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  const AllocationIdentity identity = owner.identity();

  lose(rig);

  expect_lost(owner.release_now(), rig.device);
  expect_lost(owner.prepare_release(), rig.device);
  expect_lost(rig.binding.release_now(owner), rig.device);
  EXPECT_EQ(owner.identity(), identity);
  EXPECT_EQ(owner.size(), 4096_B);
  EXPECT_EQ(owner.state(), AllocationReleaseState::live);
  EXPECT_EQ(rig.allocator->releases(), 0U);
  EXPECT_EQ(rig.snapshot().live_allocations, 1U);
  EXPECT_THAT(rig.drops->names(), IsEmpty());
}

// B-046, G-169, G-174
TEST(DeviceLoss, AConfirmedEndLetsEverythingBeRemovedAndTheHandlesEndTheParts) {
  auto rig = std::make_unique<BindingRig>();
  const auto drops = rig->drops;
  std::optional<MemoryBinding> binding = rig->binding;
  std::optional<OwningAllocation> owner = rig->allocate();
  std::optional<OwnedView> view = must(owner->view(Bytes{}, Bytes{64}));
  lose(*rig);

  must_do(rig->registry.confirm_context_terminated(rig->context));
  EXPECT_EQ(must(rig->registry.snapshot(rig->mechanism)).lifecycle, State::terminated);
  expect_quiescent(rig->snapshot());
  must_do(rig->registry.remove(rig->mechanism));
  must_do(rig->registry.remove_provider_context(rig->context));
  must_do(rig->registry.remove_authority(rig->authority));
  rig.reset();
  EXPECT_THAT(drops->names(), IsEmpty());
  view.reset();
  owner.reset();
  binding.reset();

  EXPECT_THAT(drops->names(), ElementsAre("allocator", "authority", "context"));
}

// B-047, G-174
TEST(DeviceLoss, TheEndIsNotConfirmedWhileACallRuns) {
  const BindingRig rig;
  std::optional<Result<void, BindingError>> confirmed;
  rig.allocator->on_call([&](const char* /*operation*/) {
    lose(rig);
    confirmed = rig.registry.confirm_context_terminated(rig.context);
  });

  OwningAllocation owner = rig.allocate();

  ASSERT_TRUE(confirmed && !confirmed->has_value());
  const auto* error = confirmed->error().as<ContextNotQuiescent>();
  ASSERT_NE(error, nullptr) << confirmed->error().message();
  EXPECT_EQ(error->context, rig.context.identity);
  EXPECT_EQ(error->active_operations, 1U);
  EXPECT_EQ(rig.snapshot().lifecycle, State::device_lost);
}

// B-048, G-174
TEST(DeviceLoss, ACallThatBeganBeforeItStillMakesItsAllocation) {
  const BindingRig rig;
  rig.allocator->on_call([&rig](const char* /*operation*/) { lose(rig); });

  const auto owner = rig.binding.allocate(Bytes{64}, Bytes{16});

  ASSERT_TRUE(owner.has_value());
  EXPECT_EQ(rig.snapshot().live_allocations, 1U);
  EXPECT_EQ(rig.snapshot().active_operations, 0U);
  must_do(rig.registry.confirm_context_terminated(rig.context));
  EXPECT_TRUE(rig.registry.remove(rig.mechanism).has_value());
  EXPECT_TRUE(rig.registry.remove_provider_context(rig.context).has_value());
  EXPECT_TRUE(rig.registry.remove_authority(rig.authority).has_value());
  EXPECT_EQ(owner->size(), 64_B);
}

// G-169
TEST(DeviceLoss, AnOwnerThatIsDroppedAfterItStaysOnTheBooksUntilTheEndIsConfirmed) {
  const BindingRig rig;
  {
    const OwningAllocation dropped = rig.allocate();
    lose(rig);
  }

  EXPECT_EQ(rig.snapshot().live_allocations, 1U);
  EXPECT_EQ(rig.snapshot().quarantined_allocations, 0U);
  expect_inactive(rig.registry.remove(rig.mechanism), rig.mechanism.identity, State::device_lost);
  must_do(rig.registry.confirm_context_terminated(rig.context));

  expect_quiescent(rig.snapshot());
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

// G-169
TEST(DeviceLoss, ConfirmationClearsTheQuarantineWithoutACall) {
  const BindingRig rig;
  {
    const OwningAllocation dropped = rig.allocate();
  }
  lose(rig);
  ASSERT_EQ(rig.snapshot().quarantined_allocations, 1U);

  must_do(rig.registry.confirm_context_terminated(rig.context));

  expect_quiescent(rig.snapshot());
  EXPECT_TRUE(rig.binding.quarantined().empty());
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

// G-169
TEST(DeviceLoss, AQueuedReleaseBlocksRemovalAndConfirmationUntilItIsSettled) {
  const BindingRig rig;
  OwningAllocation owner = rig.allocate();
  PreparedAllocationRelease queued = must(owner.prepare_release());
  must_do(rig.registry.retire(rig.mechanism));
  expect_inactive(rig.registry.remove(rig.mechanism), rig.mechanism.identity, State::retired);
  lose(rig);
  expect_inactive(rig.registry.remove(rig.mechanism), rig.mechanism.identity, State::device_lost);
  const auto early = rig.registry.confirm_context_terminated(rig.context);
  ASSERT_FALSE(early.has_value());
  ASSERT_NE(early.error().as<ContextNotQuiescent>(), nullptr) << early.error().message();

  EXPECT_EQ(queued.execute().state(), AllocationReleaseState::device_lost);

  EXPECT_TRUE(rig.registry.confirm_context_terminated(rig.context).has_value());
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

/// Every operation that needs an active mechanism, and whether `refused` holds for each.
template <class Refused>
void expect_no_new_work(const CapabilityRig& rig,
                        OwningAllocation& owner,
                        const OwnedView& view,
                        const BoundSharedPrefix& prefix,
                        Refused refused) {
  const std::uint64_t calls = rig.allocator->calls("allocate") + rig.allocator->shared_calls() +
                              rig.allocator->virtual_calls();
  const ByteRange range{.offset = Bytes{}, .size = Bytes{8}};
  const BoundCommitRange one{.allocation = &owner, .range = range};

  refused(rig.registry.bind(rig.mechanism));
  refused(rig.binding.allocate(Bytes{64}, Bytes{16}));
  refused(rig.binding.adopt_allocation(owner.span(), attest_sole_owner));
  refused(rig.binding.virtual_backing());
  refused(rig.binding.shared_mapping());
  refused(owner.view(Bytes{}, Bytes{8}));
  bool ran = false;
  refused(rig.binding.with_view(view, [&ran](ValidatedMemoryView /*view*/) { ran = true; }));
  EXPECT_FALSE(ran);
  refused(rig.backing.allocate_committed(Bytes{64}, Bytes{16}, {}));
  refused(rig.backing.commit(owner, range));
  const auto batch = rig.backing.commit_all({&one, 1});
  ASSERT_FALSE(batch.has_value());
  EXPECT_EQ(batch.error().committed_ranges, 0U);
  refused(rig.backing.mapped_bytes(Bytes{64}, Bytes{16}));
  refused(rig.backing.mapped_bytes({&one, 1}));
  refused(rig.backing.decommit(owner, range));
  refused(rig.backing.committed_bytes(owner));
  refused(rig.mapping.create_shared_prefix(Bytes{16}));
  refused(rig.mapping.incremental_owned_bytes(prefix));
  refused(rig.mapping.commit_shared_prefix(prefix, owner, Bytes{}));
  refused(rig.mapping.break_shared(owner, range));
  refused(prefix.seal());
  EXPECT_EQ(rig.allocator->calls("allocate") + rig.allocator->shared_calls() +
                rig.allocator->virtual_calls(),
            calls);
}

//
TEST(RetiredMechanism, RefusesAllNewWorkBeforeAnyCall) {
  const CapabilityRig rig;
  OwningAllocation owner = rig.allocate();
  const OwnedView view = must(owner.view(Bytes{}, Bytes{8}));
  const BoundSharedPrefix prefix = rig.sealed_prefix();

  must_do(rig.registry.retire(rig.mechanism));

  expect_no_new_work(rig, owner, view, prefix, [&rig](const auto& result) {
    expect_inactive(result, rig.mechanism.identity, State::retired);
  });
}

//
TEST(RetiredMechanism, StillReleasesWhatIsLive) {
  const BindingRig rig;
  OwningAllocation now = rig.allocate();
  OwningAllocation later = rig.allocate();

  must_do(rig.registry.retire(rig.mechanism));

  EXPECT_TRUE(must(now.release_now()).is_released());
  EXPECT_TRUE(must(rig.binding.prepare_release(later)).execute().is_released());
  EXPECT_EQ(rig.allocator->releases(), 2U);
  EXPECT_TRUE(rig.registry.remove(rig.mechanism).has_value());
}

// G-174
TEST(DeviceLoss, RefusesAllNewWorkBeforeAnyCall) {
  const CapabilityRig rig;
  OwningAllocation owner = rig.allocate();
  const OwnedView view = must(owner.view(Bytes{}, Bytes{8}));
  const BoundSharedPrefix prefix = rig.sealed_prefix();

  lose(rig);

  expect_no_new_work(
      rig, owner, view, prefix, [&rig](const auto& result) { expect_lost(result, rig.device); });
}

// G-174
TEST(DeviceLoss, AConfirmedEndRefusesAllNewWorkBeforeAnyCall) {
  const CapabilityRig rig;
  OwningAllocation owner = rig.allocate();
  const OwnedView view = must(owner.view(Bytes{}, Bytes{8}));
  const BoundSharedPrefix prefix = rig.sealed_prefix();

  lose(rig);
  must_do(rig.registry.confirm_context_terminated(rig.context));

  expect_no_new_work(rig, owner, view, prefix, [&rig](const auto& result) {
    expect_inactive(result, rig.mechanism.identity, State::terminated);
  });
  expect_inactive(owner.release_now(), rig.mechanism.identity, State::terminated);
}

//
TEST(RetiredMechanism, RefusesAnAdoptionAndTheCallerKeepsTheMemory) {
  for (const State state : {State::retired, State::device_lost, State::terminated}) {
    const BindingRig rig;
    const AllocationSpan made{.address = rig.allocator->make(Bytes{512}, Bytes{64}),
                              .bytes = Bytes{512},
                              .alignment = Bytes{64}};
    bring_to(rig, state);

    const auto refused = rig.binding.adopt_allocation(made, attest_sole_owner);

    ASSERT_FALSE(refused.has_value());
    EXPECT_TRUE(rig.allocator->is_live(made.address));
    expect_quiescent(rig.snapshot());
  }
}

//
TEST(DeviceLoss, TheLastReasonIsTheOneThatIsReported) {
  const BindingRig rig;

  lose(rig);
  rig.registry.invalidate_device(rig.device, "driver was unloaded");

  expect_lost(rig.binding.allocate(Bytes{64}, Bytes{16}), rig.device, "driver was unloaded");
}

//
TEST(DeviceLoss, ALossAfterTheConfirmedEndChangesNothing) {
  const BindingRig rig;
  lose(rig);
  must_do(rig.registry.confirm_context_terminated(rig.context));

  rig.registry.invalidate_device(rig.device, "again");

  EXPECT_EQ(rig.snapshot().lifecycle, State::terminated);
  EXPECT_EQ(must(rig.registry.provider_context(rig.context)).lifecycle,
            ProviderContextLifecycle::terminated);
  expect_inactive(
      rig.binding.allocate(Bytes{64}, Bytes{16}), rig.mechanism.identity, State::terminated);
}

TEST(DeviceLoss, WithoutAReasonTheMessageSaysSo) {
  const BindingRig rig;

  rig.registry.invalidate_device(rig.device, {});

  const auto refused = rig.binding.allocate(Bytes{64}, Bytes{16});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), testing::HasSubstr("no reason was given"));
}

TEST(DeviceLoss, OfADeviceWithoutMechanismsIsNoError) {
  const BindingRig rig;

  rig.registry.invalidate_device(DeviceKey::device(7), "never seen");

  EXPECT_EQ(rig.snapshot().lifecycle, State::active);
  EXPECT_EQ(must(rig.registry.provider_context(rig.context)).lifecycle,
            ProviderContextLifecycle::active);
}

//
TEST(ContextTermination, OneMechanismThatIsNotLostStopsItForAll) {
  // A loss reaches every mechanism of a context, and a lost context takes no new one: none is active beside a lost.
  const BindingRig rig;
  const RegisteredMechanism retired = add_mechanism(rig);
  must_do(rig.registry.retire(retired));
  OwningAllocation owner = rig.allocate();

  const auto refused = rig.registry.confirm_context_terminated(rig.context);

  ASSERT_FALSE(refused.has_value());
  ASSERT_NE(refused.error().as<InactiveMechanism>(), nullptr) << refused.error().message();
  EXPECT_EQ(rig.snapshot().lifecycle, State::active);
  EXPECT_EQ(must(rig.registry.snapshot(retired)).lifecycle, State::retired);
  EXPECT_EQ(rig.snapshot().live_allocations, 1U);
  must_do(owner.release_now());
}

//
TEST(ContextTermination, OneBusyMechanismStopsItForAll) {
  const BindingRig rig;
  const RegisteredMechanism other = add_mechanism(rig);
  OwningAllocation owner = rig.allocate();
  PreparedAllocationRelease queued = must(owner.prepare_release());
  lose(rig);

  const auto refused = rig.registry.confirm_context_terminated(rig.context);

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<ContextNotQuiescent>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->active_operations, 1U);
  EXPECT_EQ(rig.snapshot().lifecycle, State::device_lost);
  EXPECT_EQ(must(rig.registry.snapshot(other)).lifecycle, State::device_lost);
  static_cast<void>(queued.execute());
}

TEST(ContextTermination, ReachesOnlyTheMechanismsOfItsContext) {
  const BindingRig rig;
  const auto context = must(rig.registry.register_provider_context(rig.device, nullptr));
  const RegisteredMechanism other = must(rig.registry.register_allocator(
      context, rig.authority, std::make_shared<test::Recorder>(rig.device)));
  lose(rig);

  must_do(rig.registry.confirm_context_terminated(rig.context));

  EXPECT_EQ(rig.snapshot().lifecycle, State::terminated);
  EXPECT_EQ(must(rig.registry.snapshot(other)).lifecycle, State::device_lost);
}

TEST(ContextTermination, OfAContextWithoutMechanismsSucceedsAndChangesOnlyALostOne) {
  const BindingRegistry registry = must(BindingRegistry::create());
  const auto context = must(registry.register_provider_context(DeviceKey::host(), nullptr));

  EXPECT_TRUE(registry.confirm_context_terminated(context).has_value());
  EXPECT_EQ(must(registry.provider_context(context)).lifecycle, ProviderContextLifecycle::active);
  registry.invalidate_device(DeviceKey::host(), "fell off the bus");
  EXPECT_TRUE(registry.confirm_context_terminated(context).has_value());

  EXPECT_EQ(must(registry.provider_context(context)).lifecycle,
            ProviderContextLifecycle::terminated);
}

// W-12
TEST(ProviderContext, ALostContextTakesNoNewMechanism) {
  const BindingRig rig;
  lose(rig);

  const auto refused = rig.registry.register_allocator(
      rig.context, rig.authority, std::make_shared<test::Recorder>(rig.device));

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<InactiveProviderContext>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->lifecycle, ProviderContextLifecycle::device_lost);
  EXPECT_TRUE(rig.registry.confirm_context_terminated(rig.context).has_value());
}

TEST(ProviderContext, RetirementRetiresItsMechanismsAndNoOthers) {
  const BindingRig rig;
  const auto context = must(rig.registry.register_provider_context(rig.device, nullptr));
  const RegisteredMechanism other = must(rig.registry.register_allocator(
      context, rig.authority, std::make_shared<test::Recorder>(rig.device)));

  must_do(rig.registry.retire_provider_context(rig.context));

  EXPECT_EQ(rig.snapshot().lifecycle, State::retired);
  EXPECT_EQ(must(rig.registry.snapshot(other)).lifecycle, State::active);
  const auto none = rig.registry.bind(rig.device);
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().as<NoSelectedMechanism>(), nullptr);
  EXPECT_EQ(must(rig.registry.provider_context(rig.context)).lifecycle,
            ProviderContextLifecycle::retiring);
}

TEST(ProviderContext, ASnapshotNamesWhatItIsAndWhoUsesIt) {
  const BindingRig rig(DeviceKey::device(2));
  static_cast<void>(add_mechanism(rig));

  const ProviderContextSnapshot now = must(rig.registry.provider_context(rig.context));

  EXPECT_EQ(now.identity, rig.context.identity);
  EXPECT_EQ(now.device, DeviceKey::device(2));
  EXPECT_EQ(now.lifecycle, ProviderContextLifecycle::active);
  EXPECT_EQ(now.pins, 0U);
  EXPECT_EQ(now.mechanisms, 2U);
}

// X-007, W-11
TEST(ProviderContext, RemovalAfterARegistrationIsRefusedWithTheNumberOfUsers) {
  const BindingRig rig;
  static_cast<void>(add_mechanism(rig));

  const auto refused = rig.registry.remove_provider_context(rig.context);

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<ProviderContextInUse>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->context, rig.context.identity);
  EXPECT_EQ(error->mechanisms, 2U);
  EXPECT_EQ(error->pins, 0U);
  EXPECT_EQ(must(rig.registry.provider_context(rig.context)).lifecycle,
            ProviderContextLifecycle::active);
}

TEST(Authority, RemovalIsRefusedWithTheNumberOfUsers) {
  const BindingRig rig;

  const auto refused = rig.registry.remove_authority(rig.authority);

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<AuthorityInUse>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->authority, rig.authority.identity);
  EXPECT_EQ(error->mechanisms, 1U);
}

TEST(Authority, ARemovedOneIsRefusedByItsIdentity) {
  const BindingRig rig;
  const auto authority = must(rig.registry.register_authority(rig.device, nullptr));
  must_do(rig.registry.remove_authority(authority));

  const auto refused = rig.registry.remove_authority(authority);

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<UnregisteredAuthority>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->authority, authority.identity);
}

// B-077, G-167
TEST(MechanismRemoval, QuarantineIsNamedFirstEvenForAnActiveMechanism) {
  const BindingRig rig;
  {
    const OwningAllocation dropped = rig.allocate();
  }
  OwningAllocation live = rig.allocate();

  const auto refused = rig.registry.remove(rig.mechanism);

  ASSERT_FALSE(refused.has_value());
  const auto* error = refused.error().as<QuarantinedOwnership>();
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(error->mechanism, rig.mechanism.identity);
  EXPECT_EQ(error->count, 1U);
  must_do(live.release_now());
}

TEST(MechanismRemoval, ALiveAllocationBlocksIt) {
  const BindingRig rig;
  OwningAllocation live = rig.allocate();
  must_do(rig.registry.retire(rig.mechanism));

  expect_inactive(rig.registry.remove(rig.mechanism), rig.mechanism.identity, State::retired);
  must_do(live.release_now());

  EXPECT_TRUE(rig.registry.remove(rig.mechanism).has_value());
}

TEST(MechanismRemoval, ACallInFlightBlocksIt) {
  const BindingRig rig;
  std::optional<Result<void, BindingError>> removed;
  rig.allocator->faults().fail_next("allocate");
  rig.allocator->on_call([&](const char* /*operation*/) {
    must_do(rig.registry.retire(rig.mechanism));
    removed = rig.registry.remove(rig.mechanism);
  });

  EXPECT_FALSE(rig.binding.allocate(Bytes{64}, Bytes{16}).has_value());

  ASSERT_TRUE(removed.has_value());
  expect_inactive(*removed, rig.mechanism.identity, State::retired);
  EXPECT_TRUE(rig.registry.remove(rig.mechanism).has_value());
}

TEST(MechanismSnapshot, NamesWhatTheMechanismIs) {
  const BindingRig rig(DeviceKey::device(4));

  const MechanismSnapshot now = must(rig.registry.snapshot(rig.mechanism));

  EXPECT_EQ(now.identity, rig.mechanism.identity);
  EXPECT_EQ(now.device, DeviceKey::device(4));
  EXPECT_EQ(now.provider_context, rig.context.identity);
  EXPECT_EQ(now.authority, rig.authority.identity);
  EXPECT_EQ(now.coherence, MechanismCoherence::self_contained);
  EXPECT_EQ(now.lifecycle, State::active);
  EXPECT_TRUE(now.quiescent());
}

/// A snapshot that names the rig's mechanism and no figures.
MechanismSnapshot without_figures(const BindingRig& rig) {
  const MechanismSnapshot now = rig.snapshot();
  return {.identity = now.identity,
          .device = now.device,
          .provider_context = now.provider_context,
          .authority = now.authority,
          .coherence = now.coherence,
          .lifecycle = now.lifecycle,
          .quarantined_bytes = {},
          .shared_prefix_bytes = {}};
}

TEST(MechanismSnapshot, WithoutFiguresIsOfAMechanismThatDoesNothing) {
  const MechanismSnapshot none = without_figures(BindingRig());

  EXPECT_TRUE(none.quiescent());
  expect_quiescent(none);
  EXPECT_EQ(none.shared_prefixes, 0U);
}

TEST(MechanismSnapshot, OwnsSomethingByAnyOneOfItsThreeCounts) {
  for (const auto count : {&MechanismSnapshot::live_allocations,
                           &MechanismSnapshot::queued_releases,
                           &MechanismSnapshot::quarantined_allocations}) {
    MechanismSnapshot one = without_figures(BindingRig());
    one.*count = 1;

    EXPECT_TRUE(one.retains_ownership());
    EXPECT_FALSE(one.quiescent());
  }
}

TEST(MechanismSnapshot, OwnsNothingByACallAndIsNotQuietEither) {
  MechanismSnapshot busy = without_figures(BindingRig());
  busy.active_operations = 1;

  EXPECT_FALSE(busy.retains_ownership());
  EXPECT_FALSE(busy.quiescent());
}

TEST(MechanismSnapshot, AllOfARegistryAreListed) {
  const BindingRig rig;
  for (int i = 0; i < 20; ++i) {
    static_cast<void>(add_mechanism(rig));
  }

  EXPECT_EQ(rig.registry.snapshots().size(), 21U);
}

}  // namespace
}  // namespace memstrata::registry_lifecycle_test
