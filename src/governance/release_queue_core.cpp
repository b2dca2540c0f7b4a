// SPDX-License-Identifier: Apache-2.0
#include "governance/release_queue_core.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "memstrata/contract/context_pin.hpp"
#include "memstrata/contract/fence.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"

namespace memstrata {
namespace {

using Rejection = DeferredEnqueueRejection;

/// Why a queue in `state` takes nothing, if so.
std::optional<Rejection> refusal(ReleaseQueueState state) noexcept {
  switch (state) {
    case ReleaseQueueState::closed:
      return Rejection::closed;
    case ReleaseQueueState::device_lost:
      return Rejection::device_lost;
    case ReleaseQueueState::open:
    case ReleaseQueueState::draining:
      return std::nullopt;
  }
  std::unreachable();
}

/// Marks of a lost device for which there is no memory are never ended.
void keep_for_ever(FenceSet& fences) noexcept {
  for (const std::shared_ptr<Fence>& fence : fences.fences()) {
    alignas(std::shared_ptr<Fence>) std::array<std::byte, sizeof(std::shared_ptr<Fence>)> memory;
    ::new (memory.data()) std::shared_ptr<Fence>(fence);
  }
}

}  // namespace

FencedReleaseQueue::Core::Core(FencedReleaseQueueOptions options) : options_(std::move(options)) {
  auto segment = Entries::make_segment();
  if (segment == nullptr) {
    throw std::bad_alloc();
  }
  entries_.add(std::move(segment));
}

std::size_t FencedReleaseQueue::Core::pending() const noexcept {
  const MutexLock lock(mutex_);
  return pending_;
}

ReleaseQueueCounters FencedReleaseQueue::Core::counters() const noexcept {
  const MutexLock lock(mutex_);
  return counters_;
}

void FencedReleaseQueue::Core::apply(ReleaseQueueEvent event) noexcept {
  state_.store(next(state_.load(std::memory_order_relaxed), event), std::memory_order_release);
}

std::optional<Rejection> FencedReleaseQueue::Core::admission() const {
  if (const auto refused = refusal(state())) {
    return refused;
  }
  return options_.capacity && pending_ >= *options_.capacity ? std::optional(Rejection::full)
                                                             : std::nullopt;
}

// A queue that was closed or lost meanwhile says that instead.
Rejection FencedReleaseQueue::Core::reject(Rejection why) {
  const MutexLock lock(mutex_);
  ++counters_.rejected;
  return refusal(state()).value_or(why);
}

// The claim first: marks are made in a context that cannot end meanwhile.
bool FencedReleaseQueue::Core::guard(std::unique_ptr<ProviderContextPin>& pin,
                                     FenceSet& fences) noexcept {
  try {
    if (options_.pins != nullptr) {
      auto pinned = options_.pins->pin();
      if (!pinned) {
        return false;
      }
      pin = *std::move(pinned);
    }
    return options_.fences == nullptr || options_.fences->record(fences).has_value();
  } catch (...) {
    return false;
  }
}

// Claim and marks are taken before the entry has its place: both call foreign code, and what is refused after all has
// nothing to undo.
std::optional<Rejection> FencedReleaseQueue::Core::enqueue(PreparedAllocationRelease&& request) {
  MEMSTRATA_VERIFY(!request.empty(), "a queue was given a release that is settled or moved from");
  if (const auto refused = refusal(state())) {
    return reject(*refused);
  }
  std::unique_ptr<ProviderContextPin> pin;  // ends after the marks
  FenceSet fences;
  if (!guard(pin, fences)) {
    return reject(Rejection::refused);
  }
  for (;;) {
    {
      const MutexLock lock(mutex_);
      const auto refused = admission();
      const bool keep = refused == Rejection::device_lost && !fences.fences().empty();
      if (refused && !keep) {
        ++counters_.rejected;
        return refused;
      }
      if (entries_.has_room()) {
        if (keep) {
          PreparedAllocationRelease stays = std::move(request);
          // The marks alone: NOLINTNEXTLINE(bugprone-use-after-move): it is empty, as is wanted
          entries_.push(nullptr, std::move(fences), std::move(request));
          request = std::move(stays);
          ++counters_.rejected;
          return refused;
        }
        entries_.push(std::move(pin), std::move(fences), std::move(request));
        ++counters_.accepted;
        idle_told_ = false;
        if (pending_++ == 0) {
          arrived_ = true;
          wake();  // a worker that waits for the first one; whoever waits for the others looks by itself
        }
        return std::nullopt;
      }
    }
    if (!make_room()) {
      if (lost()) {
        keep_for_ever(fences);
      }
      return reject(Rejection::refused);
    }
  }
}

// A segment is made without the mutex and taken if it is still needed.
bool FencedReleaseQueue::Core::make_room() {
  auto segment = Entries::make_segment();
  if (segment == nullptr) {
    return false;
  }
  const MutexLock lock(mutex_);
  if (!entries_.has_room()) {
    entries_.add(std::move(segment));
  }
  return true;
}

void FencedReleaseQueue::Core::wake() {
  if (waiters_ != 0) {
    changed_.notify_all();
  }
}

bool FencedReleaseQueue::Core::begin_telling() {
  const MutexLock lock(mutex_);
  if (telling_ || idle_told_ || pending_ != 0 || runner_ || stopped()) {
    return false;
  }
  idle_told_ = true;
  telling_ = options_.on_idle != nullptr;
  return telling_;
}

// An exception of the caller's is no answer, so that it is asked again.
bool FencedReleaseQueue::Core::ask_on_idle() noexcept {
  try {
    return options_.on_idle();
  } catch (...) {
    return false;
  }
}

void FencedReleaseQueue::Core::tell_idle() {
  while (begin_telling()) {
    const bool content = ask_on_idle();
    const MutexLock lock(mutex_);
    telling_ = false;
    if (!content) {
      idle_told_ = false;
      wake();
      return;
    }
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
      return fail(BindingError(QueueNotIdle{.pending = pending_, .called_from_queue = inside}));
    }
    ++waiters_;
    changed_.wait_for(mutex_, std::min(options_.poll_interval, deadline - now));
    --waiters_;
  }
}

