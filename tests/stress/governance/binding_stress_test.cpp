// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memstrata/contract/release.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"
#include "support/binding_rig.hpp"
#include "support/fake_allocator.hpp"
#include "support/injected.hpp"
#include "support/injection.hpp"
#include "support/recorder.hpp"
#include "support/release_queues.hpp"
#include "support/threads.hpp"

namespace memstrata {
namespace {

using test::BindingRig;
using test::DropLog;
using test::expect_quiescent;
using test::HoldingQueue;
using test::in_threads;
using test::must;
using test::Probe;
using test::Recorder;
using test::rounds;
using test::thread_count;

/// A context, an authority and a mechanism over a recorder, all for one device.
struct Registered {
  RegisteredProviderContext context;
  RegisteredAuthority authority;
  RegisteredMechanism mechanism;
};

Registered register_recorder(const BindingRegistry& registry, DeviceKey device) {
  const auto context = must(registry.register_provider_context(device, nullptr));
  const auto authority = must(registry.register_authority(device, nullptr));
  const auto mechanism =
      must(registry.register_allocator(context, authority, std::make_shared<Recorder>(device)));
  return {.context = context, .authority = authority, .mechanism = mechanism};
}

// B-050
TEST(BindingStress, LetsEveryCallbackReadTheRegistry) {
  test::Injector injector;
  const auto registry = must(BindingRegistry::create());
  const auto context = must(registry.register_provider_context(DeviceKey::host(), nullptr));
  const auto authority = must(registry.register_authority(DeviceKey::host(), nullptr));
  const auto mechanism =
      must(registry.register_allocator(context,
                                       authority,
                                       std::make_shared<test::InjectedAllocator>(
                                           injector, std::make_shared<test::FakeAllocator>())));
  std::uint64_t active = 0;
  injector.at_every_call = [&] { active += must(registry.snapshot(mechanism)).active_operations; };
  {
    const MemoryBinding binding = must(registry.bind(mechanism));
    const auto backing = must(binding.virtual_backing()).value();
    OwningAllocation owner = must(backing.allocate_committed(64_B, 8_B, {}));
    must(backing.commit(owner, {.offset = 0_B, .size = 8_B}));
    EXPECT_TRUE(must(owner.release_now()).is_released());
  }

  EXPECT_EQ(active, 3U);  // each callback saw the operation that it was part of
  EXPECT_EQ(std::ranges::count(injector.sites(), test::Site::capability), 1);
  injector.at_every_call = nullptr;
}

// B-051
TEST(BindingStress, SucceedsInEveryStepOfEightThreadsThatRegisterAndRemove) {
  const auto registry = must(BindingRegistry::create());

  in_threads(thread_count, [&](int number) {
    for (int round = 0; round < rounds(40 * 8); ++round) {
      if (number != 0) {
        const Registered made = register_recorder(registry, DeviceKey::host());
        must(registry.select(made.mechanism));
        const MemoryBinding binding = must(registry.bind(made.mechanism));
        OwningAllocation owner = must(binding.allocate(64_B, 8_B));
        EXPECT_EQ(must(registry.snapshot(made.mechanism)).live_allocations, 1U);
        must(registry.retire(made.mechanism));
        EXPECT_TRUE(must(owner.release_now()).is_released());
        must(registry.remove(made.mechanism));
      } else {
        const DeviceKey fresh = DeviceKey::device(static_cast<std::uint32_t>(round));
        const Registered made = register_recorder(registry, fresh);
        const MemoryBinding binding = must(registry.bind(fresh));
        const OwningAllocation owner = must(binding.allocate(64_B, 8_B));
        registry.invalidate_device(fresh, "lost");
        must(registry.confirm_context_terminated(made.context));
        must(registry.remove(made.mechanism));
      }
    }
  });

  EXPECT_TRUE(registry.snapshots().empty());
}

// B-084
TEST(BindingStress, HoldsNoLockWhileAQueueOrAnAllocatorRuns) {
  const BindingRig rig;
  std::atomic<int> probes{0};
  const auto look = [&] {
    const std::jthread other([&] {
      EXPECT_EQ(rig.registry.snapshots().size(), 1U);
      EXPECT_NE(must(rig.registry.snapshot(rig.mechanism)).active_operations, 0U);
      ++probes;
    });
  };
  HoldingQueue queue;
  queue.on_enqueue = look;
  OwningAllocation owner = rig.allocate();
  rig.allocator->on_call([&](const char*) { look(); });

  EXPECT_TRUE(must(owner.release_deferred(queue)).is_queued());
  const std::vector<ReleaseOutcome> outcomes = queue.drain();

  EXPECT_EQ(probes.load(), 2);
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_TRUE(outcomes.front().is_released());
  expect_quiescent(rig.snapshot());
}

// B-085
TEST(BindingStress, ReleasesEachOfManyOwnersOnce) {
  constexpr int each = 32;
  const BindingRig rig;
  std::vector<std::vector<OwningAllocation>> owners(thread_count);
  for (auto& mine : owners) {
    for (std::uint64_t i = 0; i < each; ++i) {
      mine.push_back(rig.allocate(64_B * (i + 1)));
    }
  }

  in_threads(thread_count, [&](int number) {
    for (OwningAllocation& owner : owners.at(static_cast<std::size_t>(number))) {
      EXPECT_TRUE(must(owner.release_now()).is_released());
    }
  });

  EXPECT_EQ(rig.allocator->releases(), 256U);
  EXPECT_EQ(rig.allocator->live(), 0U);
  expect_quiescent(rig.snapshot());
}

// B-086
TEST(BindingStress, NeverHoldsMoreReleasesThanTheQueueIsLarge) {
  const BindingRig rig;
  HoldingQueue queue(8);
  std::size_t complete = 0;
  const auto drain = [&] {
    for (const ReleaseOutcome& outcome : queue.drain()) {
      complete += outcome.is_released() ? 1U : 0U;
    }
  };

  for (int i = 0; i < 256; ++i) {
    OwningAllocation owner = rig.allocate();
    if (queue.pending() == 8) {
      drain();
    }
    EXPECT_TRUE(must(owner.release_deferred(queue)).is_queued());
    EXPECT_LE(queue.pending(), 8U);
    EXPECT_EQ(rig.snapshot().queued_releases, queue.pending());
  }
  drain();

  EXPECT_EQ(complete, 256U);
  EXPECT_EQ(rig.allocator->releases(), 256U);
  expect_quiescent(rig.snapshot());
}

// B-086
TEST(BindingStress, KeepsTheBoundOfAQueueThatEightThreadsFillAndDrain) {
  const BindingRig rig;
  FencedReleaseQueueOptions options;
  options.capacity = 8;
  FencedReleaseQueue queue(std::move(options));
  const int each = rounds(2000);

  in_threads(thread_count, [&](int /*number*/) {
    for (int round = 0; round < each; ++round) {
      OwningAllocation owner = rig.allocate(64_B);
      PreparedAllocationRelease request = must(owner.prepare_release());
      while (const auto refused = queue.enqueue(std::move(request))) {
        EXPECT_EQ(*refused, DeferredEnqueueRejection::full);
        ASSERT_FALSE(request.empty());
        EXPECT_LE(queue.pending(), 8U);
        if (queue.poll() == 0) {
          std::this_thread::yield();  // another thread drains
        }
      }
      EXPECT_LE(rig.snapshot().queued_releases, 8U + thread_count);
    }
  });
  while (queue.pending() != 0) {
    queue.poll();
  }

  EXPECT_EQ(queue.counters().released, static_cast<std::uint64_t>(thread_count * each));
  EXPECT_EQ(rig.allocator->releases(), static_cast<std::uint64_t>(thread_count * each));
  expect_quiescent(rig.snapshot());
}

//
TEST(BindingStress, IssuesNoSerialTwiceToEightThreads) {
  const auto registry = must(BindingRegistry::create());
  std::mutex mutex;
  std::set<std::uint64_t> all;
  std::atomic<std::uint64_t> issued{0};

  in_threads(thread_count, [&](int number) {
    std::vector<std::uint64_t> mine;
    const DeviceKey device = DeviceKey::device(static_cast<std::uint32_t>(number % 2));
    for (int round = 0; round < rounds(100); ++round) {
      const Registered made = register_recorder(registry, device);
      mine.insert(mine.end(),
                  {made.context.identity.serial(),
                   made.authority.identity.serial(),
                   made.mechanism.identity.serial()});
      for (int times = 0; times < 2; ++times) {
        const MemoryBinding binding = must(registry.bind(made.mechanism));
        const BindingIdentity bound = binding.identity();
        mine.insert(mine.end(), {bound.id.serial(), bound.generation.serial()});
        for (int count = 0; count < 3; ++count) {
          OwningAllocation owner = must(binding.allocate(8_B, 8_B));
          mine.push_back(owner.identity().generation.serial());
          static_cast<void>(must(owner.release_now()));
        }
      }
    }
    issued += mine.size();
    const std::scoped_lock lock(mutex);
    all.insert(mine.begin(), mine.end());
  });

  EXPECT_EQ(all.size(), issued.load());
  EXPECT_FALSE(all.contains(0));
}

//
TEST(BindingStress, GivesARecordInQuarantineToExactlyOneThread) {
  const BindingRig rig;
  for (int round = 0; round < rounds(400); ++round) {
    std::optional<OwningAllocation> owner = rig.allocate();
    const AllocationIdentity identity = owner->identity();
    owner.reset();
    std::atomic<int> won{0};
    std::atomic<int> stale{0};

    in_threads(thread_count, [&](int number) {
      if (number == 0 && round % 4 == 0) {
        const auto gone = rig.registry.reconcile(identity, attest_memory_gone);
        gone ? ++won : ++stale;
        return;
      }
      auto request = rig.registry.reclaim(identity);
      if (request) {
        ++won;
        EXPECT_TRUE(request->execute().is_released());
      } else {
        EXPECT_NE(request.error().as<StaleAllocation>(), nullptr);
        ++stale;
      }
    });

    EXPECT_EQ(won.load(), 1);
    EXPECT_EQ(stale.load(), thread_count - 1);
    expect_quiescent(rig.snapshot());
  }
}

/// Lets threads drop the last references to a mechanism at once; the order in which everything ended.
std::vector<std::string> drop_everything_at_once(int round) {
  auto rig = std::make_unique<BindingRig>();
  const std::shared_ptr<DropLog> drops = rig->drops;
  std::array<std::function<void()>, 6> last;
  auto owner = std::make_shared<std::optional<OwningAllocation>>(rig->allocate());
  auto view = std::make_shared<std::optional<OwnedView>>(must((*owner)->view(0_B, 8_B)));
  auto copy = std::make_shared<std::optional<OwnedView>>(**view);
  auto released = std::make_shared<std::optional<OwningAllocation>>(rig->allocate());
  auto request = std::make_shared<std::optional<PreparedAllocationRelease>>(
      must((*released)->prepare_release()));
  auto binding = std::make_shared<std::optional<MemoryBinding>>(rig->binding);
  last.at(0) = [owner] { owner->reset(); };
  last.at(1) = [view] { view->reset(); };
  last.at(2) = [copy] { copy->reset(); };
  last.at(3) = [request, round] {
    if (round % 2 == 0) {
      EXPECT_TRUE((*request)->execute().is_released());
    }
    request->reset();
  };
  last.at(4) = [binding] { binding->reset(); };
  last.at(5) = [&rig] { rig.reset(); };

  in_threads(static_cast<int>(last.size()),
             [&](int number) { last.at(static_cast<std::size_t>(number))(); });

  return drops->names();
}

//
TEST(BindingStress, EndsAllocatorAuthorityAndContextInOrderOnWhicheverThreadIsLast) {
  for (int round = 0; round < rounds(1000); ++round) {
    EXPECT_EQ(drop_everything_at_once(round),
              (std::vector<std::string>{"allocator", "authority", "context"}));
  }
}

//
TEST(BindingStress, EndsResourcesThatReadTheRegistryWithoutALock) {
  const auto registry = must(BindingRegistry::create());
  const auto log = std::make_shared<DropLog>();
  const WeakBindingRegistry weak = registry.weak();
  const auto resource = [&] {
    auto probe = std::make_shared<Probe>(log, "resource");
    probe->at_end = [weak] {
      if (const auto alive = weak.lock()) {
        EXPECT_LE(alive->snapshots().size(), static_cast<std::size_t>(thread_count));
      }
    };
    return probe;
  };
  const int each = rounds(200);

  in_threads(thread_count, [&](int /*number*/) {
    for (int round = 0; round < each; ++round) {
      const DeviceKey host = DeviceKey::host();
      const auto context = must(registry.register_provider_context(host, resource()));
      const auto authority = must(registry.register_authority(host, resource()));
      const auto mechanism =
          must(registry.register_allocator(context, authority, std::make_shared<Recorder>(host)));
      must(registry.retire(mechanism));
      must(registry.remove(mechanism));
      must(registry.remove_authority(authority));
      must(registry.remove_provider_context(context));
    }
  });

  EXPECT_EQ(log->names().size(), static_cast<std::size_t>(2 * thread_count * each));
}

//
TEST(BindingStress, NeverRegistersAMechanismOnAContextThatIsRemoved) {
  const auto registry = must(BindingRegistry::create());
  const DeviceKey host = DeviceKey::host();
  for (int round = 0; round < rounds(800); ++round) {
    const auto context = must(registry.register_provider_context(host, nullptr));
    const auto authority = must(registry.register_authority(host, nullptr));
    std::atomic<int> registered{0};
    std::atomic<int> removed{0};

    in_threads(4, [&](int number) {
      if (number < 2) {
        const auto made =
            registry.register_allocator(context, authority, std::make_shared<Recorder>(host));
        EXPECT_TRUE(made || made.error().as<UnregisteredProviderContext>() != nullptr);
        registered += made ? 1 : 0;
      } else {
        const auto gone = registry.remove_provider_context(context);
        EXPECT_TRUE(gone || gone.error().as<ProviderContextInUse>() != nullptr ||
                    gone.error().as<UnregisteredProviderContext>() != nullptr);
        removed += gone ? 1 : 0;
      }
    });

    EXPECT_EQ(registered.load() == 0, removed.load() == 1);
    for (const MechanismSnapshot& now : registry.snapshots()) {
      const RegisteredMechanism mechanism{
          .identity = now.identity, .device = now.device, .coherence = now.coherence};
      EXPECT_TRUE(registry.provider_context({.identity = now.provider_context, .device = host})
                      .has_value());
      must(registry.retire(mechanism));
      must(registry.remove(mechanism));
    }
  }
}

//
TEST(BindingStress, NeverReleasesUnderAViewOperation) {
  for (int round = 0; round < rounds(200); ++round) {
    const BindingRig rig;
    std::atomic<int> inside{0};
    rig.allocator->on_call([&](const char* operation) {
      if (std::string(operation) == "release") {
        EXPECT_EQ(inside.load(), 0);
      }
    });
    OwningAllocation owner = rig.allocate();
    std::vector<std::optional<OwnedView>> views(thread_count, must(owner.view(8_B, 8_B)));

    in_threads(thread_count, [&](int number) {
      auto& view = views.at(static_cast<std::size_t>(number));
      if (number == 0) {
        view.reset();
        while (!owner.empty()) {
          if (const auto refused = owner.release_now(); !refused) {
            EXPECT_NE(refused.error().as<OutstandingViews>(), nullptr);
            std::this_thread::yield();
          }
        }
        return;
      }
      for (int times = 0; times < 20; ++times) {
        const OwnedView copy =
            *view;  // NOLINT(performance-unnecessary-copy-initialization): it counts
        must(rig.binding.with_view(copy, [&](ValidatedMemoryView) {
          ++inside;
          --inside;
        }));
      }
      view.reset();
    });

    EXPECT_EQ(rig.allocator->releases(), 1U);
    expect_quiescent(rig.snapshot());
  }
}

//
TEST(BindingStress, CallsNoAllocatorOnceTheEndOfTheContextIsConfirmed) {
  for (int round = 0; round < rounds(200); ++round) {
    const BindingRig rig;
    std::atomic<bool> confirmed{false};
    rig.allocator->on_call([&](const char*) { EXPECT_FALSE(confirmed.load()); });

    in_threads(thread_count, [&](int number) {
      if (number == 0) {
        rig.registry.invalidate_device(rig.device, "lost");
        for (;;) {
          const auto ended = rig.registry.confirm_context_terminated(rig.context);
          if (ended) {
            break;
          }
          ASSERT_NE(ended.error().as<ContextNotQuiescent>(), nullptr);
          std::this_thread::yield();
        }
        confirmed = true;
        return;
      }
      for (;;) {
        auto owner = rig.binding.allocate(64_B, 8_B);
        if (!owner) {
          EXPECT_TRUE(owner.error().as<DeviceLost>() != nullptr ||
                      owner.error().as<InactiveMechanism>() != nullptr);
          return;
        }
        if (number % 2 == 0) {
          static_cast<void>(owner->release_now());
        } else if (auto request = owner->prepare_release()) {
          std::this_thread::yield();
          static_cast<void>(request->execute());
        }
      }
    });

    const MechanismSnapshot now = rig.snapshot();
    EXPECT_EQ(now.lifecycle, MechanismLifecycle::terminated);
    expect_quiescent(now);
    EXPECT_TRUE(rig.binding.quarantined().empty());
    must(rig.registry.remove(rig.mechanism));
  }
}

//
TEST(BindingStress, ReportsTheLastReasonOfALoss) {
  for (int round = 0; round < rounds(200); ++round) {
    const BindingRig rig;
    in_threads(thread_count, [&](int number) {
      rig.registry.invalidate_device(rig.device,
                                     ErrorText::copy("reason " + std::to_string(number)));
      const auto refused = rig.binding.allocate(8_B, 8_B);
      ASSERT_FALSE(refused.has_value());
      EXPECT_TRUE(refused.error().as<DeviceLost>()->reason.view().starts_with("reason "));
    });
    rig.registry.invalidate_device(rig.device, "the last");

    const auto refused = rig.binding.allocate(8_B, 8_B);

    EXPECT_EQ(refused.error().as<DeviceLost>()->reason.view(), "the last");
  }
}

// B-015, B-022, B-023
TEST(BindingStress, SelectsNothingThatIsNotActive) {
  const auto registry = must(BindingRegistry::create());
  const DeviceKey host = DeviceKey::host();
  const Registered healthy = register_recorder(registry, host);

  for (int round = 0; round < rounds(400); ++round) {
    const Registered doomed = register_recorder(registry, host);
    in_threads(3, [&](int number) {
      if (number == 0) {
        must(registry.retire(doomed.mechanism));
        const auto bound = registry.bind(host);
        EXPECT_TRUE(!bound || bound->identity().mechanism == healthy.mechanism.identity);
      } else {
        const auto selected = registry.select(doomed.mechanism);
        EXPECT_TRUE(selected || selected.error().as<InactiveMechanism>() != nullptr);
      }
    });
    EXPECT_FALSE(registry.select(doomed.mechanism).has_value());
    must(registry.select(healthy.mechanism));
    must(registry.remove(doomed.mechanism));
    EXPECT_EQ(must(registry.bind(host)).identity().mechanism, healthy.mechanism.identity);
  }
}

}  // namespace
}  // namespace memstrata
