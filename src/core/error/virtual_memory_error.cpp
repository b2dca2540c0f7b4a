// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/virtual_memory_error.hpp"

#include <fmt/format.h>

#include <string>
#include <variant>

namespace memstrata {
namespace {

std::string sentence(const Misaligned& error) {
  if (error.value == Bytes{}) {
    return fmt::format(
        "{} of 0 bytes: the smallest is {}, one granule; ask granularity() instead of assuming it",
        error.what,
        error.rounded.value);
  }
  return fmt::format(
      "{} {} is not a multiple of the granule of {} bytes; the next legal value is {}; ask "
      "granularity() "
      "instead of assuming it",
      error.what,
      error.value.value,
      error.granularity.value,
      error.rounded.value);
}

std::string sentence(const TooLarge& error) {
  return fmt::format("{} {} does not fit into the address space; the largest that does is {}",
                     error.what,
                     error.value.value,
                     error.largest.value);
}

std::string sentence(const OutOfRange& error) {
  return fmt::format(
      "{} bytes at offset {} end {} bytes beyond the reservation of {}; reserve more (address "
      "space is free) "
      "or use less",
      error.length.value,
      error.offset.value,
      error.overrun.value,
      error.reserved.value);
}

std::string sentence(const AlreadyMapped& error) {
  return fmt::format("the granule at offset {} is committed or mapped already; decommit it first",
                     error.offset.value);
}

std::string sentence(const NotMapped& error) {
  return fmt::format(
      "the granule at offset {} is not committed, so it cannot be given back; nothing was changed",
      error.offset.value);
}

std::string sentence(const Os& error) {
  return fmt::format(
      "{} failed: {} (os error {})", error.operation, error.reason.view(), error.code);
}

std::string sentence(const MappingBudget& error) {
  return fmt::format(
      "kernel mappings: {} would be needed and {} is what we allow ourselves; raise {} (sysctl), "
      "use larger "
      "granules, or release isolated ranges",
      error.used,
      error.limit,
      error.setting);
}

std::string sentence(const DescriptorBudget& error) {
  return fmt::format(
      "file descriptors: {} would be open and {} is what we allow ourselves; raise {} (ulimit -n) "
      "or hold fewer "
      "shared prefixes",
      error.used,
      error.limit,
      error.setting);
}

std::string sentence(const PrefixRefused& error) {
  return fmt::format("{} refused: {}", error.operation, error.reason.view());
}

}  // namespace

std::string VirtualMemoryError::message() const {
  if (const auto* delegated = std::get_if<Delegated>(&kind)) {
    return fmt::format("{} failed: {}", delegated->operation, cause.message());
  }
  return std::visit(
      [](const auto& alternative) -> std::string {
        if constexpr (requires { sentence(alternative); }) {
          return sentence(alternative);
        } else {
          return {};
        }
      },
      kind);
}

}  // namespace memstrata
