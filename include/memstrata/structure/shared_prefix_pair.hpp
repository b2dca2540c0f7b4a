// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/shared_prefix_pair_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// Where one prefix is to be mapped. The prefix is not owned and lives during the call.
struct SharedPrefixTarget {
  const SharedDevicePrefix& prefix;
  AllocationSpan allocation;
  Bytes offset;
};

/// What each mapping of a pair added.
struct SharedPrefixPairInfo {
  SharedPrefixCommitInfo keys;
  SharedPrefixCommitInfo values;
};

/// Maps the prefix of the keys and the prefix of the values, both or none.
///
/// The allocator needs shared mapping and, for roll back, virtual backing; without either nothing is tried. The
/// keys are mapped first; if the values then fail, the keys are decommitted again. To be finished before any
/// work that reads the targets is queued.
/// Errors: PairRefused, where nothing is kept and a private copy is a safe fallback; PairRollbackFailed, where
/// the keys are still mapped and their allocation must be released.
/// Cost: two mapping calls.
[[nodiscard]] Result<SharedPrefixPairInfo, SharedPrefixPairError> commit_shared_prefix_pair(
    DeviceAllocator& allocator,
    const SharedPrefixTarget& keys,
    const SharedPrefixTarget& values);

}  // namespace memstrata
