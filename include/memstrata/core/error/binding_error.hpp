// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"

namespace memstrata {

/// The registry's identities are used up. No later call of the registry that needs one can succeed.
struct IdentityExhausted {};

/// What kind of handle a registry was given.
enum class RegisteredKind : std::uint8_t { provider_context, authority, mechanism, allocation };

/// The handle was issued by another registry.
struct ForeignRegistry {
  RegisteredKind kind;
};

/// What did not stand on the same device as the provider context.
enum class DeviceSubject : std::uint8_t { authority, allocator };

/// The parts of a registration belong to different devices.
struct DeviceMismatch {
  DeviceSubject subject;
  DeviceKey expected;  ///< Of the provider context.
  DeviceKey actual;
};

/// The provider context was removed.
struct UnregisteredProviderContext {
  ProviderContextIdentity context;
};

/// The authority was removed.
struct UnregisteredAuthority {
  AuthorityIdentity authority;
};

/// The mechanism was removed.
struct UnregisteredMechanism {
  MechanismIdentity mechanism;
};

/// Mechanisms or pins still use the provider context.
struct ProviderContextInUse {
  ProviderContextIdentity context;
  std::uint64_t mechanisms;
  std::uint64_t pins;
};

/// Mechanisms still use the authority.
struct AuthorityInUse {
  AuthorityIdentity authority;
  std::uint64_t mechanisms;
};

/// No mechanism is selected for the device.
struct NoSelectedMechanism {
  DeviceKey device;
};

/// The mechanism's lifecycle does not allow the operation, or something still keeps it.
struct InactiveMechanism {
  MechanismIdentity mechanism;
  MechanismLifecycle lifecycle;
  const char* operation;
};

/// The provider context's lifecycle does not allow the operation.
struct InactiveProviderContext {
  ProviderContextIdentity context;
  ProviderContextLifecycle lifecycle;
  const char* operation;
};

/// The device was lost; no call reaches its mechanisms any more.
struct DeviceLost {
  DeviceKey device;
  ErrorText reason;  ///< As it was given when the device was invalidated.
};

/// The allocation, view or prefix belongs to another binding.
struct BindingMismatch {
  BindingId expected;  ///< Of the binding that was asked.
  BindingId actual;    ///< Of what it was given.
};

/// No live allocation has this identity: it was released, is being released, or is in quarantine.
struct StaleAllocation {
  AllocationIdentity allocation;
};

/// Views of the allocation, or calls that use it, are still there.
struct OutstandingViews {
  AllocationIdentity allocation;
  std::uint64_t views;
};

/// The mechanism still owns memory that could not be released.
struct QuarantinedOwnership {
  MechanismIdentity mechanism;
  std::uint64_t count;
};

/// A range ends beyond its allocation; `end` is the largest number if offset and size together wrap.
struct ViewOutOfBounds {
  Bytes offset;
  Bytes end;
  Bytes allocation_bytes;
};

/// Calls, queued releases or pins of the provider context have not ended.
struct ContextNotQuiescent {
  ProviderContextIdentity context;
  std::uint64_t active_operations;
};

/// A record in quarantine cannot be prepared for release again, because its allocator was called already.
struct NotReclaimable {
  AllocationIdentity allocation;
  AllocationReleaseState state;
  QuarantineReason reason;
};

/// A callback threw. What it had done before is its own affair; the stack's books are as before the call.
struct CallbackFailed {
  const char* callback;
  ErrorText reason;
};

/// A release queue still had work when the deadline passed.
struct QueueNotIdle {
  std::uint64_t pending;
  bool
      called_from_queue;  ///< The caller is itself being run by the queue, which cannot become idle under it.
};

/// Why a registry, a binding or what they issued refused. Closed; movable, not copyable.
///
/// Every alternative but `MemoryError` and `CallbackFailed` means that no call reached an allocator.
class BindingError {
 public:
  using Kind = std::variant<IdentityExhausted,
                            ForeignRegistry,
                            DeviceMismatch,
                            UnregisteredProviderContext,
                            UnregisteredAuthority,
                            UnregisteredMechanism,
                            ProviderContextInUse,
                            AuthorityInUse,
                            NoSelectedMechanism,
                            InactiveMechanism,
                            InactiveProviderContext,
                            DeviceLost,
                            BindingMismatch,
                            StaleAllocation,
                            OutstandingViews,
                            QuarantinedOwnership,
                            ViewOutOfBounds,
                            ContextNotQuiescent,
                            NotReclaimable,
                            CallbackFailed,
                            QueueNotIdle,
                            MemoryError>;

  template <class Alternative>
    requires std::constructible_from<Kind, Alternative&&>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload): an alternative is an error
  BindingError(Alternative&& alternative) noexcept : kind(std::forward<Alternative>(alternative)) {}

  BindingError(BindingError&&) noexcept = default;
  BindingError& operator=(BindingError&&) noexcept = default;
  BindingError(const BindingError&) = delete;
  BindingError& operator=(const BindingError&) = delete;
  ~BindingError() = default;

  /// One sentence: what was refused, the numbers and identities, what to do. A `MemoryError` says its own.
  [[nodiscard]] std::string message() const;

  /// The alternative, or null.
  template <class Alternative>
  [[nodiscard]] const Alternative* as() const noexcept {
    return std::get_if<Alternative>(&kind);
  }

  Kind kind;
};

}  // namespace memstrata
