// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>

#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"

namespace memstrata {

/// The context is retiring, lost, terminated or removed.
struct ContextUnavailable {
  ProviderContextIdentity context;
  ProviderContextLifecycle lifecycle;
};

/// The counter of pins cannot represent one more.
struct PinCountOverflow {
  ProviderContextIdentity context;
};

/// There is no memory for the pin.
struct PinAllocationFailed {
  ProviderContextIdentity context;
};

/// Why a provider context was not pinned. What needed the pin must not be queued. Closed.
class ProviderContextPinError {
 public:
  using Kind = std::variant<ContextUnavailable, PinCountOverflow, PinAllocationFailed>;

  // NOLINTBEGIN(google-explicit-constructor): each alternative is an error
  ProviderContextPinError(ContextUnavailable error) noexcept : kind(error) {}

  ProviderContextPinError(PinCountOverflow error) noexcept : kind(error) {}

  ProviderContextPinError(PinAllocationFailed error) noexcept : kind(error) {}

  // NOLINTEND(google-explicit-constructor)

  /// The context that every alternative names.
  [[nodiscard]] ProviderContextIdentity context() const noexcept;
  /// One sentence: what was refused, for which context, what to do.
  [[nodiscard]] std::string message() const;

  Kind kind;
};

}  // namespace memstrata
