// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "memstrata/contract/fence.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// A fence that somebody sets by hand, for device work that the library cannot see. Thread-safe.
class ManualFence final : public Fence {
 public:
  [[nodiscard]] FenceState state() const noexcept override {
    return state_.load(std::memory_order_acquire);
  }

  /// Ends the wait, once: a fence that is not pending any more stays as it is.
  void set(FenceState state) noexcept {
    FenceState pending = FenceState::pending;
    // Release: what was done before is seen by whoever sees the fence completed.
    state_.compare_exchange_strong(pending, state, std::memory_order_release);
  }

 private:
  std::atomic<FenceState> state_{FenceState::pending};
};

/// Work of host threads in steps, each of which ends as a whole: a fence that is recorded now is completed when
/// every step submitted so far has ended. Steps end in the order of submission. Thread-safe.
class HostTimeline final : public FenceSource {
 public:
  /// A timeline without steps, on which every fence is completed. Throws std::bad_alloc.
  HostTimeline();

  /// One more step, which uses memory from now on. Its number: 1, 2, 3, ... Throws std::bad_alloc, with nothing
  /// changed. Recording allocates nothing.
  std::uint64_t submit();
  /// Every step up to `step`, which was submitted, has ended. No effect after `fail` or `lose`.
  void complete(std::uint64_t step) noexcept;
  /// Steps that have not ended yet, and later ones, never will in an orderly way: their fences fail. No effect after
  /// `lose`.
  void fail() noexcept;
  /// The device that the timeline stands for is lost: fences that are pending are lost, and so is every fence that is
  /// recorded later. No effect after `fail`.
  void lose() noexcept;

  [[nodiscard]] std::uint64_t submitted() const noexcept;
  [[nodiscard]] std::uint64_t completed() const noexcept;

  [[nodiscard]] Result<void> record(FenceSet& into) override;

 private:
  struct Progress;
  class StepFence;

  std::shared_ptr<Progress> progress_;
  mutable Mutex mutex_;
  std::uint64_t submitted_ MEMSTRATA_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Fence> last_ MEMSTRATA_GUARDED_BY(mutex_);  // of the last step
  std::shared_ptr<Fence> endless_;                            // of a step after all others
};

}  // namespace memstrata
