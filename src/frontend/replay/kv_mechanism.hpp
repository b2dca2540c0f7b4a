// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/replay/workbench.hpp"
#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/release_injection.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"
#include "memstrata/structure/virtual_buffer.hpp"
#include "memstrata/structure/virtual_range.hpp"

namespace memstrata::replay_detail {

/// What the bytes of one prompt block are charged. Whoever maps the block shares the charge, so that the budget gets it
/// back when the last mapping is gone and not before.
struct BlockCharge {
  MemoryLease lease;
  bool is_given_up = false;  ///< The block itself was released.
  bool is_counted = false;   ///< For a sum over those who share it.
};

using BlockCharges = std::vector<std::shared_ptr<BlockCharge>>;

/// The buffer of one sequence with the charges of the blocks that it maps, which outlive it.
struct KvSequence {
  BlockCharges mapped;
  VirtualBuffer<host::PageBacking> buffer;
};

/// One prompt block. The charge comes first, so that the memory goes before the permission.
struct KvBlock {
  std::shared_ptr<BlockCharge> charge;
  host::Prefix prefix;
};

/// The address range of all pages of one size.
using KvPool = VirtualRange<host::PageBacking>;

/// Where an allocation of the replay comes from.
struct KvOrigin {
  ReplayAllocationKind kind;
  std::uint64_t request;
  std::shared_ptr<host::PageBacking> backing;  ///< That its bytes are of.
};

/// What is known of an allocation whose release did not complete.
struct KvLeftover {
  std::uint64_t release;  ///< Number of the release; 0 if none was asked for.
  ReplayAllocationKind kind;
  std::uint64_t request;
  Bytes charged;  ///< With the blocks that were given up and that it still maps.
};

/// The mechanism that the allocations of a replay are made by: it keeps each buffer, pool and block under the address
/// of its span until it is released. A block has no address of its own and gets a number that no processor accepts as
/// one. Thread-safe, but for the memory itself, which its owner uses alone.
class KvMechanism final : public DeviceAllocator {
 public:
  /// `bench` outlives it and gets the times of the releases, from the thread that executes them.
  KvMechanism(Workbench& bench, std::vector<ReleaseInjection> injections);

  template <class Memory>
  struct Kept {
    AllocationSpan span;
    Memory* memory;  ///< Stays there until the release.
  };

  /// Takes the memory in. Throws std::bad_alloc, and the memory is gone then.
  template <class Memory>
  [[nodiscard]] Kept<Memory> keep(Memory memory, const KvOrigin& origin) {
    const MutexLock lock(mutex_);
    const AllocationSpan span = span_of(memory);
    Entry& entry =
        entries_
            .try_emplace(span.address.value(), Entry{.memory = std::move(memory), .origin = origin})
            .first->second;
    return {.span = span, .memory = std::get_if<Memory>(&entry.memory)};
  }

  /// The memory of `address`, which is there, goes at once: nobody owns it.
  void forget(DeviceAddress address) noexcept;

  /// The release of this allocation, which is queued now, is the one of that number.
  void number_release(DeviceAddress address, std::uint64_t release) noexcept;

  /// A queue refused the release of this allocation, so that its bytes stay charged.
  void keep_back(DeviceAddress address) noexcept;

  /// Memory of replays is made by their policies and adopted. Error: InvalidRequest, always.
  [[nodiscard]] Result<DeviceAddress> allocate(Bytes bytes, Bytes alignment) override;

  /// Gives the memory back unless a fault is injected. "Partial" also if the kernel does not take it back: it is then
  /// charged until the kernel does.
  [[nodiscard]] MechanismRelease release(const AllocationSpan& allocation) override;

  [[nodiscard]] DeviceKey device() const noexcept override { return DeviceKey::host(); }

  /// What releases that did not complete are charged now.
  [[nodiscard]] Bytes withheld() const noexcept;

  /// What all allocations that are there are charged, those in use too.
  [[nodiscard]] Bytes charged() const noexcept;

  /// What is known of the allocation at `address`, which is there.
  [[nodiscard]] KvLeftover leftover(DeviceAddress address) const noexcept;

  /// Faults that happened.
  [[nodiscard]] std::uint64_t injected() const noexcept;

  /// Asks the kernel again for what it did not take back. Returns the addresses of the allocations that are gone now;
  /// they are forgotten here and charged no more.
  [[nodiscard]] std::vector<DeviceAddress> retry_refused();

  /// Everything goes at once: the proof for it is the caller's.
  void forget_all() noexcept;

 private:
  /// What the kernel did not take back; the backing tries again.
  struct Refused {
    BlockCharges mapped;
    MemoryLease lease;
  };

  struct Entry {
    std::variant<KvSequence, KvBlock, KvPool, Refused, std::monostate> memory;
    KvOrigin origin;
    std::uint64_t release = 0;
    bool is_kept_back = false;
  };

  using Table = std::unordered_map<std::uint64_t, Entry>;

  [[nodiscard]] AllocationSpan span_of(const KvSequence& memory) const noexcept
      MEMSTRATA_REQUIRES(mutex_);
  [[nodiscard]] AllocationSpan span_of(const KvBlock& memory) noexcept MEMSTRATA_REQUIRES(mutex_);
  [[nodiscard]] AllocationSpan span_of(const KvPool& memory) const noexcept
      MEMSTRATA_REQUIRES(mutex_);

  [[nodiscard]] static Bytes own_charge(const Entry& entry) noexcept;
  [[nodiscard]] static const BlockCharges* blocks_mapped_by(const Entry& entry) noexcept;
  /// The charges of all entries, or only of those kept back, with the blocks that were given up and that they map.
  [[nodiscard]] Bytes sum_of_charges(bool only_kept_back) const noexcept MEMSTRATA_REQUIRES(mutex_);

  /// Whether the fault is to happen to this release; it will not happen to another one then.
  [[nodiscard]] bool takes_fault(ReleaseFault fault, const Entry& entry);
  [[nodiscard]] MechanismRelease release_entry(Entry& entry);
  [[nodiscard]] MechanismRelease give_back(Entry& entry);

  Workbench& bench_;
  mutable Mutex mutex_;
  Table entries_ MEMSTRATA_GUARDED_BY(mutex_);
  std::vector<ReleaseInjection> injections_ MEMSTRATA_GUARDED_BY(mutex_);
  std::uint64_t injected_ MEMSTRATA_GUARDED_BY(mutex_) = 0;
  std::uint64_t kept_back_ MEMSTRATA_GUARDED_BY(mutex_) = 0;  // entries
  std::uint64_t refused_ MEMSTRATA_GUARDED_BY(mutex_) = 0;    // of these: by the kernel
  std::uint64_t next_block_ MEMSTRATA_GUARDED_BY(mutex_) = 1;
  Bytes withheld_ MEMSTRATA_GUARDED_BY(mutex_);
};

}  // namespace memstrata::replay_detail
