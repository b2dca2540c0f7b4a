// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/virtual_buffer_error.hpp"

#include <fmt/format.h>

#include <string>
#include <variant>

#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata {
namespace {

std::string text(MemoryAuthorityId id) {
  return fmt::format("{}:{} authority {}", to_string(id.device.tier), id.device.index, id.serial);
}

std::string sentence(const VirtualMemoryError& error) {
  return error.message();
}

std::string sentence(const MemoryError& error) {
  return error.message();
}

std::string sentence(const AuthorityMismatch& error) {
  return fmt::format(
      "the backing accounts its memory to {} but the governor is {}; both must be the same, or "
      "bytes are charged "
      "twice or not at all",
      text(error.backing),
      text(error.governor));
}

std::string sentence(const OverCapacity& error) {
  return fmt::format(
      "{} bytes are more than the {} that the buffer reserved; a reserved range cannot be "
      "extended, construct the "
      "buffer with a larger capacity",
      error.requested.value,
      error.capacity.value);
}

}  // namespace

std::string VirtualBufferError::message() const {
  return std::visit([](const auto& alternative) { return sentence(alternative); }, kind);
}

}  // namespace memstrata
