// SPDX-License-Identifier: Apache-2.0
#include "memstrata/contract/release.hpp"

#include <string_view>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"

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
      switch (rejection_.value_or(DeferredEnqueueRejection::refused)) {
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
  }
  std::unreachable();
}

Bytes MechanismRelease::unmapped_bytes() const noexcept {
  if (const auto* complete = std::get_if<Complete>(&kind_)) {
    return complete->unmapped;
  }
  if (const auto* partial = std::get_if<Partial>(&kind_)) {
    return partial->unmapped;
  }
  return Bytes{};
}

}  // namespace memstrata
