// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"

namespace memstrata {

/// The backing accounts to other books than the governor that the buffer was given.
struct AuthorityMismatch {
  MemoryAuthorityId backing;
  MemoryAuthorityId governor;
};

/// The buffer was asked to grow beyond the address range that it reserved.
struct OverCapacity {
  Bytes requested;
  Bytes capacity;
};

/// Why a buffer refused: the memory below it, the budget above it, or the buffer itself. Closed; movable only.
class VirtualBufferError {
 public:
  using Kind = std::variant<VirtualMemoryError, MemoryError, AuthorityMismatch, OverCapacity>;

  // NOLINTBEGIN(google-explicit-constructor): each alternative is an error
  VirtualBufferError(VirtualMemoryError error) noexcept : kind(std::move(error)) {}

  VirtualBufferError(MemoryError error) noexcept : kind(std::move(error)) {}

  VirtualBufferError(AuthorityMismatch error) noexcept : kind(error) {}

  VirtualBufferError(OverCapacity error) noexcept : kind(error) {}

  // NOLINTEND(google-explicit-constructor)

  VirtualBufferError(VirtualBufferError&&) noexcept = default;
  VirtualBufferError& operator=(VirtualBufferError&&) noexcept = default;
  VirtualBufferError(const VirtualBufferError&) = delete;
  VirtualBufferError& operator=(const VirtualBufferError&) = delete;
  ~VirtualBufferError() = default;

  /// The memory error's or budget error's own sentence, unchanged, or the buffer's.
  [[nodiscard]] std::string message() const;

  Kind kind;
};

}  // namespace memstrata
