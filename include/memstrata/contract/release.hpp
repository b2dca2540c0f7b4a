// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/identity.hpp"

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

[[nodiscard]] std::string_view to_string(AllocationReleaseState state) noexcept;

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
  };

  /// Any reason but a rejection by the queue, which carries the rejection.
  explicit constexpr QuarantineReason(Kind kind) noexcept : kind_(kind) {}

  [[nodiscard]] static constexpr QuarantineReason enqueue_rejected(
      DeferredEnqueueRejection why) noexcept {
    QuarantineReason reason(Kind::enqueue_rejected);
    reason.rejection_ = why;
    return reason;
  }

  [[nodiscard]] constexpr Kind kind() const noexcept { return kind_; }

  [[nodiscard]] constexpr std::optional<DeferredEnqueueRejection> rejection() const noexcept {
    return rejection_;
  }

  [[nodiscard]] friend constexpr bool operator==(QuarantineReason,
                                                 QuarantineReason) noexcept = default;
  /// A readable phrase; a rejection's name stands in parentheses.
  [[nodiscard]] std::string_view phrase() const noexcept;

 private:
  Kind kind_;
  std::optional<DeferredEnqueueRejection> rejection_;
};

/// What a release did. An eager mechanism unmaps nothing and says 0, which is never a sign of failure.
struct ReleaseAccounting {
  Bytes allocation_bytes;
  Bytes unmapped_bytes;
};

/// What is still owned after a release that did not complete.
struct ResidualOwnership {
  AllocationReleaseState state;
  QuarantineReason reason;
  Bytes retained_bytes;
  DeviceAddress address;
  Bytes alignment;
};

/// What a mechanism answers to `release`. It cannot express a state that only the layer above knows, such as
/// "live" or "released" residuals.
class MechanismRelease {
 public:
  /// Nothing of the allocation is left with the caller.
  struct Complete {
    Bytes unmapped;
  };

  /// Some of it is gone and some is still held.
  struct Partial {
    Bytes unmapped;
    Bytes retained;
    ErrorText why;
  };

  /// Nothing at all was changed; the only answer that may mean so.
  struct Unchanged {
    ErrorText why;
  };

  using Kind = std::variant<Complete, Partial, Unchanged>;

  [[nodiscard]] static MechanismRelease complete(Bytes unmapped) noexcept {
    return MechanismRelease(Complete{unmapped});
  }

  [[nodiscard]] static MechanismRelease partial(Bytes unmapped,
                                                Bytes retained,
                                                ErrorText why) noexcept {
    return MechanismRelease(
        Partial{.unmapped = unmapped, .retained = retained, .why = std::move(why)});
  }

  [[nodiscard]] static MechanismRelease unchanged(ErrorText why) noexcept {
    return MechanismRelease(Unchanged{std::move(why)});
  }

  [[nodiscard]] const Kind& kind() const noexcept { return kind_; }

  [[nodiscard]] bool is_complete() const noexcept {
    return std::holds_alternative<Complete>(kind_);
  }

  [[nodiscard]] bool is_unchanged() const noexcept {
    return std::holds_alternative<Unchanged>(kind_);
  }

  /// Bytes whose last mapping went away with this release; 0 if nothing was changed.
  [[nodiscard]] Bytes unmapped_bytes() const noexcept;

 private:
  explicit MechanismRelease(Kind kind) noexcept : kind_(std::move(kind)) {}

  Kind kind_;
};

/// The final outcome for whoever asked: the memory is released, or it is retained and the outcome says what.
class ReleaseOutcome {
 public:
  [[nodiscard]] static ReleaseOutcome released(ReleaseAccounting accounting) noexcept {
    return {accounting, std::nullopt};
  }

  [[nodiscard]] static ReleaseOutcome retained(ReleaseAccounting accounting,
                                               ResidualOwnership residual) noexcept {
    return {accounting, residual};
  }

  [[nodiscard]] AllocationReleaseState state() const noexcept {
    return residual_ ? residual_->state : AllocationReleaseState::released;
  }

  [[nodiscard]] const ReleaseAccounting& accounting() const noexcept { return accounting_; }

  [[nodiscard]] const std::optional<ResidualOwnership>& residual() const noexcept {
    return residual_;
  }

 private:
  ReleaseOutcome(ReleaseAccounting accounting, std::optional<ResidualOwnership> residual) noexcept
      : accounting_(accounting), residual_(residual) {}

  ReleaseAccounting accounting_;
  std::optional<ResidualOwnership> residual_;
};

/// One allocation in quarantine: charged, visible, never reused.
struct QuarantinedAllocation {
  AllocationIdentity identity;
  DeviceAddress address;
  Bytes bytes;
  Bytes alignment;
  AllocationReleaseState state;
  QuarantineReason reason;
  Bytes retained_bytes;
};

}  // namespace memstrata
