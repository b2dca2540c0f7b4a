// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/shared_prefix_pair.hpp"

#include <algorithm>
#include <utility>

#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/shared_prefix_pair_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {
namespace {

[[nodiscard]] SharedPrefixPairError without(const DeviceAllocator& allocator,
                                            const SharedPrefixTarget& target,
                                            ErrorText what) {
  return PairRefused{InvalidRequest{.tier = allocator.device().tier,
                                    .requested = target.prefix.mapped_bytes(),
                                    .reason = std::move(what)}};
}

}  // namespace

Result<SharedPrefixPairInfo, SharedPrefixPairError> commit_shared_prefix_pair(
    DeviceAllocator& allocator,
    const SharedPrefixTarget& keys,
    const SharedPrefixTarget& values) {
  SharedMapping* const mapping = allocator.shared_mapping();
  if (mapping == nullptr) {
    return fail(without(allocator, keys, "the allocator offers no shared mapping"));
  }
  VirtualBacking* const backing = allocator.virtual_backing();
  if (backing == nullptr) {
    return fail(
        without(allocator,
                keys,
                "the allocator offers no virtual backing, which roll back of a pair needs"));
  }
  auto mapped_keys = mapping->commit_shared_prefix(keys.prefix, keys.allocation, keys.offset);
  if (!mapped_keys) {
    return fail(SharedPrefixPairError(PairRefused{std::move(mapped_keys).error()}));
  }
  auto mapped_values =
      mapping->commit_shared_prefix(values.prefix, values.allocation, values.offset);
  if (mapped_values) {
    return SharedPrefixPairInfo{.keys = *mapped_keys, .values = *mapped_values};
  }
  // The last granule of a prefix may reach beyond the bytes of the allocation, a range may not.
  const Bytes inside = saturating_sub(keys.allocation.bytes, keys.offset);
  auto undone = backing->decommit(
      keys.allocation,
      {.offset = keys.offset, .size = std::min(mapped_keys->newly_mapped_bytes, inside)});
  if (!undone) {
    return fail(SharedPrefixPairError(PairRollbackFailed{.cause = std::move(mapped_values).error(),
                                                         .rollback = std::move(undone).error()}));
  }
  return fail(SharedPrefixPairError(PairRefused{std::move(mapped_values).error()}));
}

}  // namespace memstrata
