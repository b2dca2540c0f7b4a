// SPDX-License-Identifier: Apache-2.0
// What the runner of a release queue does: it executes releases, or settles them after the loss of the device.
#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "governance/release_queue_core.hpp"
#include "memstrata/contract/fence.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"

namespace memstrata {
namespace {

/// Whether the allocator was called for a release that ended so.
bool allocator_was_called(const ReleaseOutcome& outcome) noexcept {
  using Kind = QuarantineReason::Kind;
  return !outcome.residual() || (outcome.residual()->reason.kind() != Kind::device_lost &&
                                 outcome.residual()->reason.kind() != Kind::mechanism_terminated);
}

}  // namespace

bool FencedReleaseQueue::Core::begin_run() {
  const MutexLock lock(mutex_);
  if (runner_ || stopped() || entries_.empty()) {
    return false;
  }
  runner_ = std::this_thread::get_id();
  return true;
}

void FencedReleaseQueue::Core::take() {
  hand_.size = 0;
  hand_.done = 0;
  hand_.destroyed = 0;
  hand_.counts = {};
  const MutexLock lock(mutex_);
  entries_.for_each([this](Entry& entry) { hand_.entries[hand_.size++] = &entry; }, batch_size);
}

// In order, up to the first one whose fences are pending.
void FencedReleaseQueue::Core::run() {
  ReleaseBatch batch;
  const Fence* completed =
      nullptr;  // releases of one step share its mark, and completed is for ever
  for (; hand_.done < hand_.size && !stopped(); ++hand_.done) {
    Entry& entry = *hand_.entries[hand_.done];
    const std::span<const std::shared_ptr<Fence>> marks = entry.fences.fences();
    const Fence* const only = marks.size() == 1 ? marks.front().get() : nullptr;
    const FenceState fences =
        only != nullptr && only == completed ? FenceState::completed : entry.fences.state();
    if (fences == FenceState::lost) {
      learn_of_loss();
    }
    // A fence may have called back and said that the device is lost, or destroyed the handle.
    if (fences == FenceState::pending || stopped()) {
      break;
    }
    if (fences == FenceState::failed) {
      static_cast<void>(entry.request.quarantine(UnexecutedReason::fence_failed()));
      ++hand_.counts.quarantined;
    } else {
      completed = only;
      execute(entry, batch);
    }
  }
  // The books first, then the claims: no claim means that ownership is settled.
  batch.settle();
  for (; hand_.destroyed < hand_.done && !lost(); ++hand_.destroyed) {
    std::destroy_at(hand_.entries[hand_.destroyed]);
  }
  for (std::size_t i = hand_.destroyed; i < hand_.done; ++i) {
    hand_.entries[i]->pin.reset();  // the marks stay with those of a lost device
  }
}

void FencedReleaseQueue::Core::execute(Entry& entry, ReleaseBatch& batch) {
  const ReleaseOutcome outcome = batch.execute(entry.request);
  hand_.counts.executed += allocator_was_called(outcome) ? 1U : 0U;
  ++(outcome.is_released() ? hand_.counts.released : hand_.counts.quarantined);
}

void FencedReleaseQueue::Core::learn_of_loss() {
  const MutexLock lock(mutex_);
  apply(ReleaseQueueEvent::lose_device);
}

// What is not done stays in front; after a loss the marks of what is done as well.
std::size_t FencedReleaseQueue::Core::put_down() {
  const MutexLock lock(mutex_);
  entries_.drop_destroyed(hand_.destroyed);
  pending_ -= hand_.done;
  counters_.executed += hand_.counts.executed;
  counters_.released += hand_.counts.released;
  counters_.quarantined += hand_.counts.quarantined;
  return hand_.done;
}

void FencedReleaseQueue::Core::end_run() {
  const MutexLock lock(mutex_);
  runner_.reset();
  wake();
}

std::size_t FencedReleaseQueue::Core::poll() {
  std::size_t settled = 0;
  if (begin_run()) {
    bool more = true;
    while (more) {
      take();
      run();
      more = hand_.size == batch_size && hand_.done == batch_size && !stopped();
      settled += put_down();
    }
    if (lost()) {
      settled += settle_lost();  // a fence said so, or a callback of ours
    }
    end_run();
  }
  tell_idle();
  return settled;
}

void FencedReleaseQueue::Core::mark_device_lost() noexcept {
  {
    const MutexLock lock(mutex_);
    apply(ReleaseQueueEvent::lose_device);
    if (runner_ == std::this_thread::get_id()) {
      return;  // a callback of ours; the run that it came from settles everything
    }
    ++waiters_;  // the release that runs right now is the last one
    while (runner_) {
      changed_.wait(mutex_);
    }
    --waiters_;
    runner_ = std::this_thread::get_id();
  }
  static_cast<void>(settle_lost());
  end_run();
}

// The entries keep their marks, which must not end before the device's context does.
std::size_t FencedReleaseQueue::Core::settle_lost() noexcept {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(loss_settled_, true)) {
      return 0;
    }
    kept_.swap(entries_);
  }
  std::size_t settled = 0;
  kept_.for_each([&settled](Entry& entry) {
    if (!entry.request.empty()) {
      static_cast<void>(entry.request.quarantine_device_lost());
      entry.pin.reset();
      ++settled;
    }
  });
  const MutexLock lock(mutex_);
  pending_ -= settled;
  counters_.quarantined += settled;
  return settled;
}

}  // namespace memstrata
