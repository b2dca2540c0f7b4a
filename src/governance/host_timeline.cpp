// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/host_timeline.hpp"

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "memstrata/contract/fence.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// How far the steps are, in one word, so that no fence is ever seen to end twice: the number of the last step that
/// has ended above two bits that say what the steps after it are. Fences outlive the timeline with it.
struct HostTimeline::Progress {
  static constexpr unsigned rest_bits = 2;

  [[nodiscard]] static constexpr std::uint64_t word(std::uint64_t completed,
                                                    FenceState rest) noexcept {
    return (completed << rest_bits) | std::to_underlying(rest);
  }

  [[nodiscard]] static constexpr std::uint64_t completed(std::uint64_t word) noexcept {
    return word >> rest_bits;
  }

  [[nodiscard]] static constexpr FenceState rest(std::uint64_t word) noexcept {
    return static_cast<FenceState>(word & ((1U << rest_bits) - 1));
  }

  /// Ends every step that is pending in the same way, unless an earlier call did.
  void end_rest(FenceState how) noexcept {
    std::uint64_t now = at.load(std::memory_order_relaxed);
    while (
        rest(now) == FenceState::pending &&
        !at.compare_exchange_weak(
            now, word(completed(now), how), std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

  std::atomic<std::uint64_t> at{word(0, FenceState::pending)};
};

static_assert(std::to_underlying(FenceState::lost) < (1U << 2U));

class HostTimeline::StepFence final : public Fence {
 public:
  StepFence(std::shared_ptr<Progress> progress, std::uint64_t step) noexcept
      : progress_(std::move(progress)), step_(step) {}

  [[nodiscard]] FenceState state() const noexcept override {
    // Acquire: the work of a step that is seen completed is seen as well.
    const std::uint64_t now = progress_->at.load(std::memory_order_acquire);
    return Progress::completed(now) >= step_ ? FenceState::completed : Progress::rest(now);
  }

 private:
  std::shared_ptr<Progress> progress_;
  std::uint64_t step_;
};

HostTimeline::HostTimeline()
    : progress_(std::make_shared<Progress>()),
      last_(std::make_shared<StepFence>(progress_, std::uint64_t{0})),
      endless_(std::make_shared<StepFence>(progress_, std::numeric_limits<std::uint64_t>::max())) {}

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
  std::uint64_t now = progress_->at.load(std::memory_order_relaxed);
  while (Progress::rest(now) == FenceState::pending && Progress::completed(now) < step &&
         !progress_->at.compare_exchange_weak(now,
                                              Progress::word(step, FenceState::pending),
                                              std::memory_order_release,
                                              std::memory_order_relaxed)) {
  }
}

void HostTimeline::fail() noexcept {
  progress_->end_rest(FenceState::failed);
}

void HostTimeline::lose() noexcept {
  progress_->end_rest(FenceState::lost);
}

std::uint64_t HostTimeline::submitted() const noexcept {
  const MutexLock lock(mutex_);
  return submitted_;
}

std::uint64_t HostTimeline::completed() const noexcept {
  return Progress::completed(progress_->at.load(std::memory_order_acquire));
}

Result<void> HostTimeline::record(FenceSet& into) {
  const bool lost =
      Progress::rest(progress_->at.load(std::memory_order_acquire)) == FenceState::lost;
  const MutexLock lock(mutex_);
  into.add(lost ? endless_ : last_);
  return {};
}

}  // namespace memstrata
