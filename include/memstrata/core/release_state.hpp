// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace memstrata {

/// Where the memory of one allocation is, from the owner's point of view. "Terminal": no further change without
/// help from outside.
enum class AllocationReleaseState : std::uint8_t {
  live,
  queued,
  partially_unmapped,
  released,
  device_lost,
  quarantined,
};

/// Whether somebody still owns bytes in this state.
[[nodiscard]] constexpr bool retains_ownership(AllocationReleaseState state) noexcept {
  return state != AllocationReleaseState::released;
}

/// Whether the allocator may still be called for this allocation.
[[nodiscard]] constexpr bool permits_allocator_call(AllocationReleaseState state) noexcept {
  return state == AllocationReleaseState::live || state == AllocationReleaseState::queued;
}

[[nodiscard]] constexpr bool is_terminal(AllocationReleaseState state) noexcept {
  return !permits_allocator_call(state);
}

/// Whether bytes are held that only help from outside can free.
[[nodiscard]] constexpr bool is_quarantine(AllocationReleaseState state) noexcept {
  return is_terminal(state) && retains_ownership(state);
}

[[nodiscard]] std::string_view to_string(AllocationReleaseState state) noexcept;

/// What can happen to an allocation that is on the books of a binding registry.
enum class AllocationReleaseEvent : std::uint8_t {
  prepare,        ///< Its final ownership is detached for release.
  drop_owner,     ///< The owner is destroyed without a release.
  complete,       ///< The allocator released it.
  stop_midway,    ///< The allocator released a part.
  refuse,         ///< The allocator answered that it changed nothing.
  abort_release,  ///< The allocator's release threw.
  abandon,        ///< The prepared release is destroyed.
  reject,         ///< A queue did not take the prepared release.
  fail_fence,     ///< The fence that guards it failed.
  lose_device,    ///< The device is lost before the allocator is called.
  reclaim,        ///< A release is prepared again; only if the allocator was never called.
  reconcile,      ///< Somebody proves that the memory is gone.
  confirm_context_terminated,
};

/// The state after `event`, or nothing if `state` does not allow it.
[[nodiscard]] constexpr std::optional<AllocationReleaseState> next(
    AllocationReleaseState state,
    AllocationReleaseEvent event) noexcept {
  using State = AllocationReleaseState;
  const auto from = [state](State wanted, State then) {
    return state == wanted ? std::optional(then) : std::nullopt;
  };
  switch (event) {
    case AllocationReleaseEvent::prepare:
      return from(State::live, State::queued);
    case AllocationReleaseEvent::drop_owner:
      return from(State::live, State::quarantined);
    case AllocationReleaseEvent::complete:
      return from(State::queued, State::released);
    case AllocationReleaseEvent::stop_midway:
      return from(State::queued, State::partially_unmapped);
    case AllocationReleaseEvent::refuse:
    case AllocationReleaseEvent::abort_release:
    case AllocationReleaseEvent::abandon:
    case AllocationReleaseEvent::reject:
    case AllocationReleaseEvent::fail_fence:
      return from(State::queued, State::quarantined);
    case AllocationReleaseEvent::lose_device:
      return from(State::queued, State::device_lost);
    case AllocationReleaseEvent::reclaim:
      return from(State::quarantined, State::queued);
    case AllocationReleaseEvent::reconcile:
      return is_quarantine(state) ? std::optional(State::released) : std::nullopt;
    case AllocationReleaseEvent::confirm_context_terminated:
      return state == State::live || is_quarantine(state) ? std::optional(State::released)
                                                          : std::nullopt;
  }
  std::unreachable();
}

[[nodiscard]] std::string_view to_string(AllocationReleaseEvent event) noexcept;

/// Why a deferred release was not accepted.
enum class DeferredEnqueueRejection : std::uint8_t { closed, full, device_lost, refused };
[[nodiscard]] std::string_view to_string(DeferredEnqueueRejection rejection) noexcept;

/// Why bytes are in quarantine.
class QuarantineReason {
 public:
  enum class Kind : std::uint8_t {
    abandoned_request,
    owner_dropped,
    enqueue_rejected,
    device_lost,
    mechanism_terminated,
    partial_release,
    allocator_refused,
    release_aborted,  ///< The allocator's release did not return: foreign code threw.
    fence_failed,     ///< The fence that guarded the release failed, so that it was not executed.
  };

  /// Any reason but a rejection by the queue, which carries the rejection.
  explicit constexpr QuarantineReason(Kind kind) noexcept : kind_(kind) {}

  [[nodiscard]] static constexpr QuarantineReason enqueue_rejected(
      DeferredEnqueueRejection why) noexcept {
    QuarantineReason reason(Kind::enqueue_rejected);
    reason.rejection_ = static_cast<std::uint8_t>(why);
    return reason;
  }

  [[nodiscard]] constexpr Kind kind() const noexcept { return kind_; }

  [[nodiscard]] constexpr std::optional<DeferredEnqueueRejection> rejection() const noexcept {
    return rejection_ != no_rejection
               ? std::optional(static_cast<DeferredEnqueueRejection>(rejection_))
               : std::nullopt;
  }

  [[nodiscard]] friend constexpr bool operator==(QuarantineReason,
                                                 QuarantineReason) noexcept = default;

  /// Whether the allocator was never called for the record, so that a release may still be prepared.
  [[nodiscard]] constexpr bool permits_reclaim() const noexcept {
    return kind_ == Kind::abandoned_request || kind_ == Kind::owner_dropped ||
           kind_ == Kind::enqueue_rejected || kind_ == Kind::fence_failed;
  }

  /// A readable phrase; a rejection's name stands in parentheses.
  [[nodiscard]] std::string_view phrase() const noexcept;

 private:
  static constexpr std::uint8_t no_rejection = 0xFF;

  Kind kind_;
  std::uint8_t rejection_ = no_rejection;  // an optional would take two bytes of every record
};

/// Why a prepared release ends without a call of its allocator, as whoever holds it may say: the other reasons are
/// what an allocator answered, or what only an owner can do.
class UnexecutedReason {
 public:
  [[nodiscard]] static constexpr UnexecutedReason abandoned() noexcept {
    return UnexecutedReason(QuarantineReason(QuarantineReason::Kind::abandoned_request));
  }

  [[nodiscard]] static constexpr UnexecutedReason fence_failed() noexcept {
    return UnexecutedReason(QuarantineReason(QuarantineReason::Kind::fence_failed));
  }

  [[nodiscard]] static constexpr UnexecutedReason enqueue_rejected(
      DeferredEnqueueRejection why) noexcept {
    return UnexecutedReason(QuarantineReason::enqueue_rejected(why));
  }

  [[nodiscard]] constexpr QuarantineReason reason() const noexcept { return reason_; }

  /// What happens to the release. A queue that rejects it because of a lost device knows of a loss that the registry
  /// may not have heard of yet: no call may follow.
  [[nodiscard]] constexpr AllocationReleaseEvent event() const noexcept {
    if (const auto rejection = reason_.rejection()) {
      return rejection == DeferredEnqueueRejection::device_lost
                 ? AllocationReleaseEvent::lose_device
                 : AllocationReleaseEvent::reject;
    }
    return reason_.kind() == QuarantineReason::Kind::fence_failed
               ? AllocationReleaseEvent::fail_fence
               : AllocationReleaseEvent::abandon;
  }

 private:
  explicit constexpr UnexecutedReason(QuarantineReason reason) noexcept : reason_(reason) {}

  QuarantineReason reason_;
};

}  // namespace memstrata
