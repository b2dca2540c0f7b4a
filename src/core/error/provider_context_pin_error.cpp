// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/provider_context_pin_error.hpp"

#include <fmt/format.h>

#include <string>
#include <variant>

#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"

namespace memstrata {
namespace {

std::string sentence(const ContextUnavailable& error) {
  return fmt::format(
      "provider context #{} of registry {} is {} and takes no more pins; do not queue work for it",
      error.context.serial(),
      error.context.registry(),
      to_string(error.lifecycle));
}

std::string sentence(const PinCountOverflow& error) {
  return fmt::format(
      "provider context #{} of registry {} has as many pins as can be counted; do not queue more "
      "work before some of it has ended",
      error.context.serial(),
      error.context.registry());
}

std::string sentence(const PinAllocationFailed& error) {
  return fmt::format(
      "there is no memory for a pin of provider context #{} of registry {}; do not queue work for "
      "it before memory is free again",
      error.context.serial(),
      error.context.registry());
}

}  // namespace

ProviderContextIdentity ProviderContextPinError::context() const noexcept {
  return std::visit([](const auto& error) { return error.context; }, kind);
}

std::string ProviderContextPinError::message() const {
  return std::visit([](const auto& error) { return sentence(error); }, kind);
}

}  // namespace memstrata
