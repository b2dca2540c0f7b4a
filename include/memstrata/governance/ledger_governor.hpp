// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/lease_ledger.hpp"

namespace memstrata {

/// Grants leases from a ledger and nothing else: no pressure, no policy. Several governors may share one ledger;
/// they are then one authority. Its leases may outlive it. Thread-safe.
class LedgerGovernor final : public MemoryGovernor {
 public:
  /// Charges `ledger`, which is not null.
  explicit LedgerGovernor(std::shared_ptr<LeaseLedger> ledger) noexcept;

  /// Charges new books of its own.
  LedgerGovernor(DeviceKey device, TierLimits limits);

  /// The books, for limits, faults and further governors.
  [[nodiscard]] const std::shared_ptr<LeaseLedger>& ledger() const noexcept { return ledger_; }

  [[nodiscard]] MemoryAuthorityId authority_id() const noexcept override;
  [[nodiscard]] Result<MemoryLease> reserve(Tier tier,
                                            Bytes bytes,
                                            MemoryRole role,
                                            HolderId holder) override;
  [[nodiscard]] Result<MemoryLease> record_committed(Tier tier,
                                                     Bytes bytes,
                                                     MemoryRole role,
                                                     HolderId holder) override;
  [[nodiscard]] TierUsage usage(Tier tier) const noexcept override;

 private:
  std::shared_ptr<LeaseLedger> ledger_;
};

}  // namespace memstrata
