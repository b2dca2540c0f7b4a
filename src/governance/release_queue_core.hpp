// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "governance/segmented_queue.hpp"
#include "memstrata/contract/context_pin.hpp"
#include "memstrata/contract/fence.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"

namespace memstrata {

/// What the handle, the worker, and whoever is in a call of the queue share: a callback may destroy the handle. Its
/// mutex is held for a few instructions; fences, pins, allocators, the idle callback and destructors run without it.
/// One thread at a time is the runner: it alone takes releases out and settles them. Thread-safe.
class FencedReleaseQueue::Core {
 public:
  explicit Core(FencedReleaseQueueOptions options);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  Core(Core&&) = delete;
  Core& operator=(Core&&) = delete;
  ~Core() = default;

  std::optional<DeferredEnqueueRejection> enqueue(PreparedAllocationRelease&& request);
  std::size_t poll();
  Result<void, BindingError> wait_idle(std::chrono::nanoseconds deadline);
  void close() noexcept;
  void close_after_drain() noexcept;
  void mark_device_lost() noexcept;
  /// The handle is gone.
  void orphan() noexcept;
  /// What the worker does until the queue needs it no more.
  void work();

  [[nodiscard]] std::size_t pending() const noexcept;
  [[nodiscard]] ReleaseQueueCounters counters() const noexcept;

  [[nodiscard]] ReleaseQueueState state() const noexcept {
    return state_.load(std::memory_order_acquire);
  }

  [[nodiscard]] bool has_worker() const noexcept {
    return options_.polling == ReleasePolling::worker;
  }

 private:
  /// Releases that a run takes in hand at a time; the books of their mechanisms are settled once for all of them.
  static constexpr std::size_t batch_size = 64;

  /// A pending release; its parts end in the opposite order: ownership, marks, and then the claim on the context.
  struct Entry {
    std::unique_ptr<ProviderContextPin> pin;
    FenceSet fences;
    PreparedAllocationRelease request;  ///< Empty once it is settled.
  };

  using Entries = detail::SegmentedQueue<Entry, batch_size>;

  /// What the runner has in hand: entries at the front of the queue, which stay there until they are done.
  struct Hand {
    std::array<Entry*, batch_size> entries{};
    std::size_t size = 0;
    std::size_t done = 0;       ///< Settled.
    std::size_t destroyed = 0;  ///< Of these: without marks that a lost device makes us keep.
    ReleaseQueueCounters counts;
  };

  void apply(ReleaseQueueEvent event) noexcept MEMSTRATA_REQUIRES(mutex_);
  [[nodiscard]] std::optional<DeferredEnqueueRejection> admission() const
      MEMSTRATA_REQUIRES(mutex_);
  [[nodiscard]] DeferredEnqueueRejection reject(DeferredEnqueueRejection why)
      MEMSTRATA_EXCLUDES(mutex_);
  [[nodiscard]] bool guard(std::unique_ptr<ProviderContextPin>& pin, FenceSet& fences) noexcept;
  [[nodiscard]] bool make_room() MEMSTRATA_EXCLUDES(mutex_);

  [[nodiscard]] bool begin_run() MEMSTRATA_EXCLUDES(mutex_);
  void take() MEMSTRATA_EXCLUDES(mutex_);
  void run() MEMSTRATA_EXCLUDES(mutex_);
  void execute(Entry& entry, ReleaseBatch& batch);
  void learn_of_loss() MEMSTRATA_EXCLUDES(mutex_);
  std::size_t put_down() MEMSTRATA_EXCLUDES(mutex_);
  std::size_t settle_lost() noexcept MEMSTRATA_EXCLUDES(mutex_);
  void end_run() MEMSTRATA_EXCLUDES(mutex_);

  [[nodiscard]] bool begin_telling() MEMSTRATA_EXCLUDES(mutex_);
  [[nodiscard]] bool ask_on_idle() noexcept;
  void tell_idle() MEMSTRATA_EXCLUDES(mutex_);
  void wake() MEMSTRATA_REQUIRES(mutex_);
  [[nodiscard]] bool work_is_over() const MEMSTRATA_REQUIRES(mutex_);

  [[nodiscard]] bool lost() const noexcept { return state() == ReleaseQueueState::device_lost; }

  [[nodiscard]] bool abandoned() const noexcept {
    return abandoned_.load(std::memory_order_acquire);
  }

  /// Whether no further call of a fence or an allocator may begin.
  [[nodiscard]] bool stopped() const noexcept { return lost() || abandoned(); }

  FencedReleaseQueueOptions options_;
  // Both are written under the mutex and read without it between two releases. Acquire and release: whoever sees the
  // loss sees what was done before it was marked.
  std::atomic<ReleaseQueueState> state_{ReleaseQueueState::open};
  std::atomic<bool> abandoned_{false};  // the handle is gone, and nobody finishes the work
  Hand hand_;                           // the runner's alone
  Entries kept_;  // the runner's alone: what was pending at the loss, for its marks

  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  Entries entries_ MEMSTRATA_GUARDED_BY(mutex_);          // values in hand are the runner's
  std::size_t pending_ MEMSTRATA_GUARDED_BY(mutex_) = 0;  // not settled
  std::size_t waiters_ MEMSTRATA_GUARDED_BY(mutex_) = 0;
  std::optional<std::thread::id> runner_ MEMSTRATA_GUARDED_BY(mutex_);
  bool loss_settled_ MEMSTRATA_GUARDED_BY(mutex_) = false;
  bool arrived_ MEMSTRATA_GUARDED_BY(mutex_) = false;   // work, unseen by the worker perhaps
  bool telling_ MEMSTRATA_GUARDED_BY(mutex_) = false;   // a thread is in the idle callback
  bool idle_told_ MEMSTRATA_GUARDED_BY(mutex_) = true;  // nothing came since
  bool orphaned_ MEMSTRATA_GUARDED_BY(mutex_) = false;
  bool finish_ MEMSTRATA_GUARDED_BY(mutex_) = false;  // the worker outlives the handle
  ReleaseQueueCounters counters_ MEMSTRATA_GUARDED_BY(mutex_);
};

}  // namespace memstrata
