// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/contract/platform_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata {

/// What the lease of a range or buffer is taken for.
struct LeaseTerms {
  Tier tier;
  MemoryRole role;
  HolderId holder;
};

/// What one range or buffer owes for the physical bytes that it committed: one lease that covers exactly these
/// bytes and is absent while there are none. Over a backing that pays for itself it charges nothing. Move-only;
/// destruction gives everything back. Single-threaded.
class PhysicalCharge {
 public:
  /// Charges nothing yet.
  /// Errors: AuthorityMismatch if the backing accounts to other books than the governor's; InvalidRequest
  /// without a governor.
  [[nodiscard]] static Result<PhysicalCharge, VirtualBufferError> create(
      PhysicalMemoryAccounting accounting,
      std::shared_ptr<MemoryGovernor> governor,
      LeaseTerms terms);

  /// Bytes leased now.
  [[nodiscard]] Bytes leased() const noexcept { return lease_ ? lease_->bytes() : Bytes{}; }

  /// Whether the backing pays, so that `charge` and `refund` do nothing.
  [[nodiscard]] bool is_paid_by_backing() const noexcept { return paid_by_backing_; }

  [[nodiscard]] Tier tier() const noexcept { return terms_.tier; }

  /// Leases `bytes` more. On failure nothing changed.
  /// Errors: those of the governor, unchanged; AllocationFailed if the governor throws.
  [[nodiscard]] Result<void> charge(Bytes bytes);

  /// Gives back `bytes`, which are at most what is leased.
  void refund(Bytes bytes) noexcept;

 private:
  PhysicalCharge(bool paid_by_backing,
                 std::shared_ptr<MemoryGovernor> governor,
                 LeaseTerms terms) noexcept;

  [[nodiscard]] Result<void> charge_governor(Bytes bytes);

  std::shared_ptr<MemoryGovernor> governor_;
  std::optional<MemoryLease> lease_;  // after the governor: a lease may charge it while it dies
  LeaseTerms terms_;
  bool paid_by_backing_;
};

/// The failure of an operation that found no memory for its own records, before any side effect.
[[nodiscard]] MemoryError no_memory_for_records(Tier tier, Bytes requested) noexcept;

}  // namespace memstrata
