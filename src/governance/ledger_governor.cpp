// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/ledger_governor.hpp"

#include <memory>
#include <utility>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/lease_ledger.hpp"

namespace memstrata {

LedgerGovernor::LedgerGovernor(std::shared_ptr<LeaseLedger> ledger) noexcept
    : ledger_(std::move(ledger)) {
  MEMSTRATA_VERIFY(ledger_ != nullptr, "a governor needs a ledger");
}

LedgerGovernor::LedgerGovernor(DeviceKey device, TierLimits limits)
    : ledger_(LeaseLedger::create(device, limits)) {}

MemoryAuthorityId LedgerGovernor::authority_id() const noexcept {
  return ledger_->authority_id();
}

Result<MemoryLease> LedgerGovernor::reserve(Tier tier,
                                            Bytes bytes,
                                            MemoryRole role,
                                            HolderId holder) {
  return ledger_->lease(tier, bytes, role, holder);
}

Result<MemoryLease> LedgerGovernor::record_committed(Tier tier,
                                                     Bytes bytes,
                                                     MemoryRole role,
                                                     HolderId holder) {
  return ledger_->record_committed(tier, bytes, role, holder);
}

TierUsage LedgerGovernor::usage(Tier tier) const noexcept {
  return ledger_->usage(tier);
}

}  // namespace memstrata
