// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "memstrata/contract/context_pin.hpp"
#include "memstrata/contract/fence.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"

namespace memstrata {

/// Who looks whether fences are completed.
enum class ReleasePolling : std::uint8_t {
  by_hand,  ///< Whoever calls `poll` or `wait_idle`.
  worker,   ///< A thread of the queue as well, when work comes and then every `poll_interval`.
};

/// What a queue is made of. The defaults make one that waits for nothing and takes everything.
struct FencedReleaseQueueOptions {
  std::shared_ptr<FenceSource> fences = nullptr;             ///< Null: a release may run at once.
  std::shared_ptr<ProviderContextPinSource> pins = nullptr;  ///< Null: none. Else one each.
  /// Most releases that are pending at once; nothing: as many as come. A refusal puts memory into quarantine, so
  /// that a bound is for callers that can wait.
  std::optional<std::size_t> capacity = std::nullopt;
  ReleasePolling polling = ReleasePolling::by_hand;
  /// *Source:* 250 us, the interval of the earlier system; a decode step of a model takes milliseconds.
  std::chrono::nanoseconds poll_interval = std::chrono::microseconds(250);
  const Clock* clock = &steady_clock();  ///< Of the deadlines; outlives the queue.
  /// Called with no lock held when the queue has become empty, on the thread that found it so, by one thread at a
  /// time; false, or an exception, asks to be called again at the next poll that finds it empty. Not called after
  /// the device was lost or pending releases were abandoned. A worker may still be in it when the queue is gone.
  std::move_only_function<bool()> on_idle = nullptr;
};

/// Whether a queue takes releases.
enum class ReleaseQueueState : std::uint8_t {
  open,
  draining,     ///< Takes what teardown produces; its worker ends the work even if the handle goes.
  closed,       ///< Takes nothing; what is pending goes on.
  device_lost,  ///< Takes nothing, calls nothing.
};

[[nodiscard]] std::string_view to_string(ReleaseQueueState state) noexcept;

enum class ReleaseQueueEvent : std::uint8_t { close, close_after_drain, lose_device };

/// The state after `event`, which may be the same one. Nothing leads back to `open` or out of `device_lost`.
[[nodiscard]] constexpr ReleaseQueueState next(ReleaseQueueState state,
                                               ReleaseQueueEvent event) noexcept {
  switch (event) {
    case ReleaseQueueEvent::close:
      return state == ReleaseQueueState::device_lost ? state : ReleaseQueueState::closed;
    case ReleaseQueueEvent::close_after_drain:
      return state == ReleaseQueueState::open ? ReleaseQueueState::draining : state;
    case ReleaseQueueEvent::lose_device:
      return ReleaseQueueState::device_lost;
  }
  std::unreachable();
}

/// What a queue has done since it was made.
struct ReleaseQueueCounters {
  std::uint64_t accepted = 0;
  std::uint64_t rejected = 0;
  std::uint64_t executed = 0;     ///< Allocator called.
  std::uint64_t released = 0;     ///< Of these: complete.
  std::uint64_t quarantined = 0;  ///< Settled in any other way.
};

/// A provider's release queue: each release waits until the device work that was submitted before it has ended, and
/// is then executed in order, with no lock held, by whoever polls. `enqueue` takes the pin, records the marks and
/// returns; it never waits for the device.
///
/// Releases run first in, first out: one whose fences are pending holds back those behind it, as the streams that
/// they wait for do anyway. One whose fence failed goes to quarantine with `fence_failed`; a lost fence is the loss
/// of the device. A pin ends after the books are settled and the marks are ended. Thread-safe; callbacks may call
/// back, and may destroy the queue.
///
/// Destroying the queue neither frees nor blocks: what is pending goes to quarantine as abandoned, unless
/// `close_after_drain` was called and a worker is there, which then ends the work. After the loss of the device all
/// marks that are left are kept as long as the queue, because ending them would call the device: destroy it after
/// the end of the context was confirmed.
class FencedReleaseQueue final : public DeferredReleaseQueue {
 public:
  /// Throws std::bad_alloc, and std::system_error if the worker cannot be started.
  explicit FencedReleaseQueue(FencedReleaseQueueOptions options = {});
  FencedReleaseQueue(const FencedReleaseQueue&) = delete;
  FencedReleaseQueue& operator=(const FencedReleaseQueue&) = delete;
  FencedReleaseQueue(FencedReleaseQueue&&) = delete;
  FencedReleaseQueue& operator=(FencedReleaseQueue&&) = delete;
  ~FencedReleaseQueue() override;

  /// Rejections: closed, device_lost, full; refused if no mark could be recorded, no pin be taken, or there is no
  /// memory for the entry. The request stays with the caller then. A queue that is closed or lost calls nobody. An
  /// empty request stops the program.
  [[nodiscard]] std::optional<DeferredEnqueueRejection> enqueue(
      PreparedAllocationRelease&& request) override;

  /// Releases that were taken and are not settled.
  [[nodiscard]] std::size_t pending() const noexcept override;

  /// Executes what is ready; returns how many releases were settled. Returns 0 at once while another thread polls.
  std::size_t poll();

  /// Polls until nothing is pending. Errors: QueueNotIdle once `deadline` of the queue's clock has passed, or at
  /// once if the queue itself runs the caller; what is pending stays so.
  [[nodiscard]] Result<void, BindingError> wait_idle(std::chrono::nanoseconds deadline);

  /// Takes nothing from now on; what is pending goes on.
  void close() noexcept;

  /// Goes on taking what teardown produces until the queue is destroyed; with a worker the work is then ended all
  /// the same, also after a later `close`. No effect on a queue that is closed or lost.
  void close_after_drain() noexcept;

  /// The device is lost: no fence is asked and no allocator called from the return of this on, and every pending
  /// release is settled as lost, so that its context can become quiet. Waits for a release that another thread is
  /// executing right now, unless that release itself calls this: the rest is then settled as soon as it returns.
  /// Nothing is refunded.
  void mark_device_lost() noexcept;

  [[nodiscard]] ReleaseQueueState state() const noexcept;
  [[nodiscard]] ReleaseQueueCounters counters() const noexcept;

 private:
  class Core;

  std::shared_ptr<Core> core_;
};

}  // namespace memstrata
