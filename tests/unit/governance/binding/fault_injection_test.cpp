// SPDX-License-Identifier: Apache-2.0
// Every call of foreign code fails, throws and loses the device at each of its places in turn; afterwards the books
// agree with what the mechanisms really hold, and the same scenario runs again without a fault.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
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
#include "memstrata/governance/binding/bound_capability.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"
#include "support/binding_rig.hpp"
#include "support/fake_allocator.hpp"
#include "support/injected.hpp"
#include "support/injection.hpp"

namespace memstrata {
namespace {

using test::all_faults;
using test::FakeAllocator;
using test::Fault;
using test::InjectedAllocator;
using test::InjectedFences;
using test::InjectedPins;
using test::InjectedQueue;
using test::InjectedResource;
using test::Injector;
using test::must;
using test::Site;

constexpr DeviceKey device = DeviceKey::host();

struct Mechanism {
  RegisteredProviderContext context;
  RegisteredAuthority authority;
  RegisteredMechanism handle;
};

/// A registry with one mechanism of which everything is injected, and what the fakes below it say.
class World {
 public:
  World() {
    injector.at_every_call = [this] { look(); };
    injector.lose_device = [this] { registry.invalidate_device(device, "injected"); };
    set_up();
  }

  World(const World&) = delete;
  World& operator=(const World&) = delete;
  World(World&&) = delete;
  World& operator=(World&&) = delete;

  ~World() { injector.at_every_call = nullptr; }

  /// The mechanism that a scenario begins with.
  void set_up() { main_ = must(register_mechanism()); }

  [[nodiscard]] const Mechanism& main() const { return main_.value(); }

  [[nodiscard]] MemoryBinding bind() const { return must(registry.bind(main().handle)); }

  /// A context, an authority and a mechanism of their own.
  Result<Mechanism, BindingError> register_mechanism() {
    MEMSTRATA_TRY(
        const auto context,
        registry.register_provider_context(device, std::make_shared<InjectedResource>(injector)));
    contexts_.push_back(context);
    MEMSTRATA_TRY(
        const auto authority,
        registry.register_authority(device, std::make_shared<InjectedResource>(injector)));
    authorities_.push_back(authority);
    auto fake = std::make_shared<FakeAllocator>();
    MEMSTRATA_TRY(const auto handle,
                  registry.register_allocator(
                      context, authority, std::make_shared<InjectedAllocator>(injector, fake)));
    fakes_[handle.identity.serial()] = std::move(fake);
    return Mechanism{.context = context, .authority = authority, .handle = handle};
  }

  [[nodiscard]] FakeAllocator& fake(MechanismIdentity of) { return *fakes_.at(of.serial()); }

  /// Without a fault every step of a scenario succeeds.
  template <class R>
  R step(R result) const {
    if (strict) {
      EXPECT_TRUE(result.has_value());
    }
    return result;
  }

  /// Nothing that is live is off the books, not even while foreign code runs.
  void look() {
    for (const MechanismSnapshot& now : registry.snapshots()) {
      if (const auto found = fakes_.find(now.identity.serial());
          found != fakes_.end() && now.lifecycle != MechanismLifecycle::terminated) {
        EXPECT_GE(
            now.live_allocations + now.quarantined_allocations + now.active_operations + loose,
            found->second->live_allocations());
      }
    }
  }

  void check_books();
  void clean();

  Injector injector;  // outlives what is registered
  BindingRegistry registry = must(BindingRegistry::create());
  bool strict = false;
  std::size_t loose = 0;  ///< Live, and not yet or no longer on the books.

 private:
  void clear_quarantine(const MechanismSnapshot& of);

