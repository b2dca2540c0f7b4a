// SPDX-License-Identifier: Apache-2.0
// Eight threads that do everything with one mechanism, and what readers see meanwhile.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "memstrata/contract/release.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"
#include "support/binding_rig.hpp"
#include "support/recorder.hpp"
#include "support/release_queues.hpp"
#include "support/threads.hpp"

namespace memstrata {
namespace {

using test::BindingRig;
using test::HoldingQueue;
using test::in_threads;
using test::must;
using test::rounds;
using test::thread_count;

/// One allocation that goes from quarantine to a prepared release and back, and is always on the books.
void wander(const BindingRig& rig, HoldingQueue& queue, OwningAllocation owner, int times) {
  const AllocationIdentity identity = owner.identity();
  {
    const OwningAllocation dropped = std::move(owner);
  }
  for (int round = 0; round < times; ++round) {
    PreparedAllocationRelease request = must(rig.registry.reclaim(identity));
    if (round % 3 == 1) {
      request.quarantine(UnexecutedReason::fence_failed());
    } else if (round % 3 == 2) {
      EXPECT_FALSE(queue.enqueue(std::move(request)).has_value());
      EXPECT_TRUE(queue.take().has_value());  // and abandoned
    }
  }
}

TEST(BindingStress, ShowsEveryAllocationExactlyOnceInEverySnapshot) {
  constexpr int writers = 6;
  const BindingRig rig;
  std::vector<OwningAllocation> owners;
  std::vector<std::unique_ptr<HoldingQueue>> queues;
  for (unsigned number = 0; number < writers; ++number) {
    owners.push_back(rig.allocate(Bytes{std::uint64_t{1} << number}, 64_B));
    queues.push_back(std::make_unique<HoldingQueue>());
  }
  std::atomic<int> working{writers};

  in_threads(thread_count, [&](int number) {
    if (number < writers) {
      const auto at = static_cast<std::size_t>(number);
      const std::shared_ptr<void> done(nullptr, [&](void*) { --working; });
      wander(rig, *queues.at(at), std::move(owners.at(at)), rounds(24'000));
      return;
    }
    while (working.load() != 0) {
      const MechanismSnapshot now = rig.snapshot();
      EXPECT_EQ(now.live_allocations + now.queued_releases + now.quarantined_allocations,
                static_cast<std::uint64_t>(writers));
      EXPECT_EQ(now.active_operations, now.queued_releases);
      // Each has a size of its own, a power of two.
      EXPECT_EQ(std::popcount(now.quarantined_bytes.value),
                static_cast<int>(now.quarantined_allocations));
      const QuarantinedAllocations list = rig.binding.quarantined();
      EXPECT_LE(list.size(), static_cast<std::size_t>(writers));
      for (const QuarantinedAllocation each : list) {
        EXPECT_EQ(each.state, AllocationReleaseState::quarantined);
        EXPECT_EQ(each.retained_bytes, each.bytes);
      }
    }
  });

  EXPECT_EQ(rig.snapshot().quarantined_bytes, Bytes{(std::uint64_t{1} << writers) - 1});
  EXPECT_EQ(rig.allocator->releases(), 0U);
}

TEST(BindingStress, ShowsNoQuietInstantWhileSomethingIsOwned) {
  constexpr std::uint64_t writers = 6;
  const BindingRig rig;
  std::vector<OwningAllocation> owners;
  for (std::uint64_t number = 0; number < writers; ++number) {
    owners.push_back(rig.allocate(64_B));
  }
  std::atomic<std::uint64_t> working{writers};

  in_threads(thread_count, [&](int number) {
    if (static_cast<std::uint64_t>(number) < writers) {
      const std::shared_ptr<void> done(nullptr, [&](void*) { --working; });
      OwningAllocation& owner = owners.at(static_cast<std::size_t>(number));
      for (int round = 0; round < rounds(6000); ++round) {
        const AllocationIdentity before = owner.identity();
        OwningAllocation next = rig.allocate(64_B);
        if (round % 5 == 0) {
          rig.allocator->answer_next({.kind = test::ReleaseAnswer::Kind::unchanged});
        }
        if (!must(owner.release_now()).is_released()) {
          must(rig.registry.reconcile(before, attest_memory_gone));
        }
        owner = std::move(next);
      }
      return;
    }
    while (working.load() != 0) {
      const MechanismSnapshot now = rig.snapshot();
      EXPECT_FALSE(now.quiescent());
      EXPECT_GE(now.live_allocations + now.quarantined_allocations + now.active_operations,
                writers);
      EXPECT_LE(now.live_allocations + now.quarantined_allocations + now.queued_releases,
                2 * writers);
    }
  });

  EXPECT_EQ(rig.snapshot().live_allocations, writers);
}

/// One thread of many that do everything with one mechanism, in an order that its seed decides.
class Worker {
 public:
  Worker(const BindingRig& rig, FencedReleaseQueue& queue, std::uint64_t seed)
      : rig_(rig), queue_(queue), random_(seed) {}

  void step() {
    switch (random_() % 10) {
      case 0:
      case 1:
        owners_.push_back(rig_.allocate(Bytes{random_() % 256}, 64_B));
        break;
      case 2:
        view();
        break;
      case 3:
        if (auto view = any(views_)) {
          const auto used = rig_.binding.with_view(*view, [](ValidatedMemoryView) {});
          EXPECT_TRUE(used || used.error().as<StaleAllocation>() != nullptr);
          views_.push_back(*view);
        }
        break;
      case 4:
        if (auto owner = any(owners_)) {
          note(*owner);
          release(*std::move(owner));
        }
        break;
      case 5:
        if (auto owner = any(owners_)) {
          note(*owner);
          static_cast<void>(owner->release_deferred(queue_));
        }
        break;
      case 6:
        if (auto owner = any(owners_)) {
          note(*owner);  // and drop it
        }
        break;
      case 7:
        queue_.poll();
        break;
      case 8:
        recover();
        break;
      default:
        if (random_() % 4 == 0) {
          rig_.allocator->answer_next(
              {.kind = answers.at(random_() % answers.size()), .unmapped = {}, .retained = 1_B});
        } else {
          views_.clear();
        }
        break;
    }
  }

  [[nodiscard]] std::uint64_t reconciled() const noexcept { return reconciled_; }

 private:
  static constexpr std::array answers{test::ReleaseAnswer::Kind::complete,
                                      test::ReleaseAnswer::Kind::partial,
                                      test::ReleaseAnswer::Kind::unchanged,
                                      test::ReleaseAnswer::Kind::throws};

  /// Takes one out at random.
  template <class T>
  std::optional<T> any(std::vector<T>& from) {
    if (from.empty()) {
      return std::nullopt;
    }
    std::swap(from[random_() % from.size()], from.back());
    std::optional<T> taken(std::move(from.back()));
    from.pop_back();
    return taken;
  }

  void view() {
    if (!owners_.empty()) {
      const OwningAllocation& owner = owners_[random_() % owners_.size()];
      views_.push_back(must(owner.view(0_B, owner.size())));
    }
  }

  void note(const OwningAllocation& owner) { seen_.push_back(owner.identity()); }

  void release(OwningAllocation owner) {
    views_.clear();
    if (random_() % 2 == 0) {
      static_cast<void>(must(owner.release_now()));
    } else {
      PreparedAllocationRelease request = must(owner.prepare_release());
      if (random_() % 2 == 0) {
        request.execute();
      }
    }
  }

  /// What went to quarantine comes out of it, in one way or the other.
  void recover() {
    const auto identity = any(seen_);
    if (!identity) {
      return;
    }
    auto request = rig_.registry.reclaim(*identity);
    if (request) {
      request->execute();
    } else if (request.error().as<NotReclaimable>() != nullptr) {
      must(rig_.registry.reconcile(*identity, attest_memory_gone));
      ++reconciled_;
    }
  }

  const BindingRig& rig_;
  FencedReleaseQueue& queue_;
  std::mt19937_64 random_;
  std::vector<OwningAllocation> owners_;
  std::vector<OwnedView> views_;  // end before the owners
  std::vector<AllocationIdentity> seen_;
  std::uint64_t reconciled_ = 0;
};

//
TEST(BindingStress, KeepsTheBooksOfEightThreadsThatDoEverything) {
  const std::uint64_t seeds = test::soaking() ? 20 : 2;
  const int operations = test::soaking() ? 100'000 / thread_count : 1500;

  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const BindingRig rig;
    FencedReleaseQueue queue;
    std::atomic<std::uint64_t> reconciled{0};

    in_threads(thread_count, [&](int number) {
      Worker worker(rig, queue, seed * 100 + static_cast<std::uint64_t>(number));
      for (int step = 0; step < operations; ++step) {
        worker.step();
      }
      reconciled += worker.reconciled();
    });
    while (queue.pending() != 0) {
      queue.poll();
    }

    const MechanismSnapshot now = rig.snapshot();
    EXPECT_EQ(now.live_allocations, 0U) << "seed " << seed;
    EXPECT_EQ(now.active_operations, 0U) << "seed " << seed;
    EXPECT_EQ(now.quarantined_allocations + reconciled.load(), rig.allocator->live())
        << "seed " << seed;
    EXPECT_EQ(rig.binding.quarantined().size(), now.quarantined_allocations);
  }
}

}  // namespace
}  // namespace memstrata
