// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/fenced_release_queue.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "governance/release_ring.hpp"
#include "memstrata/contract/context_pin.hpp"
#include "memstrata/contract/fence.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"

namespace memstrata {
namespace {

using Rejection = DeferredEnqueueRejection;
using State = ReleaseQueueState;

/// Releases that a poll takes in hand at a time; the books of their mechanisms are settled once for all of them.
constexpr std::size_t batch_size = 64;
/// Room of an unbounded queue at first; it doubles as needed.
constexpr std::size_t first_room = 64;

struct Entry {
  PreparedAllocationRelease request;
  FenceSet fences;
  std::unique_ptr<ProviderContextPin> pin;
};

using Ring = detail::Ring<Entry>;
using Slots = std::vector<std::optional<Entry>>;

}  // namespace

std::string_view to_string(ReleaseQueueState state) noexcept {
  switch (state) {
    case ReleaseQueueState::open:
      return "open";
    case ReleaseQueueState::draining:
      return "draining";
    case ReleaseQueueState::closed:
      return "closed";
    case ReleaseQueueState::device_lost:
      return "device lost";
  }
  std::unreachable();
}

/// What the handle and the worker share. Its mutex is held for a few instructions; fences, pins, allocators, the
/// idle callback and destructors run without it. One thread at a time runs releases.
class FencedReleaseQueue::Core {
 public:
  explicit Core(FencedReleaseQueueOptions options) : options_(std::move(options)) {
    const std::size_t room = options_.capacity.value_or(first_room);
    Slots slots(std::max<std::size_t>(room, 1));
    ring_.move_into(slots);
    kept_.reserve(2);
  }

  std::optional<Rejection> enqueue(PreparedAllocationRelease&& request);
  std::size_t poll();
  Result<void, BindingError> wait_idle(std::chrono::nanoseconds deadline);
  void close() noexcept;
  void close_after_drain() noexcept;
  void mark_device_lost() noexcept;
  /// The handle is gone; returns whether the worker ends the work.
  void orphan() noexcept;
  void work();

  [[nodiscard]] std::size_t pending() const noexcept {
    const MutexLock lock(mutex_);
    return pending_;
  }

  [[nodiscard]] State state() const noexcept {
    const MutexLock lock(mutex_);
    return state_;
  }

  [[nodiscard]] ReleaseQueueCounters counters() const noexcept {
    const MutexLock lock(mutex_);
    return counters_;
  }

  [[nodiscard]] bool has_worker() const noexcept {
    return options_.polling == ReleasePolling::worker;
  }

 private:
  enum class Ready : std::uint8_t { no, yes, failed, lost };

  /// What a thread has taken in hand to run; its order is that of the queue.
  struct Hand {
    std::array<std::optional<Entry>, batch_size> entries;
    std::size_t size = 0;
    std::size_t done = 0;
    ReleaseQueueCounters counts;
  };

  [[nodiscard]] std::optional<Rejection> admission() const MEMSTRATA_REQUIRES(mutex_);
  [[nodiscard]] std::optional<Rejection> reject(Rejection why) MEMSTRATA_EXCLUDES(mutex_);
  [[nodiscard]] bool make_room() MEMSTRATA_EXCLUDES(mutex_);
  [[nodiscard]] bool has_room() const MEMSTRATA_REQUIRES(mutex_) {
    return ring_.size() + in_hand_ < ring_.capacity();
  }
  [[nodiscard]] bool begin_run() MEMSTRATA_EXCLUDES(mutex_);
  void take(Hand& hand) MEMSTRATA_EXCLUDES(mutex_);
  void run(Hand& hand);
  [[nodiscard]] bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }
  [[nodiscard]] bool abandoned() const noexcept {
    return abandoned_.load(std::memory_order_acquire);
  }
  std::size_t put_back(Hand& hand) MEMSTRATA_EXCLUDES(mutex_);
  void end_run() MEMSTRATA_EXCLUDES(mutex_);
  void settle_lost() noexcept MEMSTRATA_EXCLUDES(mutex_);
  void tell_idle();
  [[nodiscard]] bool work_is_over() const MEMSTRATA_REQUIRES(mutex_) {
    return state_ == State::device_lost || (orphaned_ && (!finish_ || pending_ == 0));
  }

