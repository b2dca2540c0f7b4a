// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "governance/binding/allocation_record.hpp"
#include "governance/binding/mechanism_gate.hpp"
#include "governance/binding/provider_context_record.hpp"
#include "governance/binding/record_table.hpp"
#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/cache_line.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/mechanism_ref.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"

namespace memstrata::detail {

/// Physical bytes that a bound prefix keeps. In a list, so that it moves to the keepsakes of a lost mechanism
/// without an allocation.
struct PrefixKeepsake {
  MechanismRef mechanism;  // outlives the prefix; set when the mechanism gives up what it kept
  std::shared_ptr<SharedDevicePrefix> prefix;
  Bytes bytes;
};

/// What the parts of a mechanism are and who they belong to.
struct MechanismParts {
  MechanismIdentity identity;
  DeviceKey device;
  MechanismCoherence coherence;
  std::shared_ptr<IdentitySource> identities;
  std::shared_ptr<ProviderContextRecord> context;
  std::shared_ptr<AuthorityRecord> authority;
  std::shared_ptr<DeviceAllocator> allocator;
};

/// A registered mechanism with the books of its allocations. Everything that belongs to it refers to it: bindings,
/// owners, views, prepared releases, bound capabilities and prefixes, and the registry while it is registered.
///
/// Thread-safe. Its mutex is a leaf: nothing is called and nothing is destroyed while it is held. Allocation,
/// release and views do not take it; quarantine, the loss of the device and snapshots do.
class MechanismRecord {
 public:
  explicit MechanismRecord(MechanismParts parts) noexcept;
  MechanismRecord(const MechanismRecord&) = delete;
  MechanismRecord& operator=(const MechanismRecord&) = delete;
  MechanismRecord(MechanismRecord&&) = delete;
  MechanismRecord& operator=(MechanismRecord&&) = delete;

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }

  /// Ends the record with the last reference. Call it without a lock: it then destroys what the caller registered.
  void drop() noexcept { drop_many(1); }

  [[nodiscard]] const MechanismParts& parts() const noexcept { return parts_; }

  [[nodiscard]] VirtualBacking* virtual_backing() const noexcept { return virtual_backing_; }

  [[nodiscard]] SharedMapping* shared_mapping() const noexcept { return shared_mapping_; }

  [[nodiscard]] MechanismGate& gate() noexcept { return gate_; }

  [[nodiscard]] BindingIdentity binding_identity(std::uint64_t binding) const noexcept;
  [[nodiscard]] AllocationIdentity identity_of(const AllocationRecord& record) const noexcept;

  /// The refusal of an operation by a lifecycle other than active.
  [[nodiscard]] BindingError refusal(MechanismLifecycle lifecycle, const char* operation) const;

  // One allocation. See the state machine in docs/release.md.

  /// As `open`, where a used record with serials left is at hand and nothing can be wrong; else null, and `open`
  /// says what is.
  [[nodiscard]] AllocationRecord* open_at_hand(std::uint64_t binding,
                                               Bytes bytes,
                                               Bytes alignment) noexcept {
    if (parts_.identities->exhausted() || !is_power_of_two(alignment.value)) [[unlikely]] {
      return nullptr;
    }
    AllocationRecord* const record = table_.pop();
    if (record == nullptr) [[unlikely]] {
      return nullptr;
    }
    if (record->serials_left == 0) [[unlikely]] {
      table_.give_back(*record);
      return nullptr;
    }
    use_serial(*record);
    fill(*record, binding, bytes, alignment);
    return record;
  }

  /// A record with a fresh generation for `binding`, for the caller alone. Errors: IdentityExhausted;
  /// MemoryError if the books cannot take one more.
  [[nodiscard]] Result<AllocationRecord*, BindingError> open(std::uint64_t binding,
                                                             Bytes bytes,
                                                             Bytes alignment);

  /// Gives back a record that was opened and not published.
  void close(AllocationRecord& record) noexcept { table_.give_back(record); }

