// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/binding/mechanism_snapshot.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>

#include "memstrata/contract/release.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/release_state.hpp"

namespace memstrata {

QuarantinedAllocation QuarantinedAllocations::operator[](std::size_t index) const noexcept {
  const Entry& entry = entries_[index];
  const IdentitySource identities(registry_);
  return {.identity = {.binding = {.id = identities.restore<BindingId>(entry.binding),
                                   .generation =
                                       identities.restore<BindingGeneration>(entry.binding + 1),
                                   .device = device_,
                                   .mechanism = mechanism_,
                                   .context = context_,
                                   .authority = authority_},
                       .generation = identities.restore<AllocationGeneration>(entry.generation),
                       .place = entry.place},
          .address = DeviceAddress(entry.address),
          .bytes = Bytes{entry.bytes},
          .alignment = Bytes{std::uint64_t{1} << entry.alignment_log2},
          .state = entry.state,
          .reason = std::bit_cast<QuarantineReason>(entry.reason),
          .retained_bytes = Bytes{entry.retained}};
}

}  // namespace memstrata