  FencedReleaseQueueOptions options_;
  std::atomic<bool> lost_{false};  // `state_` says the same; read between releases without the mutex
  std::atomic<bool> abandoned_{false};  // the handle is gone, and nobody finishes the work
  Hand hand_;                           // the runner's alone
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  State state_ MEMSTRATA_GUARDED_BY(mutex_) = State::open;
  Ring ring_ MEMSTRATA_GUARDED_BY(mutex_);
  std::size_t in_hand_ MEMSTRATA_GUARDED_BY(mutex_) = 0;
  std::size_t pending_ MEMSTRATA_GUARDED_BY(mutex_) = 0;  // in the ring, in hand, and being settled
  std::size_t waiters_ MEMSTRATA_GUARDED_BY(mutex_) = 0;
  std::optional<std::thread::id> runner_ MEMSTRATA_GUARDED_BY(mutex_);
  bool idle_told_ MEMSTRATA_GUARDED_BY(mutex_) = true;  // nothing came since
  bool orphaned_ MEMSTRATA_GUARDED_BY(mutex_) = false;
  bool finish_ MEMSTRATA_GUARDED_BY(mutex_) = false;  // the worker outlives the handle
  ReleaseQueueCounters counters_ MEMSTRATA_GUARDED_BY(mutex_);
  std::vector<Ring> kept_ MEMSTRATA_GUARDED_BY(mutex_);  // entries of a lost device, for their fences
};

std::optional<Rejection> FencedReleaseQueue::Core::admission() const {
  switch (state_) {
    case State::closed:
      return Rejection::closed;
    case State::device_lost:
      return Rejection::device_lost;
    case State::open:
    case State::draining:
      break;
  }
  return options_.capacity && pending_ >= *options_.capacity ? std::optional(Rejection::full)
                                                             : std::nullopt;
}

std::optional<Rejection> FencedReleaseQueue::Core::reject(Rejection why) {
  const MutexLock lock(mutex_);
  ++counters_.rejected;
  return why;
}

// Marks and pin are taken before the entry has its place: both call foreign code, and an entry that is refused
// after all has nothing to undo.
std::optional<Rejection> FencedReleaseQueue::Core::enqueue(PreparedAllocationRelease&& request) {
  FenceSet fences;
  std::unique_ptr<ProviderContextPin> pin;
  if (options_.fences != nullptr && !options_.fences->record(fences)) {
    return reject(Rejection::refused);
  }
  if (options_.pins != nullptr) {
    auto pinned = options_.pins->pin();
    if (!pinned) {
      return reject(Rejection::refused);
    }
    pin = *std::move(pinned);
  }
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (const auto refused = admission()) {
        ++counters_.rejected;
        return refused;
      }
      if (has_room()) {
        ring_.push_back({.request = std::move(request),
                         .fences = std::move(fences),
                         .pin = std::move(pin)});
        ++pending_;
        ++counters_.accepted;
        idle_told_ = false;
        if (waiters_ != 0) {
          changed_.notify_all();
        }
        return std::nullopt;
      }
    }
    if (!make_room()) {
      return reject(Rejection::refused);
    }
  }
}

// A wider array is made without the mutex and taken if it is still needed.
bool FencedReleaseQueue::Core::make_room() {
  std::size_t room = 0;
  {
    const MutexLock lock(mutex_);
    room = 2 * ring_.capacity();
  }
  Slots slots;
  try {
    slots.resize(room);
  } catch (const std::bad_alloc&) {
    return false;
  }
  const MutexLock lock(mutex_);
  if (ring_.capacity() < room) {
    ring_.move_into(slots);
  }
  return true;
}

