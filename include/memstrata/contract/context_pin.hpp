// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "memstrata/core/error/provider_context_pin_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// A live claim on one provider context. It does not keep a dying context healthy: its effect is that teardown
/// sees that work is still pending. Destroying it releases the claim; it cannot be extended or passed on by copy.
/// Thread-compatible; may be destroyed on any thread.
class ProviderContextPin {
 public:
  ProviderContextPin() = default;
  ProviderContextPin(const ProviderContextPin&) = delete;
  ProviderContextPin& operator=(const ProviderContextPin&) = delete;
  ProviderContextPin(ProviderContextPin&&) = delete;
  ProviderContextPin& operator=(ProviderContextPin&&) = delete;
  virtual ~ProviderContextPin() = default;

  [[nodiscard]] virtual ProviderContextIdentity context() const noexcept = 0;
};

/// Gives pins of one provider context to mechanisms that queue releases but cannot depend on whoever manages the
/// context. Thread-safe.
class ProviderContextPinSource {
 public:
  ProviderContextPinSource() = default;
  ProviderContextPinSource(const ProviderContextPinSource&) = delete;
  ProviderContextPinSource& operator=(const ProviderContextPinSource&) = delete;
  ProviderContextPinSource(ProviderContextPinSource&&) = delete;
  ProviderContextPinSource& operator=(ProviderContextPinSource&&) = delete;
  virtual ~ProviderContextPinSource() = default;

  [[nodiscard]] virtual ProviderContextIdentity context() const noexcept = 0;

  /// One more claim. On failure nothing is claimed, and what needed the pin must not be queued.
  [[nodiscard]] virtual Result<std::unique_ptr<ProviderContextPin>, ProviderContextPinError>
  pin() = 0;
};

}  // namespace memstrata
