// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_cause.hpp"
#include "memstrata/core/error/error_text.hpp"

namespace memstrata {

/// A length or offset is not a whole number of granules, or a length is zero. `rounded` is the next legal value
/// (one granule for zero).
struct Misaligned {
  const char* what;  ///< `offset`, `length` or `reservation length`.
  Bytes value;
  Bytes granularity;
  Bytes rounded;
};

/// The number is so large that rounding it up to a granule, or adding it to an address, would wrap.
struct TooLarge {
  const char* what;
  Bytes value;
  Bytes largest;  ///< The largest value that would be legal.
};

/// A range ends beyond its reservation.
struct OutOfRange {
  Bytes offset;
  Bytes length;
  Bytes reserved;
  Bytes overrun;  ///< How far beyond (saturated).
};

/// A range overlaps committed or shared granules, even in part. `offset` is the first such granule.
struct AlreadyMapped {
  Bytes offset;
};

/// A backing was asked to decommit or unmap what it has not committed or mapped. `offset` is the first such
/// granule. (The range interface treats this as success.)
struct NotMapped {
  Bytes offset;
};

/// The kernel or driver refused.
struct Os {
  const char* operation;
  ErrorText reason;
  int code;  ///< `errno` on the host.
};

/// A lower layer of ours refused; the cause is that layer's own error.
struct Delegated {
  const char* operation;
};

/// Our own budget of kernel mappings would be exceeded, before the kernel's limit starves the process.
struct MappingBudget {
  std::uint64_t used;   ///< Mappings that we hold, with the ones that this call needs.
  std::uint64_t limit;  ///< Mappings that we allow ourselves.
  const char* setting;  ///< The setting to raise: `vm.max_map_count`.
};

/// Our own budget of open file descriptors would be exceeded.
struct DescriptorBudget {
  std::uint64_t used;
  std::uint64_t limit;
  const char* setting;  ///< The setting to raise: `RLIMIT_NOFILE`.
};

/// A shared prefix cannot serve this call: it is foreign, not sealed, already sealed, or the range holds one.
struct PrefixRefused {
  const char* operation;
  ErrorText reason;
};

/// Why a reservation, commit, decommit or mapping was refused. Closed; movable, not copyable.
class VirtualMemoryError {
 public:
  using Kind = std::variant<Misaligned,
                            TooLarge,
                            OutOfRange,
                            AlreadyMapped,
                            NotMapped,
                            Os,
                            Delegated,
                            MappingBudget,
                            DescriptorBudget,
                            PrefixRefused>;

  template <class Alternative>
    requires std::constructible_from<Kind, Alternative&&>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload): an alternative is an error
  VirtualMemoryError(Alternative&& alternative) noexcept
      : kind(std::forward<Alternative>(alternative)) {}

  VirtualMemoryError(Kind alternative, ErrorCause below) noexcept
      : kind(std::move(alternative)), cause(std::move(below)) {}

  VirtualMemoryError(VirtualMemoryError&&) noexcept = default;
  VirtualMemoryError& operator=(VirtualMemoryError&&) noexcept = default;
  VirtualMemoryError(const VirtualMemoryError&) = delete;
  VirtualMemoryError& operator=(const VirtualMemoryError&) = delete;
  ~VirtualMemoryError() = default;

  /// A `Delegated` error with its cause, which has a `message()`.
  template <class E>
  [[nodiscard]] static VirtualMemoryError delegated(const char* operation, E cause) noexcept {
    return {Kind(Delegated{.operation = operation}), ErrorCause::of(std::move(cause))};
  }

  /// One sentence with the numbers and the remedy. `Delegated` renders as `<operation> failed: <cause>`.
  [[nodiscard]] std::string message() const;

  Kind kind;
  ErrorCause cause;
};

}  // namespace memstrata
