// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "memstrata/core/error/memory_error.hpp"

namespace memstrata {

/// Neither half of a pair is mapped: a private copy is a safe fallback.
struct PairRefused {
  MemoryError cause;
};

/// The second half failed and the first could not be unmapped: its allocation holds shared memory that nobody
/// expects there and must be released. A private copy into it is forbidden.
struct PairRollbackFailed {
  MemoryError cause;     ///< Why the second half failed.
  MemoryError rollback;  ///< Why the first half is still there.
};

/// Why the prefixes of keys and values were not both mapped. Closed; movable only.
class SharedPrefixPairError {
 public:
  using Kind = std::variant<PairRefused, PairRollbackFailed>;

  // NOLINTBEGIN(google-explicit-constructor): each alternative is an error
  SharedPrefixPairError(PairRefused error) noexcept : kind(std::move(error)) {}

  SharedPrefixPairError(PairRollbackFailed error) noexcept : kind(std::move(error)) {}

  // NOLINTEND(google-explicit-constructor)

  /// Whether nothing was kept, so that the caller may fill private memory at the same place.
  [[nodiscard]] bool is_fallback_safe() const noexcept {
    return std::holds_alternative<PairRefused>(kind);
  }

  /// One sentence with both causes where there are two.
  [[nodiscard]] std::string message() const;

  Kind kind;
};

}  // namespace memstrata
