// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <string>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_cause.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata {

/// We declined: not enough room in the tier, and nobody gave enough back. `used` is before the request and
/// includes growth that was promised; `available` = `limit` - `used`, or 0.
struct TierExhausted {
  Tier tier;
  MemoryRole role;
  Bytes requested;
  Bytes used;
  Bytes limit;
  Bytes available;
};

/// The request makes no sense: it cannot be represented or is malformed. Asking again cannot help.
struct InvalidRequest {
  Tier tier;
  Bytes requested;
  ErrorText reason;
};

/// The request is sound and the budget allows it, yet the system or the driver refused.
struct AllocationFailed {
  Tier tier;
  Bytes requested;
  ErrorText reason;       ///< The backend's own explanation.
  const char* call = "";  ///< The function that failed, or empty.
  int code = 0;           ///< Its raw code (`errno` on the host), or 0.
};

/// A transfer of capacity or a backing claim fell short. Where another error caused it, that one is the cause.
struct CapacityUnavailable {
  Tier tier;
  MemoryRole role;
  Bytes requested;
  Bytes available;
  ErrorText detail;
};

/// Why memory was refused. Closed: callers match on `kind`, never on text. Movable, not copyable.
class MemoryError {
 public:
  using Kind = std::variant<TierExhausted, InvalidRequest, AllocationFailed, CapacityUnavailable>;

  template <class Alternative>
    requires std::constructible_from<Kind, Alternative&&>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload): an alternative is an error
  MemoryError(Alternative&& alternative) noexcept : kind(std::forward<Alternative>(alternative)) {}

  MemoryError(Kind alternative, ErrorCause below) noexcept
      : kind(std::move(alternative)), cause(std::move(below)) {}

  MemoryError(MemoryError&&) noexcept = default;
  MemoryError& operator=(MemoryError&&) noexcept = default;
  MemoryError(const MemoryError&) = delete;
  MemoryError& operator=(const MemoryError&) = delete;
  ~MemoryError() = default;

  /// One sentence: what was refused, the numbers, what to do. The cause is not folded in.
  [[nodiscard]] std::string message() const;
  /// Whether one more round of pressure could help (the tier is full or a transfer fell short).
  [[nodiscard]] bool is_capacity_error() const noexcept;

  Kind kind;
  ErrorCause cause;
};

}  // namespace memstrata
