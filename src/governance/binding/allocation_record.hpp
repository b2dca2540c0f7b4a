// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/release_state.hpp"

namespace memstrata::detail {

/// The state word of a record, taken apart. `released` is also the state of a record that nobody uses.
struct RecordControl {
  AllocationReleaseState state = AllocationReleaseState::released;
  bool held = false;       ///< An owner or a prepared release refers to the record.
  std::uint32_t pins = 0;  ///< Views, and calls in flight that use the allocation.

  [[nodiscard]] static constexpr RecordControl of(std::uint64_t word) noexcept {
    return {.state = static_cast<AllocationReleaseState>((word >> 32U) & 0xFFU),
            .held = ((word >> 40U) & 1U) != 0,
            .pins = static_cast<std::uint32_t>(word)};
  }

  [[nodiscard]] constexpr std::uint64_t word() const noexcept {
    return std::uint64_t{pins} | (std::uint64_t{std::to_underlying(state)} << 32U) |
           (std::uint64_t{held ? 1U : 0U} << 40U);
  }

  friend constexpr bool operator==(const RecordControl&, const RecordControl&) = default;
};

/// What a record says of its allocation. A list of records copies it as a whole: that is a quarter of the stores.
struct AllocationFacts {
  std::uint64_t generation = 0;  ///< Serial of the last allocation here; 0 before the first.
  std::uint64_t binding =
      0;  ///< Serial of the binding's id; its generation is the serial after it.
  DeviceAddress address;
  Bytes bytes;
  Bytes retained;  ///< In quarantine: what is still owned.
  std::uint32_t place = 0;
  std::uint8_t alignment_log2 = 0;
  AllocationReleaseState listed_as =
      AllocationReleaseState::released;                            ///< Of copies alone: the state.
  QuarantineReason reason{QuarantineReason::Kind::owner_dropped};  ///< In quarantine.
};

static_assert(std::is_trivially_copyable_v<AllocationFacts>);

/// One allocation on the books of a mechanism. The record outlives the allocation: it is used again, each time with
/// a new generation, once nobody refers to it.
///
/// Who may touch the plain members: whoever took the record from the table until he publishes it in `control`; then
/// everybody who holds or pins it may read them; in quarantine they are read and written under the mechanism's
/// mutex.
struct alignas(64) AllocationRecord : AllocationFacts {
  std::atomic<std::uint64_t> control{RecordControl{}.word()};
  std::atomic<std::uint32_t> next_free{0};  ///< Place + 1 of the next free record, or 0.
  std::uint8_t serials_left = 0;  ///< Serials after `generation` that are kept for this record.

  [[nodiscard]] AllocationSpan span() const noexcept {
    return {
        .address = address, .bytes = bytes, .alignment = Bytes{std::uint64_t{1} << alignment_log2}};
  }

  [[nodiscard]] RecordControl state() const noexcept {
    return RecordControl::of(control.load(std::memory_order_acquire));
  }
};

static_assert(sizeof(AllocationRecord) == 64,
              "with its handle a live allocation costs at most 128 bytes");

}  // namespace memstrata::detail
