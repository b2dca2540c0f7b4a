// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/structure/physical_charge.hpp"
#include "memstrata/structure/virtual_buffer.hpp"
#include "memstrata/structure/virtual_range.hpp"
#include "support/scripted_governor.hpp"
#include "support/sim_backing.hpp"

namespace memstrata::test {

inline constexpr LeaseTerms sim_terms{.tier = Tier::device,
                                      .role = MemoryRole::kv_cache,
                                      .holder = HolderId{7}};

/// The alternative `T` of the memory error inside `error`, or null.
template <class T>
[[nodiscard]] const T* memory_error(const VirtualBufferError& error) {
  const auto* memory = std::get_if<VirtualMemoryError>(&error.kind);
  return memory == nullptr ? nullptr : std::get_if<T>(&memory->kind);
}

/// The alternative `T` of the budget error inside `error`, or null.
template <class T>
[[nodiscard]] const T* budget_error(const VirtualBufferError& error) {
  const auto* budget = std::get_if<MemoryError>(&error.kind);
  return budget == nullptr ? nullptr : std::get_if<T>(&budget->kind);
}

/// A simulated backing and a scripted governor, and what is made over them. At its end nobody may have misused
/// either. Make it before the buffers.
class SimRig {
 public:
  explicit SimRig(Bytes limit = 256_MiB, SimOptions options = {})
      : governor(ScriptedGovernor::with_limit(limit)),
        backing(std::make_shared<SimBacking>(options)) {}

  SimRig(const SimRig&) = delete;
  SimRig& operator=(const SimRig&) = delete;
  SimRig(SimRig&&) = delete;
  SimRig& operator=(SimRig&&) = delete;

  ~SimRig() {
    EXPECT_EQ(backing->misuses(), std::vector<std::string>{});
    EXPECT_FALSE(governor->books().over_released());
  }

  [[nodiscard]] VirtualBuffer<SimBacking> buffer(Bytes capacity, Bytes commit_ahead = {}) const {
    return VirtualBuffer<SimBacking>::create(backing, capacity, governor, sim_terms, commit_ahead)
        .value();
  }

  [[nodiscard]] VirtualRange<SimBacking> range(Bytes length) const {
    return VirtualRange<SimBacking>::reserve(backing, length, governor, sim_terms).value();
  }

  /// A sealed prefix of so many granules; its first byte in granule i reads `first + i`.
  [[nodiscard]] SimBacking::Prefix prefix(std::uint64_t granules, std::uint8_t first = 1) const {
    auto made = backing->create_prefix(granule() * granules).value();
    for (std::uint64_t i = 0; i < granules; ++i) {
      EXPECT_TRUE(made.write(granule() * i, static_cast<std::uint8_t>(first + i)));
    }
    made.seal();
    return made;
  }

  [[nodiscard]] Bytes granule() const { return backing->granularity(); }

  /// Bytes of the device tier that are leased.
  [[nodiscard]] Bytes used() const { return governor->usage(Tier::device).used; }

  [[nodiscard]] Bytes available() const { return governor->usage(Tier::device).available; }

  /// How often the backing was called for `operation`.
  [[nodiscard]] std::uint64_t calls(const char* operation) const {
    return backing->faults().calls(operation);
  }

  std::shared_ptr<ScriptedGovernor> governor;
  std::shared_ptr<SimBacking> backing;
};

/// The number of granules, for readable sizes.
[[nodiscard]] inline ByteRange granules(Bytes granule, std::uint64_t first, std::uint64_t count) {
  return {.offset = granule * first, .size = granule * count};
}

}  // namespace memstrata::test
