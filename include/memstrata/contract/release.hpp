// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/release_state.hpp"

namespace memstrata {

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
    return {accounting, std::nullopt, {}};
  }

  /// `why` is the mechanism's own explanation, where it gave one.
  [[nodiscard]] static ReleaseOutcome retained(ReleaseAccounting accounting,
                                               ResidualOwnership residual,
                                               ErrorText why = {}) noexcept {
    return {accounting, residual, std::move(why)};
  }

  [[nodiscard]] AllocationReleaseState state() const noexcept {
    return residual_ ? residual_->state : AllocationReleaseState::released;
  }

  [[nodiscard]] const ReleaseAccounting& accounting() const noexcept { return accounting_; }

  [[nodiscard]] const std::optional<ResidualOwnership>& residual() const noexcept {
    return residual_;
  }

  /// Whether nothing is left with anybody.
  [[nodiscard]] bool is_released() const noexcept { return !residual_.has_value(); }

  /// Why the mechanism did not complete, in its own words; empty where it was not asked or completed.
  [[nodiscard]] const ErrorText& failure() const noexcept { return failure_; }

 private:
  ReleaseOutcome(ReleaseAccounting accounting,
                 std::optional<ResidualOwnership> residual,
                 ErrorText why) noexcept
      : accounting_(accounting), residual_(residual), failure_(std::move(why)) {}

  ReleaseAccounting accounting_;
  std::optional<ResidualOwnership> residual_;
  ErrorText failure_;
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
