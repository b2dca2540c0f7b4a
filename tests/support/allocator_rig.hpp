// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/host_virtual_allocator.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "support/scripted_governor.hpp"
#include "support/scripted_system_calls.hpp"

namespace memstrata::test {

/// What an `AllocatorRig` is made of.
struct RigOptions {
  Bytes limit = 1_TiB;       ///< Of the governor.
  Bytes granule = 64_KiB;    ///< Of the backing.
  Bytes retained_tail = {};  ///< Of the backing.
  std::uint64_t mapping_room =
      0;  ///< Kernel mappings that may be added; 0 leaves the usual budget.
  bool governed = true;
};

/// A virtual host allocator over a scripted kernel and a scripted governor.
class AllocatorRig {
 public:
  explicit AllocatorRig(RigOptions rig = {}) : governor_(ScriptedGovernor::with_limit(rig.limit)) {
    host::PageBackingOptions options;
    options.system_calls = kernel_;
    options.granule = rig.granule;
    options.retained_tail = rig.retained_tail;
    if (rig.governed) {
      options.governor = governor_;
    }
    if (rig.mapping_room != 0) {
      options.mapping_limit = used_mappings() + rig.mapping_room;
    }
    auto made = host::HostVirtualAllocator::create(std::move(options));
    allocator_ = std::move(made).value();
  }

  [[nodiscard]] host::HostVirtualAllocator& allocator() { return *allocator_; }

  [[nodiscard]] VirtualBacking& backing() { return *allocator_->virtual_backing(); }

  [[nodiscard]] SharedMapping& mapping() { return *allocator_->shared_mapping(); }

  [[nodiscard]] ScriptedSystemCalls& kernel() { return *kernel_; }

  [[nodiscard]] ScriptedGovernor& governor() { return *governor_; }

  /// Bytes of the host tier that are charged now.
  [[nodiscard]] Bytes used() const { return governor_->books().used(Tier::host); }

  /// An allocation none of which is committed.
  [[nodiscard]] AllocationSpan reserve(Bytes bytes) {
    const auto address = backing().allocate_committed(bytes, 8_B, {});
    return {.address = address.value_or(DeviceAddress{}), .bytes = bytes, .alignment = 8_B};
  }

 private:
  [[nodiscard]] static std::uint64_t used_mappings() {
    auto other = host::PageBacking::create();
    return other->mapping_usage().used;
  }

  std::shared_ptr<ScriptedSystemCalls> kernel_ = std::make_shared<ScriptedSystemCalls>();
  std::shared_ptr<ScriptedGovernor> governor_;
  std::unique_ptr<host::HostVirtualAllocator> allocator_;
};

}  // namespace memstrata::test
