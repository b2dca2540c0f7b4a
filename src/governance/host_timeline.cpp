// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/host_timeline.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "memstrata/contract/fence.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// How far the steps are; fences outlive the timeline with it.
struct HostTimeline::Progress {
  std::atomic<std::uint64_t> completed{0};
  std::atomic<FenceState> rest{FenceState::pending};  ///< What the steps after `completed` are.
};

class HostTimeline::StepFence final : public Fence {
 public:
  StepFence(std::shared_ptr<Progress> progress, std::uint64_t step) noexcept
      : progress_(std::move(progress)), step_(step) {}

  [[nodiscard]] FenceState state() const noexcept override {
    // Acquire: the work of a step that is seen completed is seen as well.
    return progress_->completed.load(std::memory_order_acquire) >= step_
               ? FenceState::completed
               : progress_->rest.load(std::memory_order_acquire);
  }

 private:
  std::shared_ptr<Progress> progress_;
  std::uint64_t step_;
};

HostTimeline::HostTimeline()
    : progress_(std::make_shared<Progress>()),
      last_(std::make_shared<StepFence>(progress_, std::uint64_t{0})) {}

std::uint64_t HostTimeline::submit() {
  for (;;) {
    const std::uint64_t step = submitted() + 1;
    std::shared_ptr<Fence> fence = std::make_shared<StepFence>(progress_, step);
    const MutexLock lock(mutex_);
    if (submitted_ + 1 == step) {
      submitted_ = step;
      std::swap(last_, fence);  // the fence before ends after the lock
      return step;
    }
  }
}

void HostTimeline::complete(std::uint64_t step) noexcept {
  const std::uint64_t known = submitted();
  MEMSTRATA_VERIFY(step <= known, "a step ends that was never submitted", step, known);
  std::uint64_t before = progress_->completed.load(std::memory_order_relaxed);
  while (before < step && !progress_->completed.compare_exchange_weak(
                              before, step, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void HostTimeline::fail() noexcept {
  FenceState pending = FenceState::pending;
  progress_->rest.compare_exchange_strong(pending, FenceState::failed, std::memory_order_release);
}

void HostTimeline::lose() noexcept {
  progress_->rest.store(FenceState::lost, std::memory_order_release);
}

std::uint64_t HostTimeline::submitted() const noexcept {
  const MutexLock lock(mutex_);
  return submitted_;
}

std::uint64_t HostTimeline::completed() const noexcept {
  return progress_->completed.load(std::memory_order_acquire);
}

Result<void> HostTimeline::record(FenceSet& into) {
  const MutexLock lock(mutex_);
  into.add(last_);
  return {};
}

}  // namespace memstrata
