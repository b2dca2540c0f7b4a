// SPDX-License-Identifier: Apache-2.0
// Leases memory from an installed memstrata and prints what the books then say.
#include <iostream>
#include <memstrata/governance/ledger_governor.hpp>
#include <memstrata/memstrata.hpp>

int main() {
  using namespace memstrata;
  LedgerGovernor governor(DeviceKey::host(), TierLimits::all(1_MiB));
  const auto lease = governor.reserve(Tier::host, 64_KiB, MemoryRole::kv_cache, HolderId{});
  const auto usage = governor.usage(Tier::host);
  std::cout << usage.used.value << " of " << usage.limit.value << '\n';
  return lease ? 0 : 1;
}
