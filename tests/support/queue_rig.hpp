// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "memstrata/contract/context_pin.hpp"
#include "memstrata/contract/fence.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/provider_context_pin_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"
#include "support/binding_rig.hpp"
#include "support/fault_script.hpp"

namespace memstrata::test {

/// What fences and pins of a rig have seen. The hooks are set before anything runs.
struct GuardLog {
  std::atomic<std::uint64_t> asked{0};  ///< States of fences.
  std::atomic<std::uint64_t> ended{0};  ///< Fences that were destroyed.
  std::atomic<std::uint64_t> pins{0};   ///< Pins that are held.
  std::function<void()> on_ask;         ///< Before a fence answers.
  std::function<void()> on_fence_end;
  std::function<void()> on_pin_end;  ///< Before the claim on the context ends.
};

/// A fence that a test sets, and whose calls and end are noted. Thread-safe.
class WatchedFence final : public Fence {
 public:
  using State = std::shared_ptr<std::atomic<FenceState>>;

  WatchedFence(std::shared_ptr<GuardLog> log, State state)
      : log_(std::move(log)), state_(std::move(state)) {}

  WatchedFence(const WatchedFence&) = delete;
  WatchedFence& operator=(const WatchedFence&) = delete;
  WatchedFence(WatchedFence&&) = delete;
  WatchedFence& operator=(WatchedFence&&) = delete;

  ~WatchedFence() override {
    ++log_->ended;
    if (log_->on_fence_end) {
      log_->on_fence_end();
    }
  }

  [[nodiscard]] FenceState state() const noexcept override {
    ++log_->asked;
    if (log_->on_ask) {
      log_->on_ask();
    }
    return state_->load();
  }

 private:
  std::shared_ptr<GuardLog> log_;
  State state_;
};

/// Records the same number of marks each time. Operations for `faults()`: record, record_throws, both after the marks
/// were added. Thread-safe.
class WatchedFenceSource final : public FenceSource {
 public:
  WatchedFenceSource(std::shared_ptr<GuardLog> log, std::size_t marks)
      : log_(std::move(log)), marks_(marks) {}

  [[nodiscard]] Result<void> record(FenceSet& into) override {
    for (std::size_t i = 0; i < marks_; ++i) {
      auto state = std::make_shared<std::atomic<FenceState>>(first_state);
      into.add(std::make_shared<WatchedFence>(log_, state));
      const std::scoped_lock lock(mutex_);
      states_.push_back(std::move(state));
    }
    if (on_record) {
      on_record();
    }
    if (faults_.must_fail("record_throws")) {
      throw std::runtime_error("scripted throw");
    }
    if (faults_.must_fail("record")) {
      return fail(AllocationFailed{.tier = Tier::device, .requested = {}, .reason = "no event"});
    }
    return {};
  }

  /// The `mark`-th mark that was ever recorded, from 0.
  void set(std::size_t mark, FenceState state) {
    const std::scoped_lock lock(mutex_);
    states_.at(mark)->store(state);
  }

  void set_all(FenceState state) {
    const std::scoped_lock lock(mutex_);
    for (const auto& each : states_) {
      each->store(state);
    }
  }

  [[nodiscard]] std::size_t recorded() const {
    const std::scoped_lock lock(mutex_);
    return states_.size();
  }

  [[nodiscard]] FaultScript& faults() noexcept { return faults_; }

  FenceState first_state = FenceState::pending;
  std::function<void()> on_record;

 private:
  std::shared_ptr<GuardLog> log_;
  std::size_t marks_;
  FaultScript faults_;
  mutable std::mutex mutex_;
  std::vector<WatchedFence::State> states_;
};

/// Real pins of a context, counted. Operations for `faults()`: pin, pin_throws. Thread-safe.
class WatchedPinSource final : public ProviderContextPinSource {
 public:
  WatchedPinSource(std::shared_ptr<GuardLog> log, std::shared_ptr<ProviderContextPinSource> real)
      : log_(std::move(log)), real_(std::move(real)) {}

  [[nodiscard]] ProviderContextIdentity context() const noexcept override {
    return real_->context();
  }

  [[nodiscard]] Result<std::unique_ptr<ProviderContextPin>, ProviderContextPinError> pin()
      override {
    if (faults_.must_fail("pin_throws")) {
      throw std::runtime_error("scripted throw");
    }
    if (faults_.must_fail("pin")) {
      return fail(ProviderContextPinError(ContextUnavailable{
          .context = context(), .lifecycle = ProviderContextLifecycle::retiring}));
    }
    auto pinned = real_->pin();
    if (!pinned) {
      return pinned;
    }
    return std::make_unique<Pin>(log_, *std::move(pinned));
  }

  [[nodiscard]] FaultScript& faults() noexcept { return faults_; }

 private:
  class Pin final : public ProviderContextPin {
   public:
    Pin(std::shared_ptr<GuardLog> log, std::unique_ptr<ProviderContextPin> real)
        : log_(std::move(log)), real_(std::move(real)) {
      ++log_->pins;
    }

    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    Pin(Pin&&) = delete;
    Pin& operator=(Pin&&) = delete;

    ~Pin() override {
      if (log_->on_pin_end) {
        log_->on_pin_end();
      }
      --log_->pins;
    }

    [[nodiscard]] ProviderContextIdentity context() const noexcept override {
      return real_->context();
    }

   private:
    std::shared_ptr<GuardLog> log_;
    std::unique_ptr<ProviderContextPin> real_;
  };

  std::shared_ptr<GuardLog> log_;
  std::shared_ptr<ProviderContextPinSource> real_;
  FaultScript faults_;
};

/// A binding with a release queue whose fences and pins are watched: two marks and one pin for each release.
struct QueueRig {
  explicit QueueRig(FencedReleaseQueueOptions options = {}, std::size_t marks = 2)
      : fences(std::make_shared<WatchedFenceSource>(log, marks)),
        pins(std::make_shared<WatchedPinSource>(
            log,
            must(binding.registry.pin_source(binding.context)))) {
    options.fences = fences;
    options.pins = pins;
    queue = std::make_unique<FencedReleaseQueue>(std::move(options));
  }

  /// A release of a new allocation.
  [[nodiscard]] PreparedAllocationRelease prepare() const {
    OwningAllocation owner = binding.allocate();
    return must(owner.prepare_release());
  }

  /// Queues the release of a new allocation, which the queue must take.
  AllocationIdentity put() const {
    PreparedAllocationRelease request = prepare();
    const AllocationIdentity identity = request.identity();
    const auto refused = queue->enqueue(std::move(request));
    EXPECT_EQ(refused, std::nullopt);
    return identity;
  }

  void put(std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) {
      put();
    }
  }

  [[nodiscard]] QuarantinedAllocations quarantined() const {
    return must(binding.registry.quarantined(binding.mechanism));
  }

  std::shared_ptr<GuardLog> log = std::make_shared<GuardLog>();
  BindingRig binding;
  std::shared_ptr<WatchedFenceSource> fences;
  std::shared_ptr<WatchedPinSource> pins;
  std::unique_ptr<FencedReleaseQueue> queue;
};

/// Expects that everything in quarantine is there for `kind`.
inline void expect_reasons(const QuarantinedAllocations& records, QuarantineReason::Kind kind) {
  for (const QuarantinedAllocation record : records) {
    EXPECT_EQ(record.reason.kind(), kind);
  }
}

}  // namespace memstrata::test
