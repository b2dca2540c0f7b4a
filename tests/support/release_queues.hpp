// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "memstrata/contract/release.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"

namespace memstrata::test {

/// A queue with a bound that keeps requests until it is drained by hand. Thread-safe.
class HoldingQueue final : public DeferredReleaseQueue {
 public:
  explicit HoldingQueue(std::size_t capacity = 1024) : capacity_(capacity) {}

  [[nodiscard]] std::optional<DeferredEnqueueRejection> enqueue(
      PreparedAllocationRelease&& request) override {
    if (on_enqueue) {
      on_enqueue();
    }
    const std::scoped_lock lock(mutex_);
    if (requests_.size() >= capacity_) {
      return DeferredEnqueueRejection::full;
    }
    requests_.push_back(std::move(request));
    return std::nullopt;
  }

  [[nodiscard]] std::size_t pending() const noexcept override {
    const std::scoped_lock lock(mutex_);
    return requests_.size();
  }

  /// Executes what is there, first in first out, with no lock held.
  [[nodiscard]] std::vector<ReleaseOutcome> drain() {
    std::vector<ReleaseOutcome> outcomes;
    while (std::optional<PreparedAllocationRelease> request = take()) {
      outcomes.push_back(request->execute());
    }
    return outcomes;
  }

  /// The oldest request, for the caller to settle.
  [[nodiscard]] std::optional<PreparedAllocationRelease> take() {
    const std::scoped_lock lock(mutex_);
    if (requests_.empty()) {
      return std::nullopt;
    }
    PreparedAllocationRelease first = std::move(requests_.front());
    requests_.pop_front();
    return first;
  }

  /// Called at the beginning of every `enqueue`, without a lock.
  std::function<void()> on_enqueue;

 private:
  std::size_t capacity_;
  mutable std::mutex mutex_;
  std::deque<PreparedAllocationRelease> requests_;
};

/// A queue that takes nothing.
class RefusingQueue final : public DeferredReleaseQueue {
 public:
  explicit RefusingQueue(DeferredEnqueueRejection why) : why_(why) {}

  [[nodiscard]] std::optional<DeferredEnqueueRejection> enqueue(
      PreparedAllocationRelease&& /*request*/) override {
    return why_;
  }

 private:
  DeferredEnqueueRejection why_;
};

/// A queue that breaks the contract.
class LyingQueue final : public DeferredReleaseQueue {
 public:
  enum class Lie : std::uint8_t {
    accept_and_destroy,
    accept_and_leave,
    refuse_and_consume,
    throw_and_leave,
    throw_and_consume,
    throw_a_number,
  };

  explicit LyingQueue(Lie lie) : lie_(lie) {}

  [[nodiscard]] std::optional<DeferredEnqueueRejection> enqueue(
      PreparedAllocationRelease&& request) override {
    switch (lie_) {
      case Lie::accept_and_destroy: {
        const PreparedAllocationRelease lost = std::move(request);
        return std::nullopt;
      }
      case Lie::accept_and_leave:
        return std::nullopt;
      case Lie::refuse_and_consume: {
        const PreparedAllocationRelease lost = std::move(request);
        return DeferredEnqueueRejection::full;
      }
      case Lie::throw_and_leave:
        throw std::runtime_error("scripted throw");
      case Lie::throw_and_consume: {
        const PreparedAllocationRelease lost = std::move(request);
        throw std::runtime_error("scripted throw");
      }
      case Lie::throw_a_number:
        throw 7;  // NOLINT(hicpp-exception-baseclass): foreign code throws what it likes
    }
    std::unreachable();
  }

 private:
  Lie lie_;
};

}  // namespace memstrata::test
