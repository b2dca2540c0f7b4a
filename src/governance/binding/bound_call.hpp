// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "governance/binding/allocation_record.hpp"
#include "governance/binding/mechanism_record.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/mechanism_ref.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"

namespace memstrata::detail {

/// CallbackFailed with the text of the exception that is being handled.
[[nodiscard]] BindingError thrown_by(const char* callback) noexcept;

/// A call of the allocator or of a capability: an active operation of the mechanism until it ends.
class BoundCall {
 public:
  /// Errors: the lifecycle.
  [[nodiscard]] static Result<BoundCall, BindingError> begin(const MechanismRef& mechanism,
                                                             const char* operation) {
    if (const auto refused = mechanism->gate().begin_call()) [[unlikely]] {
      return fail(mechanism->refusal(*refused, operation));
    }
    return BoundCall(*mechanism, operation);
  }

  BoundCall(BoundCall&& other) noexcept
      : mechanism_(std::exchange(other.mechanism_, nullptr)), operation_(other.operation_) {}

  BoundCall(const BoundCall&) = delete;
  BoundCall& operator=(const BoundCall&) = delete;
  BoundCall& operator=(BoundCall&&) = delete;

  ~BoundCall() {
    if (mechanism_ != nullptr) {
      mechanism_->gate().end_call();
    }
  }

  /// Runs foreign code and gives its result, with a `MemoryError` as a `BindingError`, or CallbackFailed.
  template <class Callback>
  [[nodiscard]] auto run(Callback&& callback) const
      -> Result<typename std::invoke_result_t<Callback>::value_type, BindingError> {
    try {
      auto result = std::invoke(std::forward<Callback>(callback));
      if (!result) {
        return fail(BindingError(std::move(result).error()));
      }
      if constexpr (std::is_void_v<typename std::invoke_result_t<Callback>::value_type>) {
        return {};
      } else {
        return *std::move(result);
      }
    } catch (...) {
      return fail(thrown());
    }
  }

  /// What the exception that is being handled comes to.
  [[nodiscard]] BindingError thrown() const noexcept { return thrown_by(operation_); }

  /// The call has made the allocation that `record` was opened for, and ends.
  void publish(AllocationRecord& record, DeviceAddress address) noexcept {
    std::exchange(mechanism_, nullptr)->publish(record, address);
  }

 private:
  BoundCall(MechanismRecord& mechanism, const char* operation) noexcept
      : mechanism_(&mechanism), operation_(operation) {}

  MechanismRecord* mechanism_;
  const char* operation_;
};

/// Keeps one allocation from being released while a call uses it.
class BoundPin {
 public:
  BoundPin(MechanismRecord& mechanism, AllocationRecord& record) noexcept
      : mechanism_(&mechanism), record_(&record) {}

  BoundPin(BoundPin&& other) noexcept
      : mechanism_(other.mechanism_), record_(std::exchange(other.record_, nullptr)) {}

  BoundPin(const BoundPin&) = delete;
  BoundPin& operator=(const BoundPin&) = delete;
  BoundPin& operator=(BoundPin&&) = delete;

  ~BoundPin() {
    if (record_ != nullptr) {
      mechanism_->unpin(*record_);
    }
  }

 private:
  MechanismRecord* mechanism_;
  AllocationRecord* record_;
};

/// What an owner refers to, for the parts of the library that are its friends.
struct OwnedRecord {
  MechanismRecord* mechanism;
  AllocationRecord* record;
};

/// Looks into owners for the capabilities. An empty owner stops the program.
struct OwnedAccess {
  [[nodiscard]] static OwnedRecord of(const OwningAllocation& allocation) noexcept {
    allocation.verify_owns();
    return {.mechanism = allocation.mechanism_, .record = allocation.record_};
  }
};

/// Pins the allocation of an owner for a call of a binding. Errors: BindingMismatch; StaleAllocation.
[[nodiscard]] Result<BoundPin, BindingError> pin_owned(const MechanismRef& mechanism,
                                                       std::uint64_t binding,
                                                       OwnedRecord owned);

/// The refusal of `range` if it ends beyond an allocation of `bytes`.
[[nodiscard]] Result<void, BindingError> check_range(ByteRange range, Bytes bytes);

}  // namespace memstrata::detail
