// SPDX-License-Identifier: Apache-2.0
#include "bench_binding.hpp"

#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"
#include "memstrata/governance/host_timeline.hpp"
#include "support/atomic_pair.hpp"
#include "support/paired_rounds.hpp"
#include "support/run_together.hpp"
#include "support/targets.hpp"

namespace memstrata::bench {
namespace {

constexpr std::size_t many = 100'000;
constexpr std::size_t deferred_at_once = 64;
constexpr double nanoseconds_per_microsecond = 1000;

/// What is measured is bookkeeping only.
class FixedAddress final : public DeviceAllocator {
 public:
  [[nodiscard]] Result<DeviceAddress> allocate(Bytes /*bytes*/, Bytes /*alignment*/) override {
    return DeviceAddress{0x1000};
  }

  [[nodiscard]] MechanismRelease release(const AllocationSpan& /*allocation*/) override {
    return MechanismRelease::complete(Bytes{});
  }

  [[nodiscard]] DeviceKey device() const noexcept override { return DeviceKey::host(); }
};

template <class T, class E>
T must(Result<T, E> result) {
  MEMSTRATA_VERIFY(result.has_value(), "a call of the benchmark was refused");
  return *std::move(result);
}

/// A registry with mechanisms of its own; each has a binding.
class Bindings {
 public:
  Bindings() : registry_(must(BindingRegistry::create())) {}

  [[nodiscard]] MemoryBinding bind() const {
    const auto context = must(registry_.register_provider_context(DeviceKey::host(), nullptr));
    const auto authority = must(registry_.register_authority(DeviceKey::host(), nullptr));
    return must(registry_.bind(
        must(registry_.register_allocator(context, authority, std::make_shared<FixedAddress>()))));
  }

