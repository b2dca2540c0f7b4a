// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/fenced_release_queue.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "governance/release_queue_core.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"

namespace memstrata {

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

FencedReleaseQueue::FencedReleaseQueue(FencedReleaseQueueOptions options)
    : core_(std::make_shared<Core>(std::move(options))) {
  if (core_->has_worker()) {
    std::thread([core = core_] { core->work(); }).detach();
  }
}

FencedReleaseQueue::~FencedReleaseQueue() {
  core_->orphan();
}

std::optional<DeferredEnqueueRejection> FencedReleaseQueue::enqueue(
    PreparedAllocationRelease&& request) {
  return core_->enqueue(std::move(request));
}

std::size_t FencedReleaseQueue::pending() const noexcept {
  return core_->pending();
}

std::size_t FencedReleaseQueue::poll() {
  const auto core = core_;  // a callback may destroy this
  return core->poll();
}

Result<void, BindingError> FencedReleaseQueue::wait_idle(std::chrono::nanoseconds deadline) {
  const auto core = core_;
  return core->wait_idle(deadline);
}

void FencedReleaseQueue::close() noexcept {
  core_->close();
}

void FencedReleaseQueue::close_after_drain() noexcept {
  core_->close_after_drain();
}

void FencedReleaseQueue::mark_device_lost() noexcept {
  const auto core = core_;
  core->mark_device_lost();
}

ReleaseQueueState FencedReleaseQueue::state() const noexcept {
  return core_->state();
}

ReleaseQueueCounters FencedReleaseQueue::counters() const noexcept {
  return core_->counters();
}

}  // namespace memstrata
