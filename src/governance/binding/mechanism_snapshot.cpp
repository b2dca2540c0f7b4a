// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/binding/mechanism_snapshot.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>

#include "governance/binding/allocation_record.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"

namespace memstrata {

QuarantinedAllocation QuarantinedAllocations::operator[](std::size_t index) const noexcept {
  const auto entry = std::bit_cast<detail::AllocationFacts>(entries_[index].facts);
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
          .address = entry.address,
          .bytes = entry.bytes,
          .alignment = Bytes{std::uint64_t{1} << entry.alignment_log2},
          .state = entry.listed_as,
          .reason = entry.reason,
          .retained_bytes = entry.retained};
}

}  // namespace memstrata
