// SPDX-License-Identifier: Apache-2.0
#include "mechanism/host/memory_refusal.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_cause.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata::host {
namespace {

/// The largest block that one address difference can span.
constexpr Bytes largest_block{
    static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max())};

/// The sentence of an error as a text that can be kept.
template <class E>
[[nodiscard]] ErrorText sentence(const E& error) noexcept {
  try {
    return ErrorText::copy(error.message());
  } catch (const std::exception&) {
    return "the backing refused";
  }
}

}  // namespace

MemoryError refusal(VirtualMemoryError error, Bytes bytes) noexcept {
  if (const auto* below = error.cause.target<MemoryError>()) {
    return {below->kind, below->cause};
  }
  if (const auto* os = std::get_if<Os>(&error.kind)) {
    return AllocationFailed{.tier = Tier::host,
                            .requested = bytes,
                            .reason = os->reason,
                            .call = os->operation,
                            .code = os->code};
  }
  const bool backend = std::holds_alternative<MappingBudget>(error.kind) ||
                       std::holds_alternative<DescriptorBudget>(error.kind) ||
                       std::holds_alternative<Delegated>(error.kind);
  ErrorText reason = sentence(error);
  MemoryError::Kind kind =
      backend ? MemoryError::Kind(AllocationFailed{
                    .tier = Tier::host, .requested = bytes, .reason = std::move(reason)})
              : MemoryError::Kind(InvalidRequest{
                    .tier = Tier::host, .requested = bytes, .reason = std::move(reason)});
  return {std::move(kind), ErrorCause::of(std::move(error))};
}

ErrorText explanation(const MemoryError& error) noexcept {
  return sentence(error);
}

Result<void> check_shape(Bytes bytes, Bytes alignment) {
  if (!is_power_of_two(alignment.value)) {
    return fail(malformed(bytes, "the alignment is not a power of two"));
  }
  const std::optional<Bytes> rounded = align_up(std::max(bytes, Bytes{1}), alignment);
  if (!rounded || *rounded > largest_block) {
    return fail(malformed(
        bytes,
        "rounding up to the alignment, which is a power of two, overflows the address space"));
  }
  return {};
}

}  // namespace memstrata::host
