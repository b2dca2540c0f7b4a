// SPDX-License-Identifier: Apache-2.0
// Into quarantine, what is in it, and out again.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>

#include "governance/binding/allocation_record.hpp"
#include "governance/binding/mechanism_gate.hpp"
#include "governance/binding/mechanism_record.hpp"
#include "governance/binding/record_table.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"

namespace memstrata::detail {
namespace {

using State = AllocationReleaseState;
using Event = AllocationReleaseEvent;

/// The state that `event` leads to from `queued`, which every event of a prepared release allows.
State settled(Event event) noexcept {
  const auto state = next(State::queued, event);
  MEMSTRATA_VERIFY(state.has_value(),
                   "an event that a prepared release does not allow",
                   std::to_underlying(event));
  return *state;
}

}  // namespace

ReleaseOutcome MechanismRecord::keep_aborted(AllocationRecord& record, ErrorText why) noexcept {
  return quarantine(record,
                    settled(Event::abort_release),
                    QuarantineReason(QuarantineReason::Kind::release_aborted),
                    {.allocation_bytes = record.bytes, .unmapped_bytes = {}},
                    record.bytes,
                    std::move(why));
}

ReleaseOutcome MechanismRecord::keep_rest(AllocationRecord& record,
                                          const MechanismRelease& answer) noexcept {
  if (const auto* partial = std::get_if<MechanismRelease::Partial>(&answer.kind())) {
    return quarantine(record,
                      settled(Event::stop_midway),
                      QuarantineReason(QuarantineReason::Kind::partial_release),
                      {.allocation_bytes = record.bytes, .unmapped_bytes = partial->unmapped},
                      partial->retained,
                      partial->why);
  }
  return quarantine(record,
                    settled(Event::refuse),
                    QuarantineReason(QuarantineReason::Kind::allocator_refused),
                    {.allocation_bytes = record.bytes, .unmapped_bytes = {}},
                    record.bytes,
                    std::get<MechanismRelease::Unchanged>(answer.kind()).why);
}

ReleaseOutcome MechanismRecord::retain_prepared(AllocationRecord& record,
                                                Event event,
                                                QuarantineReason reason) noexcept {
  return quarantine(record,
                    settled(event),
                    reason,
                    {.allocation_bytes = record.bytes, .unmapped_bytes = {}},
                    record.bytes,
                    {});
}

// The record's final state first, then the end of the operation: no operations means that ownership is settled.
ReleaseOutcome MechanismRecord::quarantine(AllocationRecord& record,
                                           State state,
                                           QuarantineReason reason,
                                           ReleaseAccounting accounting,
                                           Bytes retained,
                                           ErrorText why) noexcept {
  const ResidualOwnership residual{.state = state,
                                   .reason = reason,
                                   .retained_bytes = retained,
                                   .address = record.address,
                                   .alignment = record.span().alignment};
  {
    const MutexLock lock(mutex_);
    enter_quarantine(record, reason, retained);
    static_cast<void>(let_go(record, state));  // a prepared release has no views
    gate_.settle(1);
  }
  return ReleaseOutcome::retained(accounting, residual, std::move(why));
}

void MechanismRecord::enter_quarantine(AllocationRecord& record,
                                       QuarantineReason reason,
                                       Bytes retained) noexcept {
  record.reason = reason;
  record.retained = retained;
  ++quarantined_count_;
  ++table_.quarantined_in_block(record.place);
  quarantined_low_ += retained.value;
  quarantined_high_ += quarantined_low_ < retained.value ? 1 : 0;
}

void MechanismRecord::leave_quarantine(AllocationRecord& record) noexcept {
  MEMSTRATA_VERIFY(quarantined_count_ != 0, "a record leaves an empty quarantine", record.place);
  --quarantined_count_;
  --table_.quarantined_in_block(record.place);
  quarantined_high_ -= quarantined_low_ < record.retained.value ? 1 : 0;
  quarantined_low_ -= record.retained.value;
}

Result<AllocationRecord*, BindingError> MechanismRecord::find_quarantined(
    const AllocationIdentity& identity) {
  AllocationRecord* const record = table_.find(identity.place);
  if (record == nullptr || !is_quarantine(record->state().state) ||
      identity_of(*record) != identity) {
    return fail(BindingError(StaleAllocation{.allocation = identity}));
  }
  return record;
}

Result<AllocationRecord*, BindingError> MechanismRecord::reclaim(
    const AllocationIdentity& identity) {
  const MechanismLifecycle lifecycle = gate_.lifecycle();
  if (lifecycle != MechanismLifecycle::active && lifecycle != MechanismLifecycle::retired) {
    return fail(refusal(lifecycle, "reclaim"));
  }
  std::optional<MechanismLifecycle> refused;
  {
    const MutexLock lock(mutex_);
    MEMSTRATA_TRY(AllocationRecord* const record, find_quarantined(identity));
    const RecordControl control = record->state();
    if (!next(control.state, Event::reclaim) || !record->reason.permits_reclaim()) {
      return fail(BindingError(NotReclaimable{
          .allocation = identity, .state = control.state, .reason = record->reason}));
    }
    if (control.pins != 0) {
      return fail(BindingError(OutstandingViews{.allocation = identity, .views = control.pins}));
    }
    refused = gate_.queue_reclaimed();
    if (!refused) {
      leave_quarantine(*record);
      retain();
      record->control.store(RecordControl{.state = State::queued, .held = true, .pins = 0}.word(),
                            std::memory_order_release);
      return record;
    }
  }
  return fail(refusal(*refused, "reclaim"));
}

Result<void, BindingError> MechanismRecord::reconcile(const AllocationIdentity& identity) {
  const MutexLock lock(mutex_);
  if (gate_.lifecycle() == MechanismLifecycle::terminated) {
    return fail(BindingError(InactiveMechanism{.mechanism = parts_.identity,
                                               .lifecycle = MechanismLifecycle::terminated,
                                               .operation = "reconcile"}));
  }
  MEMSTRATA_TRY(AllocationRecord* const record, find_quarantined(identity));
  leave_quarantine(*record);
  if (!let_go(*record, State::released)) {
    table_.give_back(*record);
  }
  return {};
}

std::uint64_t MechanismRecord::quarantined_count() const noexcept {
  const MutexLock lock(mutex_);
  return quarantined_count_;
}

// Block by block, so that the mutex is held for a few microseconds at a time, whatever the number of records.
QuarantinedAllocations MechanismRecord::quarantined() const {
  QuarantinedAllocations list(parts_.identity.registry(),
                              parts_.device,
                              parts_.identity,
                              parts_.context->identity(),
                              parts_.authority->identity);
  auto& entries = list.entries_;
  entries.resize(quarantined_count() + RecordTable::block_records);
  std::size_t size = 0;
  for (std::uint32_t first = 0; first < table_.carved(); first += RecordTable::block_records) {
    if (entries.size() - size < RecordTable::block_records) {
      entries.resize(2 * entries.size());
    }
    auto* next_entry = entries.data() + size;
    const MutexLock lock(mutex_);
    if (gate_.lifecycle() == MechanismLifecycle::terminated) {
      size = 0;
      break;
    }
    std::uint32_t left = table_.quarantined_in_block(first);
    size += left;
    for (const AllocationRecord* record = table_.block(first).data(); left != 0; ++record) {
      const State state = record->state().state;
      if (is_quarantine(state)) {
        const AllocationFacts& facts = *record;
        std::memcpy(next_entry->facts.data(), &facts, sizeof facts);
        next_entry++->facts[offsetof(AllocationFacts, listed_as)] = static_cast<std::byte>(state);
        --left;
      }
    }
  }
  entries.resize(size);
  return list;
}

}  // namespace memstrata::detail