bool FencedReleaseQueue::Core::begin_run() {
  const MutexLock lock(mutex_);
  if (runner_ || state_ == State::device_lost || ring_.empty()) {
    return false;
  }
  runner_ = std::this_thread::get_id();
  return true;
}

void FencedReleaseQueue::Core::take(Hand& hand) {
  hand.size = 0;
  hand.done = 0;
  hand.counts = {};
  const MutexLock lock(mutex_);
  while (hand.size < batch_size && !ring_.empty()) {
    hand.entries[hand.size++].emplace(ring_.pop_front());
  }
  in_hand_ = hand.size;
}

// In order, up to the first one whose fences are pending.
void FencedReleaseQueue::Core::run(Hand& hand) {
  ReleaseBatch batch;
  for (; hand.done < hand.size && !lost() && !abandoned(); ++hand.done) {
    Entry& entry = *hand.entries[hand.done];
    const FenceState fences = entry.fences.state();
    if (fences == FenceState::pending) {
      break;
    }
    if (fences == FenceState::lost) {
      lost_.store(true, std::memory_order_release);
      break;
    }
    if (fences == FenceState::failed) {
      static_cast<void>(entry.request.quarantine(
          QuarantineReason(QuarantineReason::Kind::fence_failed)));
      ++hand.counts.quarantined;
      continue;
    }
    const ReleaseOutcome outcome = batch.execute(entry.request);
    ++hand.counts.executed;
    ++(outcome.is_released() ? hand.counts.released : hand.counts.quarantined);
  }
  // The books first, then the pins: no pins means that ownership is settled.
  batch.settle();
  for (std::size_t i = 0; i < hand.done; ++i) {
    hand.entries[i].reset();
  }
}

std::size_t FencedReleaseQueue::Core::put_back(Hand& hand) {
  const MutexLock lock(mutex_);
  for (std::size_t i = hand.size; i > hand.done; --i) {
    ring_.push_front(*std::exchange(hand.entries[i - 1], std::nullopt));
  }
  in_hand_ = 0;
  pending_ -= hand.done;
  counters_.executed += hand.counts.executed;
  counters_.released += hand.counts.released;
  counters_.quarantined += hand.counts.quarantined;
  return hand.done;
}

void FencedReleaseQueue::Core::end_run() {
  const MutexLock lock(mutex_);
  runner_.reset();
  if (waiters_ != 0) {
    changed_.notify_all();
  }
}

std::size_t FencedReleaseQueue::Core::poll() {
  std::size_t settled = 0;
  if (begin_run()) {
    bool more = true;
    while (more) {
      take(hand_);
      run(hand_);
      more = hand_.size == batch_size && hand_.done == hand_.size && !lost();
      settled += put_back(hand_);
    }
    if (lost()) {
      settle_lost();  // a fence said so, or a callback of ours
    }
    end_run();
  }
  tell_idle();
  return settled;
}

void FencedReleaseQueue::Core::tell_idle() {
  {
    const MutexLock lock(mutex_);
    if (idle_told_ || pending_ != 0 || runner_ || state_ == State::device_lost) {
      return;
    }
    idle_told_ = true;
  }
  if (options_.on_idle && !options_.on_idle()) {
    const MutexLock lock(mutex_);
    idle_told_ = false;
  }
}

Result<void, BindingError> FencedReleaseQueue::Core::wait_idle(std::chrono::nanoseconds deadline) {
  for (;;) {
    poll();
    const MutexLock lock(mutex_);
    if (pending_ == 0) {
      return {};
    }
    const bool inside = runner_ == std::this_thread::get_id();
    const auto now = options_.clock->now();
    if (inside || now >= deadline) {
      return fail(
          BindingError(QueueNotIdle{.pending = pending_, .called_from_queue = inside}));
    }
    ++waiters_;
    changed_.wait_for(mutex_, std::min(options_.poll_interval, deadline - now));
    --waiters_;
  }
}

