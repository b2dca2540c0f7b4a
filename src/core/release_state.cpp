// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/release_state.hpp"

#include <string_view>
#include <utility>

namespace memstrata {

std::string_view to_string(AllocationReleaseState state) noexcept {
  switch (state) {
    case AllocationReleaseState::live:
      return "live";
    case AllocationReleaseState::queued:
      return "queued";
    case AllocationReleaseState::partially_unmapped:
      return "partially unmapped";
    case AllocationReleaseState::released:
      return "released";
    case AllocationReleaseState::device_lost:
      return "device lost";
    case AllocationReleaseState::quarantined:
      return "quarantined";
  }
  std::unreachable();
}

std::string_view to_string(AllocationReleaseEvent event) noexcept {
  switch (event) {
    case AllocationReleaseEvent::prepare:
      return "prepare";
    case AllocationReleaseEvent::drop_owner:
      return "drop_owner";
    case AllocationReleaseEvent::complete:
      return "complete";
    case AllocationReleaseEvent::stop_midway:
      return "stop_midway";
    case AllocationReleaseEvent::refuse:
      return "refuse";
    case AllocationReleaseEvent::abort_release:
      return "abort_release";
    case AllocationReleaseEvent::abandon:
      return "abandon";
    case AllocationReleaseEvent::reject:
      return "reject";
    case AllocationReleaseEvent::fail_fence:
      return "fail_fence";
    case AllocationReleaseEvent::lose_device:
      return "lose_device";
    case AllocationReleaseEvent::reclaim:
      return "reclaim";
    case AllocationReleaseEvent::reconcile:
      return "reconcile";
    case AllocationReleaseEvent::confirm_context_terminated:
      return "confirm_context_terminated";
  }
  std::unreachable();
}

std::string_view to_string(DeferredEnqueueRejection rejection) noexcept {
  switch (rejection) {
    case DeferredEnqueueRejection::closed:
      return "closed";
    case DeferredEnqueueRejection::full:
      return "full";
    case DeferredEnqueueRejection::device_lost:
      return "device lost";
    case DeferredEnqueueRejection::refused:
      return "refused";
  }
  std::unreachable();
}

std::string_view QuarantineReason::phrase() const noexcept {
  switch (kind_) {
    case Kind::abandoned_request:
      return "a prepared release was destroyed without being executed";
    case Kind::owner_dropped:
      return "the owner was destroyed without a release";
    case Kind::enqueue_rejected:
      switch (rejection().value_or(DeferredEnqueueRejection::refused)) {
        case DeferredEnqueueRejection::closed:
          return "the deferred release queue rejected it (closed)";
        case DeferredEnqueueRejection::full:
          return "the deferred release queue rejected it (full)";
        case DeferredEnqueueRejection::device_lost:
          return "the deferred release queue rejected it (device lost)";
        case DeferredEnqueueRejection::refused:
          return "the deferred release queue rejected it (refused)";
      }
      std::unreachable();
    case Kind::device_lost:
      return "the device was lost";
    case Kind::mechanism_terminated:
      return "the mechanism was terminated";
    case Kind::partial_release:
      return "the allocator stopped midway";
    case Kind::allocator_refused:
      return "the allocator refused after the release was recorded";
    case Kind::release_aborted:
      return "the allocator's release did not return normally";
    case Kind::fence_failed:
      return "the fence that guarded the release failed";
  }
  std::unreachable();
}

}  // namespace memstrata