  /// The call that opened the record has made the allocation: it is live, and its owner refers to it.
  void publish(AllocationRecord& record, DeviceAddress address) noexcept {
    record.address = address;
    retain();  // for the owner; views that outlive him keep it
    record.control.store(
        RecordControl{.state = AllocationReleaseState::live, .held = true, .pins = 0}.word(),
        std::memory_order_release);
    gate_.end_call_live();
  }

  /// As `prepare`, where nothing is in the way; else false with nothing changed, and `prepare` says what is.
  [[nodiscard]] bool try_prepare(AllocationRecord& record) noexcept {
    constexpr RecordControl live{.state = AllocationReleaseState::live, .held = true, .pins = 0};
    constexpr RecordControl queued{
        .state = AllocationReleaseState::queued, .held = true, .pins = 0};
    std::uint64_t word = live.word();
    if (!record.control.compare_exchange_strong(
            word, queued.word(), std::memory_order_acq_rel, std::memory_order_relaxed))
        [[unlikely]] {
      return false;
    }
    if (gate_.queue_live()) [[unlikely]] {
      // Nobody saw it queued: without a view only its owner can ask, and he is here.
      record.control.store(live.word(), std::memory_order_release);
      return false;
    }
    return true;
  }

  /// Detaches final ownership from the owner, who holds the record. Errors, in this order: lifecycle, stale, views.
  [[nodiscard]] Result<void, BindingError> prepare(AllocationRecord& record);
  /// The owner is destroyed.
  void drop_owner(AllocationRecord& record) noexcept;

  /// Calls the allocator for a prepared release, unless the device is lost, and settles the record. The caller ends
  /// the operation with `settle`, once for many.
  [[nodiscard]] ReleaseOutcome release(AllocationRecord& record) noexcept;
  /// Settles a prepared release without a call of the allocator; as above.
  [[nodiscard]] ReleaseOutcome retain_prepared(AllocationRecord& record,
                                               AllocationReleaseEvent event,
                                               QuarantineReason reason) noexcept;

  /// The operations of `released` complete releases end (those that went to quarantine have ended), and with all
  /// `handled` prepared releases their references to the mechanism: the last use of this object.
  void settle(std::uint64_t released, std::uint64_t handled) noexcept {
    if (released != 0) {
      gate_.settle(released);
    }
    drop_many(handled);
  }

  /// As `pin`; false if the allocation is stale.
  [[nodiscard]] bool try_pin(AllocationRecord& record, std::uint64_t generation) noexcept {
    std::uint64_t word = record.control.load(std::memory_order_acquire);
    do {
      const RecordControl control = RecordControl::of(word);
      if (control.state != AllocationReleaseState::live || record.generation != generation)
          [[unlikely]] {
        return false;
      }
      MEMSTRATA_VERIFY(control.pins != std::numeric_limits<std::uint32_t>::max(),
                       "an allocation has too many views",
                       control.pins);
    } while (!record.control.compare_exchange_weak(
        word, word + 1, std::memory_order_acq_rel, std::memory_order_acquire));
    return true;
  }

  /// One more view or call of a live allocation. Error: StaleAllocation.
  [[nodiscard]] Result<void, BindingError> pin(AllocationRecord& record, std::uint64_t generation);
  /// One more view, beside one that exists.
  void pin_again(AllocationRecord& record) noexcept;

  void unpin(AllocationRecord& record) noexcept {
    const auto before = RecordControl::of(record.control.fetch_sub(1, std::memory_order_acq_rel));
    MEMSTRATA_VERIFY(before.pins != 0, "a view ended twice", record.place, record.generation);
    if (before.pins == 1 && !before.held) [[unlikely]] {
      end_orphan(record, before.state);
    }
  }

  /// A record in quarantine becomes a prepared release again, to which the caller refers from now on.
  [[nodiscard]] Result<AllocationRecord*, BindingError> reclaim(const AllocationIdentity& identity);
  /// A record in quarantine is discharged: its memory is gone.
  [[nodiscard]] Result<void, BindingError> reconcile(const AllocationIdentity& identity);

  // Prefixes.

  void count_prefix(Bytes bytes) noexcept;
  /// A bound prefix goes: now, or, if the device is lost, with the end of the context. `one` is emptied either way.
  void drop_prefix(std::list<PrefixKeepsake>& one) noexcept;