void FencedReleaseQueue::Core::close() noexcept {
  const MutexLock lock(mutex_);
  if (state_ != State::device_lost) {
    state_ = State::closed;
  }
}

void FencedReleaseQueue::Core::close_after_drain() noexcept {
  const MutexLock lock(mutex_);
  if (state_ == State::open) {
    state_ = State::draining;
    finish_ = true;
  }
}

void FencedReleaseQueue::Core::mark_device_lost() noexcept {
  lost_.store(true, std::memory_order_release);
  {
    const MutexLock lock(mutex_);
    state_ = State::device_lost;
    if (runner_ == std::this_thread::get_id()) {
      return;  // a callback of ours; the run that it came from settles everything
    }
    ++waiters_;  // the release that runs right now is the last one
    while (runner_) {
      changed_.wait(mutex_);
    }
    --waiters_;
  }
  settle_lost();
}

// The entries keep their fences, which must not end before the device's context does.
void FencedReleaseQueue::Core::settle_lost() noexcept {
  Ring lost;
  {
    const MutexLock lock(mutex_);
    state_ = State::device_lost;
    std::swap(lost, ring_);
  }
  std::size_t settled = 0;
  lost.for_each([&settled](Entry& entry) {
    static_cast<void>(entry.request.quarantine_device_lost());
    entry.pin.reset();
    ++settled;
  });
  const MutexLock lock(mutex_);
  pending_ -= settled;
  counters_.quarantined += settled;
  if (settled != 0) {
    kept_.push_back(std::move(lost));
  }
  if (waiters_ != 0) {
    changed_.notify_all();
  }
}

// Pending releases end as abandoned, here or with the worker that is running some of them; a worker that finishes
// the work keeps them.
void FencedReleaseQueue::Core::orphan() noexcept {
  Ring left;
  const MutexLock lock(mutex_);
  orphaned_ = true;
  if (!(finish_ && has_worker()) && state_ != State::device_lost) {
    abandoned_.store(true, std::memory_order_release);
    state_ = State::closed;
    if (!runner_) {
      std::swap(left, ring_);
      pending_ -= left.size();
    }
  }
  changed_.notify_all();
}

void FencedReleaseQueue::Core::work() {
  for (;;) {
    poll();
    const MutexLock lock(mutex_);
    if (work_is_over()) {
      return;
    }
    ++waiters_;
    if (pending_ == 0) {
      changed_.wait(mutex_);
    } else {
      changed_.wait_for(mutex_, options_.poll_interval);
    }
    --waiters_;
  }
}

FencedReleaseQueue::FencedReleaseQueue(FencedReleaseQueueOptions options)
    : core_(std::make_shared<Core>(std::move(options))) {
  if (core_->has_worker()) {
    std::thread([core = core_] { core->work(); }).detach();
  }
}

FencedReleaseQueue::~FencedReleaseQueue() {
  core_->orphan();
}

std::optional<Rejection> FencedReleaseQueue::enqueue(PreparedAllocationRelease&& request) {
  return core_->enqueue(std::move(request));
}

std::size_t FencedReleaseQueue::pending() const noexcept {
  return core_->pending();
}

std::size_t FencedReleaseQueue::poll() {
  return core_->poll();
}

Result<void, BindingError> FencedReleaseQueue::wait_idle(std::chrono::nanoseconds deadline) {
  return core_->wait_idle(deadline);
}

void FencedReleaseQueue::close() noexcept {
  core_->close();
}

void FencedReleaseQueue::close_after_drain() noexcept {
  core_->close_after_drain();
}

void FencedReleaseQueue::mark_device_lost() noexcept {
  core_->mark_device_lost();
}

ReleaseQueueState FencedReleaseQueue::state() const noexcept {
  return core_->state();
}

ReleaseQueueCounters FencedReleaseQueue::counters() const noexcept {
  return core_->counters();
}

}  // namespace memstrata