 private:
  BindingRegistry registry_;
};

OwningAllocation allocate(const MemoryBinding& binding) {
  return must(binding.allocate(4_KiB, 64_B));
}

std::vector<OwningAllocation> allocate_many(const MemoryBinding& binding, std::size_t count) {
  std::vector<OwningAllocation> owners;
  owners.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    owners.push_back(allocate(binding));
  }
  return owners;
}

void release_many(std::vector<OwningAllocation>& owners) {
  for (OwningAllocation& owner : owners) {
    MEMSTRATA_VERIFY(owner.release_now().has_value(), "a release was refused");
  }
  owners.clear();
}

double allocate_and_release(const MemoryBinding& binding) {
  return warmed([&binding] {
    OwningAllocation owner = allocate(binding);
    MEMSTRATA_VERIFY(owner.release_now().has_value(), "a release was refused");
  });
}

double use_view(const MemoryBinding& binding, const OwnedView& view) {
  std::uint64_t sum = 0;
  const double cost = warmed([&] {
    sum += must(binding.with_view(
        view, [](ValidatedMemoryView part) noexcept { return part.address.value(); }));
  });
  MEMSTRATA_VERIFY(sum != 0, "a view gave no address");
  return cost;
}

double make_view(const OwningAllocation& owner) {
  return warmed([&owner] { const OwnedView view = must(owner.view(64_B, 64_B)); });
}

/// The owners are made before the clock starts.
double defer_and_drain(const MemoryBinding& binding, FencedReleaseQueue& queue) {
  constexpr std::int64_t runs = 300;
  double nanoseconds = 0;
  for (std::int64_t run = 0; run < runs; ++run) {
    std::vector<OwningAllocation> owners = allocate_many(binding, deferred_at_once);
    nanoseconds += nanoseconds_per_run(1, [&] {
      for (OwningAllocation& owner : owners) {
        MEMSTRATA_VERIFY(owner.release_deferred(queue)->is_queued(), "a queue refused");
      }
      MEMSTRATA_VERIFY(queue.poll() == deferred_at_once, "a queue kept a release");
    });
  }
  return nanoseconds / static_cast<double>(runs * static_cast<std::int64_t>(deferred_at_once));
}

double take_snapshot(const MemoryBinding& binding) {
  std::uint64_t sum = 0;
  const double cost = warmed([&] { sum += binding.mechanism_snapshot().active_operations; });
  MEMSTRATA_VERIFY(sum == 0, "a call was in flight");
  return cost;
}

/// The first list of a round takes the memory that the others use again.
double list_quarantined(const MemoryBinding& binding) {
  MEMSTRATA_VERIFY(binding.quarantined().size() == many, "the list is short");
  return nanoseconds_per_run(4,
                             [&binding] {
                               MEMSTRATA_VERIFY(binding.quarantined().size() == many,
                                                "the list is short");
                             }) /
         nanoseconds_per_microsecond;
}

/// Heap bytes of one live allocation, its handle included.
double bytes_of_one(const Bindings& bindings) {
  const MemoryBinding binding = bindings.bind();
  const auto used = [] {
    const struct mallinfo2 now = mallinfo2();
    return static_cast<double>(now.uordblks + now.hblkhd);
  };
  const double before = used();
  std::vector<OwningAllocation> owners = allocate_many(binding, many);
  const double after = used();
  release_many(owners);
  return (after - before) / static_cast<double>(many);
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Side in_threads(const char* name, std::vector<std::function<double()>> bodies) {
  return {.name = name, .measure = [bodies = std::move(bodies)] {
            return Sample{.cost = mean(run_together(bodies))};
          }};
}

Side single(const char* name, std::function<double()> body) {
  return {.name = name, .measure = [body = std::move(body)] { return Sample{.cost = body()}; }};
}

enum SideIndex : std::size_t {
  pair,
  empty,
  full,
  two_mechanisms,
  one_mechanism,
  view_used,
  view_made,
  deferred,
  snapshot_empty,
  snapshot_full,
  half_millisecond,
  quarantine_list,
  bytes_allowed,
  bytes_used
};

std::vector<BenchResult> results_of(const Rounds& rounds) {
  std::vector<BenchResult> results;
  const auto in_pairs = [&](SideIndex side, const char* name, double target) {
    results.push_back(compare(rounds, pair, side, {.name = name, .target = at_most(target)}));
  };
  in_pairs(empty, "allocate + release, nothing live", 8);
  in_pairs(full, "allocate + release, 100,000 live", 9);
  if (usable_processors() >= 2) {
    results.push_back(compare(
        rounds,
        empty,
        two_mechanisms,
        {.name = "allocate + release, two threads on two mechanisms", .target = at_most(1.5)}));
    results.push_back(compare(rounds,
                              empty,
                              one_mechanism,
                              {.name = "allocate + release, two threads on one mechanism",
                               .note = "control; near 1 the two threads did not run at once"}));
  }
  in_pairs(view_used, "validate and use a view", 3);
  results.push_back(compare(rounds, pair, view_made, {.name = "make and drop a view"}));
  in_pairs(deferred, "deferred enqueue + drain, 64 at a time, one fence each", 9);
  in_pairs(snapshot_empty, "snapshot, nothing live", 5);
  in_pairs(snapshot_full, "snapshot, 100,000 live and 100,000 in quarantine", 5);
  results.push_back(
      compare(rounds,
              half_millisecond,
              quarantine_list,
              {.name = "list of 100,000 in quarantine", .unit = "us", .target = at_most(1)}));
  results.push_back(compare(rounds,
                            bytes_allowed,
                            bytes_used,
                            {.name = "memory of one live allocation, handle included",
                             .unit = "bytes",
                             .target = at_most(1)}));
  return results;
}

}  // namespace

std::vector<BenchResult> bench_binding(const RoundOptions& options) {
  std::vector<LonelyWord> words(1);
  const Bindings bindings;
  const MemoryBinding one = bindings.bind();
  const MemoryBinding two = bindings.bind();
  const MemoryBinding crowded = bindings.bind();
  std::vector<OwningAllocation> crowd = allocate_many(crowded, many);
  const MemoryBinding neglected = bindings.bind();
  std::vector<OwningAllocation> alive = allocate_many(neglected, many);
  allocate_many(neglected, many).clear();  // into quarantine
  OwningAllocation seen = allocate(one);
  const OwnedView view = must(seen.view(64_B, 64_B));
  const auto timeline = std::make_shared<HostTimeline>();
  FencedReleaseQueueOptions queue_options;
  queue_options.fences = timeline;
  FencedReleaseQueue queue(std::move(queue_options));

  const auto work = [](const MemoryBinding& binding) {
    return [&binding] { return allocate_and_release(binding); };
  };
  const Rounds rounds = run_rounds(
      std::vector<Side>{
          single("A", [&] { return atomic_pair(words[0]); }),
          in_threads("allocate + release", {work(one)}),
          in_threads("with 100,000 live", {work(crowded)}),
          in_threads("two threads, two mechanisms", {work(one), work(two)}),
          in_threads("two threads, one mechanism", {work(one), work(one)}),
          single("with_view", [&] { return use_view(one, view); }),
          single("view", [&] { return make_view(seen); }),
          single("enqueue + drain", [&] { return defer_and_drain(two, queue); }),
          single("snapshot", [&] { return take_snapshot(two); }),
          single("snapshot of many", [&] { return take_snapshot(neglected); }),
          bound(500),
          single("list", [&] { return list_quarantined(neglected); }),
          bound(128),
          single("record + handle", [&] { return bytes_of_one(bindings); }),
      },
      options);
  release_many(crowd);
  release_many(alive);
  return results_of(rounds);
}

}  // namespace memstrata::bench