  // The registry calls these with its own lock held; none of them calls or destroys anything of the user's.

  /// The device is lost. Gives back the reason before.
  [[nodiscard]] ErrorText invalidate(ErrorText reason) noexcept;
  /// The context is gone, and no operation is active: everything is discharged. What has to be destroyed goes to
  /// `keepsakes`.
  void terminate(std::list<PrefixKeepsake>& keepsakes) noexcept;

  [[nodiscard]] MechanismSnapshot snapshot() const noexcept;
  [[nodiscard]] QuarantinedAllocations quarantined() const;
  [[nodiscard]] std::uint64_t quarantined_count() const noexcept;
  /// Whether prefixes wait for the end of the context to be confirmed.
  [[nodiscard]] bool keeps_prefixes() const noexcept;

 private:
  ~MechanismRecord();

  /// A generation from the serials that are kept for the record.
  static void use_serial(AllocationRecord& record) noexcept {
    ++record.generation;
    --record.serials_left;
  }

  static void fill(AllocationRecord& record,
                   std::uint64_t binding,
                   Bytes bytes,
                   Bytes alignment) noexcept {
    record.binding = binding;
    record.bytes = bytes;
    record.alignment_log2 = static_cast<std::uint8_t>(std::countr_zero(alignment.value));
  }

  void drop_many(std::uint64_t count) noexcept {
    if (count != 0 && references_.fetch_sub(count, std::memory_order_acq_rel) == count)
        [[unlikely]] {
      end();
    }
  }

  void end() noexcept;
  /// The last view of a record without an owner is gone.
  void end_orphan(AllocationRecord& record, AllocationReleaseState state) noexcept;
  [[nodiscard]] ReleaseOutcome keep_rest(AllocationRecord& record,
                                         const MechanismRelease& answer) noexcept;
  [[nodiscard]] ReleaseOutcome keep_aborted(AllocationRecord& record, ErrorText why) noexcept;

  [[nodiscard]] Result<AllocationRecord*, BindingError> find_quarantined(
      const AllocationIdentity& identity) MEMSTRATA_REQUIRES(mutex_);
  void enter_quarantine(AllocationRecord& record, QuarantineReason reason, Bytes retained) noexcept
      MEMSTRATA_REQUIRES(mutex_);
  void leave_quarantine(AllocationRecord& record) noexcept MEMSTRATA_REQUIRES(mutex_);
  [[nodiscard]] ReleaseOutcome quarantine(AllocationRecord& record,
                                          AllocationReleaseState state,
                                          QuarantineReason reason,
                                          ReleaseAccounting accounting,
                                          Bytes retained,
                                          ErrorText why) noexcept;
  /// The owner or the prepared release lets go of the record; returns whether a view still keeps the reference.
  [[nodiscard]] bool let_go(AllocationRecord& record, AllocationReleaseState state) noexcept;
  void report_loss() noexcept;

  // The allocator is destroyed first, while the authority and the context are alive: members go in reverse order.
  const MechanismParts parts_;
  VirtualBacking* const virtual_backing_;
  SharedMapping* const shared_mapping_;

  mutable RecordTable table_;  // finding a record changes nothing
  alignas(line_pair) MechanismGate gate_;
  alignas(line_pair) std::atomic<std::uint64_t> references_{1};

  alignas(line_pair) mutable Mutex mutex_;
  ErrorText loss_reason_ MEMSTRATA_GUARDED_BY(mutex_);
  std::uint64_t quarantined_count_ MEMSTRATA_GUARDED_BY(mutex_) = 0;
  // The exact sum in two words, so that it goes down again as it went up.
  std::uint64_t quarantined_low_ MEMSTRATA_GUARDED_BY(mutex_) = 0;
  std::uint64_t quarantined_high_ MEMSTRATA_GUARDED_BY(mutex_) = 0;
  std::uint64_t prefix_count_ MEMSTRATA_GUARDED_BY(mutex_) = 0;
  Bytes prefix_bytes_ MEMSTRATA_GUARDED_BY(mutex_);
  std::list<PrefixKeepsake> keepsakes_ MEMSTRATA_GUARDED_BY(mutex_);
};

}  // namespace memstrata::detail