  std::optional<Mechanism> main_;
  std::map<std::uint64_t, std::shared_ptr<FakeAllocator>> fakes_;
  std::vector<RegisteredProviderContext> contexts_;
  std::vector<RegisteredAuthority> authorities_;
};

/// No foreign code runs and no request is open: records, counts, sums and the mechanisms' own counts agree.
void World::check_books() {
  EXPECT_EQ(loose, 0U);
  for (const MechanismSnapshot& now : registry.snapshots()) {
    EXPECT_EQ(now.active_operations, 0U);
    EXPECT_EQ(now.queued_releases, 0U);
    const RegisteredMechanism handle{
        .identity = now.identity, .device = now.device, .coherence = now.coherence};
    std::uint64_t listed = 0;
    Bytes retained;
    for (const QuarantinedAllocation each : must(registry.quarantined(handle))) {
      EXPECT_TRUE(is_quarantine(each.state));
      const bool midway = each.state == AllocationReleaseState::partially_unmapped;
      EXPECT_EQ(each.retained_bytes, midway ? InjectedAllocator::half(each.bytes) : each.bytes);
      retained += each.retained_bytes;
      ++listed;
    }
    EXPECT_EQ(now.quarantined_allocations, listed);
    EXPECT_EQ(now.quarantined_bytes, retained);
    if (now.lifecycle != MechanismLifecycle::terminated) {
      EXPECT_EQ(now.live_allocations + listed, fake(now.identity).live_allocations());
    }
    if (now.lifecycle == MechanismLifecycle::active ||
        now.lifecycle == MechanismLifecycle::retired) {
      EXPECT_EQ(now.live_allocations, 0U);
      EXPECT_EQ(now.shared_prefixes, 0U);
    }
  }
}

/// What never reached the allocator is released after all; of the rest somebody proves that it is gone.
void World::clear_quarantine(const MechanismSnapshot& of) {
  const RegisteredMechanism handle{
      .identity = of.identity, .device = of.device, .coherence = of.coherence};
  for (const QuarantinedAllocation each : must(registry.quarantined(handle))) {
    auto reclaimed = registry.reclaim(each.identity);
    const bool possible =
        each.state == AllocationReleaseState::quarantined && each.reason.permits_reclaim();
    ASSERT_EQ(reclaimed.has_value(), possible);
    if (reclaimed) {
      EXPECT_TRUE(reclaimed->execute().is_released());
      continue;
    }
    EXPECT_TRUE(
        fake(of.identity)
            .release({.address = each.address, .bytes = each.bytes, .alignment = each.alignment})
            .is_complete());
    EXPECT_TRUE(registry.reconcile(each.identity, attest_memory_gone).has_value());
  }
  const MechanismSnapshot after = must(registry.snapshot(handle));
  EXPECT_TRUE(after.quiescent());
  EXPECT_EQ(after.quarantined_bytes, 0_B);
  EXPECT_EQ(fake(of.identity).live_allocations(), 0U);
}

/// Takes everything off the registry, through the end of the context where the device was lost.
void World::clean() {
  injector.disarm();
  for (const MechanismSnapshot& now : registry.snapshots()) {
    if (now.lifecycle == MechanismLifecycle::active ||
        now.lifecycle == MechanismLifecycle::retired) {
      clear_quarantine(now);
    }
  }
  for (const RegisteredProviderContext& context : contexts_) {
    const auto now = registry.provider_context(context);
    if (now && now->lifecycle == ProviderContextLifecycle::device_lost) {
      EXPECT_TRUE(registry.confirm_context_terminated(context).has_value());
    }
  }
  for (const MechanismSnapshot& now : registry.snapshots()) {
    const RegisteredMechanism handle{
        .identity = now.identity, .device = now.device, .coherence = now.coherence};
    EXPECT_TRUE(now.quiescent());
    EXPECT_EQ(now.shared_prefixes, 0U);
    EXPECT_TRUE(registry.retire(handle).has_value());
    EXPECT_TRUE(registry.remove(handle).has_value());
  }
  EXPECT_TRUE(registry.snapshots().empty());
  for (const RegisteredProviderContext& context : std::exchange(contexts_, {})) {
    const auto removed = registry.remove_provider_context(context);
    EXPECT_TRUE(removed || removed.error().as<UnregisteredProviderContext>() != nullptr);
  }
  for (const RegisteredAuthority& authority : std::exchange(authorities_, {})) {
    const auto removed = registry.remove_authority(authority);
    EXPECT_TRUE(removed || removed.error().as<UnregisteredAuthority>() != nullptr);
  }
  fakes_.clear();
}

// The scenarios. Each goes on as far as it gets and lets go of everything at its end.

void allocate_and_release(World& world) {
  const MemoryBinding binding = world.bind();
  auto first = world.step(binding.allocate(64_B, 8_B));
  auto second = world.step(binding.allocate(0_B, 8_B));
  auto third = world.step(binding.allocate(100_B, 8_B));
  auto fourth = world.step(binding.allocate(8_B, 8_B));
  if (first) {
    world.step(first->release_now());
  }
  if (second) {
    world.step(binding.release_now(*second));
  }
  ReleaseBatch batch;
  for (auto* const each : {&third, &fourth}) {
    if (*each) {
      if (auto prepared = world.step((*each)->prepare_release())) {
        batch.execute(*prepared);
      }
    }
  }
}

void adopt(World& world) {
  const MemoryBinding binding = world.bind();
  FakeAllocator& fake = world.fake(world.main().handle.identity);
  for (int round = 0; round < 3; ++round) {
    ++world.loose;
    const AllocationSpan span{
        .address = must(fake.allocate(48_B, 8_B)), .bytes = 48_B, .alignment = 8_B};
    auto owner = world.step(binding.adopt_allocation(span, attest_sole_owner));
    if (!owner) {
      EXPECT_TRUE(fake.release(span).is_complete());  // it stayed with the caller
    }
    --world.loose;
    if (owner) {
      world.step(owner->release_now());
    }
  }
}

void commit_and_decommit(World& world) {
  const MemoryBinding binding = world.bind();
  const auto backing = must(binding.virtual_backing()).value();
  const std::array<ByteRange, 1> front{ByteRange{.offset = 0_B, .size = 8_B}};
  auto one = world.step(backing.allocate_committed(64_B, 8_B, front));
  auto two = world.step(backing.allocate_committed(32_B, 8_B, {}));
  world.step(backing.mapped_bytes(64_B, 8_B));
  if (one && two) {
    const std::array<BoundCommitRange, 3> ranges{
        BoundCommitRange{.allocation = &*one, .range = {.offset = 16_B, .size = 8_B}},
        BoundCommitRange{.allocation = &*two, .range = {.offset = 0_B, .size = 8_B}},
        BoundCommitRange{.allocation = &*one, .range = {.offset = 32_B, .size = 16_B}}};
    world.step(backing.mapped_bytes(ranges));
    const auto done = world.step(backing.commit_all(ranges));
    EXPECT_TRUE(done || done.error().committed_ranges <= 1);
    world.step(backing.commit(*two, {.offset = 8_B, .size = 8_B}));
    world.step(backing.committed_bytes(*one));
    world.step(backing.decommit(*one, {.offset = 0_B, .size = 64_B}));
  }
  for (auto* const each : {&one, &two}) {
    if (*each) {
      EXPECT_EQ((*each)->outstanding_views(), 0U);
      world.step((*each)->release_now());
    }
  }
}

void share_prefixes(World& world) {
  const MemoryBinding binding = world.bind();
  const auto sharing = must(binding.shared_mapping()).value();
  const auto backing = must(binding.virtual_backing()).value();
  auto prefix = world.step(sharing.create_shared_prefix(16_B));
  auto other = world.step(sharing.create_shared_prefix(8_B));
  auto one = world.step(backing.allocate_committed(64_B, 8_B, {}));
  auto two = world.step(backing.allocate_committed(64_B, 8_B, {}));
  if (prefix && one && two) {
    world.step(prefix->seal());
    world.step(sharing.incremental_owned_bytes(*prefix));
    world.step(sharing.commit_shared_prefix(*prefix, *one, 0_B));
    world.step(sharing.commit_shared_prefix(*prefix, *two, 16_B));
    world.step(sharing.break_shared(*one, {.offset = 0_B, .size = 8_B}));
  }
  if (prefix && other) {
    *other = *std::move(prefix);  // one prefix ends in the middle
  }
  for (auto* const each : {&one, &two}) {
    if (*each) {
      world.step((*each)->release_now());
    }
  }
}

void use_views(World& world) {
  const MemoryBinding binding = world.bind();
  auto owner = world.step(binding.allocate(64_B, 8_B));
  auto other = world.step(binding.allocate(64_B, 8_B));
  if (!owner || !other) {
    return;
  }
  {
    auto view = world.step(owner->view(8_B, 16_B));
    const auto empty = world.step(other->view(0_B, 0_B));
    if (!view || !empty) {
      return;
    }
    const OwnedView copy =
        *view;  // NOLINT(performance-unnecessary-copy-initialization): each copy counts
    const auto use = [&](ValidatedMemoryView /*seen*/) {
      static_cast<void>(world.injector.call(Site::view));
      EXPECT_FALSE(owner->release_now().has_value());
      static_cast<void>(world.injector.call(Site::view));
    };
    world.step(binding.with_view(*view, use));
    world.step(binding.with_view(copy, [&](ValidatedMemoryView seen) {
      return binding.with_view(*view, use).has_value() ? seen.bytes : 0_B;
    }));
    EXPECT_EQ(owner->outstanding_views(), 2U);
    EXPECT_FALSE(other->release_now().has_value());
  }
  EXPECT_EQ(owner->outstanding_views(), 0U);
  world.step(owner->release_now());
  world.step(other->release_now());
}

void release_through_fences(World& world) {
  const MemoryBinding binding = world.bind();
  const auto fences = std::make_shared<InjectedFences>(world.injector);
  FencedReleaseQueueOptions options;
  options.fences = fences;
  options.pins = std::make_shared<InjectedPins>(
      world.injector, must(world.registry.pin_source(world.main().context)));
  options.on_idle = [&world] { return world.injector.call(Site::idle) == test::Conduct::ordinary; };
  FencedReleaseQueue queue(std::move(options));
  for (int each = 0; each < 3; ++each) {
    if (auto owner = world.step(binding.allocate(24_B, 8_B))) {
      world.step(owner->release_deferred(queue));
    }
  }
  queue.poll();
  fences->complete();
  queue.poll();
  world.step(queue.wait_idle(std::chrono::nanoseconds{0}));
  if (!world.strict) {
    queue.mark_device_lost();  // whatever is left is settled without a call
  }
  EXPECT_EQ(queue.pending(), 0U);
}

void release_through_a_queue(World& world) {
  const MemoryBinding binding = world.bind();
  InjectedQueue queue(world.injector);
  for (int each = 0; each < 4; ++each) {
    if (auto owner = world.step(binding.allocate(24_B, 8_B))) {
      const AllocationIdentity identity = owner->identity();
      const auto given = world.step(owner->release_deferred(queue));
      EXPECT_EQ(owner->empty(), given.has_value());
      EXPECT_TRUE(!given || given->identity() == identity);
    }
    if (each == 1) {
      queue.drain();
    }
  }
  queue.drain();
}

void reclaim_what_was_lost(World& world) {
  const MemoryBinding binding = world.bind();
  FencedReleaseQueue closed;
  closed.close();
  std::vector<AllocationIdentity> retained;
  for (int each = 0; each < 3; ++each) {
    auto owner = world.step(binding.allocate(Bytes{8} * static_cast<std::uint64_t>(each), 8_B));
    if (!owner) {
      continue;
    }
    retained.push_back(owner->identity());
    if (each == 1) {
      world.step(owner->prepare_release());  // and abandoned
    } else if (each == 2) {
      world.step(owner->release_deferred(closed));
    }
  }
  for (const AllocationIdentity& each : retained) {
    {
      const auto abandoned = world.step(world.registry.reclaim(each));
    }
    if (auto again = world.step(world.registry.reclaim(each))) {
      again->execute();
    }
  }
}

void reconcile_what_is_gone(World& world) {
  const MemoryBinding binding = world.bind();
  for (int round = 0; round < 2; ++round) {
    auto owner = world.step(binding.allocate(16_B, 8_B));
    if (!owner) {
      continue;
    }
    const AllocationIdentity identity = owner->identity();
    const AllocationSpan span = owner->span();
    const auto view = world.step(owner->view(0_B, 16_B));
    {
      const OwningAllocation dropped = *std::move(owner);
    }
    // Only what is in quarantine can be proved gone; after a loss it is live until the context ends.
    if (world.registry.reconcile(identity, attest_memory_gone)) {
      EXPECT_TRUE(world.fake(world.main().handle.identity).release(span).is_complete());
    }
    auto next = world.step(binding.allocate(16_B, 8_B));
    if (view) {
      EXPECT_FALSE(binding.with_view(*view, [](ValidatedMemoryView) {}).has_value());
    }
    if (next) {
      EXPECT_NE(next->identity(), identity);
      world.step(next->release_now());
    }
  }
}

void retire_and_remove(World& world) {
  const BindingRegistry& registry = world.registry;
  const auto second = world.step(world.register_mechanism());
  if (!second) {
    return;
  }
  {
    const auto binding = world.step(registry.bind(second->handle));
    if (binding) {
      auto owner = world.step(binding->allocate(32_B, 8_B));
      auto other = world.step(binding->allocate(32_B, 8_B));
      world.step(registry.select(second->handle));
      world.step(registry.retire(second->handle));
      EXPECT_FALSE(registry.remove(second->handle).has_value() && owner);
      if (owner) {
        world.step(owner->release_now());
      }
      if (other) {
        world.step(other->release_now());
      }
    }
  }
  world.step(registry.retire(second->handle));
  world.step(registry.remove(second->handle));
  world.step(registry.remove_authority(second->authority));
  world.step(registry.remove_provider_context(second->context));
}

void lose_and_terminate(World& world) {
  const BindingRegistry& registry = world.registry;
  const auto second = world.step(world.register_mechanism());
  if (!second) {
    return;
  }
  bool ended = false;
  {
    const auto binding = must(registry.bind(second->handle));
    const auto sharing = must(binding.shared_mapping()).value();
    const auto prefix = world.step(sharing.create_shared_prefix(8_B));
    auto owner = world.step(binding.allocate(32_B, 8_B));
    auto other = world.step(binding.allocate(32_B, 8_B));
    auto third = world.step(binding.allocate(32_B, 8_B));
    std::optional<PreparedAllocationRelease> prepared;
    if (owner) {
      if (auto detached = world.step(owner->prepare_release())) {
        prepared = *std::move(detached);
      }
    }
    registry.invalidate_device(device, "lost");
    ended = registry.confirm_context_terminated(second->context).has_value();
    EXPECT_EQ(ended, !prepared.has_value());
    if (prepared) {
      EXPECT_EQ(prepared->execute().state(), AllocationReleaseState::device_lost);
    }
    if (other) {
      EXPECT_FALSE(other->release_now().has_value());
    }
  }
  EXPECT_EQ(registry.confirm_context_terminated(second->context).has_value(), !ended);
  EXPECT_TRUE(must(registry.quarantined(second->handle)).empty());
}

struct Scenario {
  std::string_view name;
  void (*run)(World&);
};

constexpr std::array scenarios{
    Scenario{"allocate and release", allocate_and_release},
    Scenario{"adopt", adopt},
    Scenario{"commit and decommit", commit_and_decommit},
    Scenario{"share prefixes", share_prefixes},
    Scenario{"use views", use_views},
    Scenario{"release through fences", release_through_fences},
    Scenario{"release through a queue", release_through_a_queue},
    Scenario{"reclaim", reclaim_what_was_lost},
    Scenario{"reconcile", reconcile_what_is_gone},
    Scenario{"retire and remove", retire_and_remove},
    Scenario{"lose and terminate", lose_and_terminate},
};

/// Scenarios that follow each other in one world.
using Course = std::vector<Scenario>;

/// The next scenario finds what a fault left behind, and a mechanism that is not lost.
void run(World& world, const Course& course) {
  for (const Scenario& scenario : course) {
    if (!world.registry.bind(world.main().handle)) {
      world.set_up();
    }
    scenario.run(world);
    world.check_books();
  }
}

/// One run without a fault, after which nothing is left; the calls that it makes.
std::vector<Site> run_without_fault(World& world, const Course& course) {
  world.strict = true;
  world.injector.disarm();
  run(world, course);
  world.strict = false;
  std::vector<Site> calls = world.injector.sites();
  for (const MechanismSnapshot& now : world.registry.snapshots()) {
    EXPECT_TRUE(now.quiescent());
  }
  world.clean();
  return calls;
}

/// One run with a fault, one without.
void run_with_fault(const Course& course,
                    const std::vector<Site>& calls,
                    std::uint64_t at,
                    Fault fault) {
  World world;
  world.injector.arm(at, fault);
  run(world, course);
  EXPECT_TRUE(world.injector.fired());
  world.injector.disarm();
  world.clean();

  world.set_up();
  EXPECT_EQ(run_without_fault(world, course), calls);
}

/// Every fault at every call of the course; how many these were.
std::uint64_t run_with_all_faults(const Course& course) {
  World untouched;
  const std::vector<Site> calls = run_without_fault(untouched, course);
  std::uint64_t points = 0;
  for (std::uint64_t at = 1; at <= calls.size(); ++at) {
    for (const Fault fault : all_faults) {
      if (test::possible(calls.at(at - 1), fault)) {
        run_with_fault(course, calls, at, fault);
        ++points;
      }
      if (testing::Test::HasFailure()) {
        ADD_FAILURE() << course.front().name << " and " << course.back().name << ", call " << at
                      << ", fault " << static_cast<int>(fault);
        return points;
      }
    }
  }
  return points;
}

//
TEST(BindingFaults, LeaveTheBooksInAgreementWhereverForeignCodeFails) {
  std::uint64_t points = 0;

  for (std::size_t first = 0; first < scenarios.size() && !HasFailure(); ++first) {
    const Scenario& scenario = scenarios.at(first);
    std::uint64_t here = run_with_all_faults({scenario});
    for (std::size_t distance = 1; distance <= 2 && !HasFailure(); ++distance) {
      here += run_with_all_faults({scenario, scenarios.at((first + distance) % scenarios.size())});
    }
    std::cout << scenario.name << ": " << here << " points\n";
    points += here;
  }

  std::cout << points << " injected points\n";
  EXPECT_GE(points, 1500U);
}

}  // namespace
}  // namespace memstrata
