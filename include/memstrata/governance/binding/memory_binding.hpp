// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/bound_capability.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/binding/mechanism_ref.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"

namespace memstrata {

/// Says that the caller vouches for what cannot be checked: the memory is live, was made by this very mechanism with
/// exactly this size and alignment, nobody else owns or records it, and the ordinary release can release it.
struct AttestSoleOwner {
  explicit AttestSoleOwner() = default;
};

inline constexpr AttestSoleOwner attest_sole_owner{};

namespace detail {

/// A view operation in flight: the allocation is pinned and the mechanism has an active operation until it ends.
class ViewUse {
 public:
  ViewUse(MechanismRecord& mechanism, AllocationRecord& record) noexcept
      : mechanism_(mechanism), record_(record) {}

  ViewUse(const ViewUse&) = delete;
  ViewUse& operator=(const ViewUse&) = delete;
  ViewUse(ViewUse&&) = delete;
  ViewUse& operator=(ViewUse&&) = delete;

  ~ViewUse() { end(mechanism_, record_); }

 private:
  static void end(MechanismRecord& mechanism, AllocationRecord& record) noexcept;

  MechanismRecord& mechanism_;
  AllocationRecord& record_;
};

}  // namespace detail

/// The right to allocate through one mechanism, as one authority over what it allocates: nothing of one binding is
/// accepted by another, even of the same mechanism. It keeps allocator, authority and context alive. Copies are the
/// same binding. 16 bytes. Thread-safe.
class MemoryBinding {
 public:
  [[nodiscard]] BindingIdentity identity() const noexcept;

  /// Allocates `bytes` at a multiple of `alignment`, a power of two, through the mechanism, with no lock held. If
  /// the device is lost meanwhile, the allocation is recorded and returned all the same.
  /// Errors: InactiveMechanism, DeviceLost, IdentityExhausted (all before the allocator is called); MemoryError;
  /// CallbackFailed if the allocator threw. After an error nothing is owned and nothing recorded.
  [[nodiscard]] Result<OwningAllocation, BindingError> allocate(Bytes bytes, Bytes alignment) const;

  /// Puts memory on the books that the mechanism made through a call of its own. Errors: as above; the memory then
  /// stays with the caller.
  [[nodiscard]] Result<OwningAllocation, BindingError> adopt_allocation(
      const AllocationSpan& allocation,
      AttestSoleOwner attest) const;

  /// As the owner's own `prepare_release` and `release_now`, for a caller that must not release what another binding
  /// made. Errors: DeviceLost or InactiveMechanism; BindingMismatch; then those of the owner. The owner keeps the
  /// allocation after an error.
  [[nodiscard]] Result<PreparedAllocationRelease, BindingError> prepare_release(
      OwningAllocation& allocation) const;
  [[nodiscard]] Result<ReleaseOutcome, BindingError> release_now(
      OwningAllocation& allocation) const;

  /// The bound capability, or nothing if the mechanism does not have it. Errors: InactiveMechanism, DeviceLost.
  [[nodiscard]] Result<std::optional<BoundVirtualBacking>, BindingError> virtual_backing() const;
  [[nodiscard]] Result<std::optional<BoundSharedMapping>, BindingError> shared_mapping() const;

  /// Runs `operation(ValidatedMemoryView)` with no lock held and returns its result. The allocation cannot be
  /// released while it runs, not even if the view ends. Errors, in this order: InactiveMechanism or DeviceLost;
  /// BindingMismatch; StaleAllocation; the operation is then not run. CallbackFailed if it threw.
  template <std::invocable<ValidatedMemoryView> Operation>
  [[nodiscard]] auto with_view(const OwnedView& view, Operation&& operation) const
      -> Result<std::invoke_result_t<Operation, ValidatedMemoryView>, BindingError> {
    if (!begin_use(view)) [[unlikely]] {
      return fail(refusal_of_use(view));
    }
    const detail::ViewUse use(*view.mechanism_, *view.record_);
    const ValidatedMemoryView part{.address = address_of(view), .bytes = view.size()};
    try {
      if constexpr (std::is_void_v<std::invoke_result_t<Operation, ValidatedMemoryView>>) {
        std::invoke(std::forward<Operation>(operation), part);
        return {};
      } else {
        return std::invoke(std::forward<Operation>(operation), part);
      }
    } catch (const std::exception& thrown) {
      return fail(BindingError(
          CallbackFailed{.callback = "view operation", .reason = ErrorText::copy(thrown.what())}));
    } catch (...) {
      return fail(BindingError(
          CallbackFailed{.callback = "view operation", .reason = "an exception of unknown type"}));
    }
  }

  /// What the mechanism has in quarantine, of all its bindings. Throws std::bad_alloc, as any list by value.
  [[nodiscard]] QuarantinedAllocations quarantined() const;
  [[nodiscard]] MechanismSnapshot mechanism_snapshot() const noexcept;

 private:
  friend class BindingRegistry;

  MemoryBinding(detail::MechanismRef mechanism, std::uint64_t serial) noexcept
      : mechanism_(std::move(mechanism)), serial_(serial) {}

  /// Whether the operation may run; it has begun then.
  [[nodiscard]] bool begin_use(const OwnedView& view) const noexcept;
  /// Why not. Whatever it is, it stays so.
  [[nodiscard]] BindingError refusal_of_use(const OwnedView& view) const;
  [[nodiscard]] static DeviceAddress address_of(const OwnedView& view) noexcept;

  detail::MechanismRef mechanism_;
  std::uint64_t serial_;  // of the binding's id; its generation is the next one
};

}  // namespace memstrata
