// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/memory_error.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <variant>

#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata {
namespace {

std::string sentence(const TierExhausted& error) {
  return fmt::format(
      "{0} memory exhausted: {1} asked for {2} bytes, {3} of {4} are used and {5} remain; end a "
      "session, ask "
      "for less, or raise the {0} limit",
      to_string(error.tier),
      to_string(error.role),
      error.requested.value,
      error.used.value,
      error.limit.value,
      error.available.value);
}

std::string sentence(const InvalidRequest& error) {
  return fmt::format("invalid request for {} bytes of {} memory: {}",
                     error.requested.value,
                     to_string(error.tier),
                     error.reason.view());
}

std::string sentence(const AllocationFailed& error) {
  const std::string_view call = error.call;
  const std::string origin =
      call.empty() ? std::string() : fmt::format(" ({} returned code {})", call, error.code);
  return fmt::format(
      "the backend refused {} bytes of {} memory although the budget allows them: {}{}; this is "
      "not a refusal "
      "of the governor, free memory of the machine or its limits are short",
      error.requested.value,
      to_string(error.tier),
      error.reason.view(),
      origin);
}

std::string sentence(const CapacityUnavailable& error) {
  return fmt::format("{} capacity unavailable: {} asked for {} bytes and {} can be had: {}",
                     to_string(error.tier),
                     to_string(error.role),
                     error.requested.value,
                     error.available.value,
                     error.detail.view());
}

}  // namespace

std::string MemoryError::message() const {
  return std::visit([](const auto& alternative) { return sentence(alternative); }, kind);
}

bool MemoryError::is_capacity_error() const noexcept {
  return std::holds_alternative<TierExhausted>(kind) ||
         std::holds_alternative<CapacityUnavailable>(kind);
}

}  // namespace memstrata