void FencedReleaseQueue::Core::close() noexcept {
  const MutexLock lock(mutex_);
  apply(ReleaseQueueEvent::close);
}

void FencedReleaseQueue::Core::close_after_drain() noexcept {
  const MutexLock lock(mutex_);
  apply(ReleaseQueueEvent::close_after_drain);
  finish_ = finish_ || state() == ReleaseQueueState::draining;
}

// Pending releases end as abandoned, here or with the core of a run that goes on; a worker that finishes the work
// keeps them.
void FencedReleaseQueue::Core::orphan() noexcept {
  Entries left;
  const MutexLock lock(mutex_);
  orphaned_ = true;
  if (!(finish_ && has_worker()) && !lost()) {
    abandoned_.store(true, std::memory_order_release);
    if (!runner_) {
      left.swap(entries_);
    }
  }
  changed_.notify_all();
}

bool FencedReleaseQueue::Core::work_is_over() const {
  return stopped() || (orphaned_ && pending_ == 0 && idle_told_);
}

void FencedReleaseQueue::Core::work() {
  for (;;) {
    poll();
    const MutexLock lock(mutex_);
    if (work_is_over()) {
      return;
    }
    if (std::exchange(arrived_, false)) {
      continue;  // perhaps after the poll, when there was no waiter to wake
    }
    ++waiters_;
    if (pending_ == 0 && idle_told_) {
      changed_.wait(mutex_);
    } else {
      changed_.wait_for(mutex_, options_.poll_interval);
    }
    --waiters_;
  }
}

}  // namespace memstrata
