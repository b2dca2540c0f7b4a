// SPDX-License-Identifier: Apache-2.0
#include "governance/binding/mechanism_record.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>
#include <list>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "governance/binding/allocation_record.hpp"
#include "governance/binding/mechanism_gate.hpp"
#include "governance/binding/record_table.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/log.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/binding/mechanism_ref.hpp"
#include "memstrata/governance/binding/mechanism_snapshot.hpp"

namespace memstrata::detail {
namespace {

using State = AllocationReleaseState;
using Event = AllocationReleaseEvent;

/// Serials that a record fetches at a time, so that the registry's counter is touched once in so many allocations.
constexpr std::uint64_t serials_at_once = 64;
static_assert(serials_at_once <=
              std::numeric_limits<decltype(AllocationRecord::serials_left)>::max());

}  // namespace

void MechanismRef::retain() const noexcept {
  if (record_ != nullptr) {
    record_->retain();
  }
}

void MechanismRef::drop() const noexcept {
  if (record_ != nullptr) {
    record_->drop();
  }
}

MechanismRecord::MechanismRecord(MechanismParts parts) noexcept
    : parts_(std::move(parts)),
      virtual_backing_(parts_.allocator->virtual_backing()),
      shared_mapping_(parts_.allocator->shared_mapping()) {}

MechanismRecord::~MechanismRecord() {
  report_loss();
}

// Nobody refers to the mechanism any more: what it still owns is lost from sight, and somebody must hear of it.
// Taking the mutex is part of the end: an owner lets go of its record under it and may still be leaving it when the
// view that kept the last reference is gone.
void MechanismRecord::report_loss() noexcept {
  const LogSink sink = log_sink();
  const MechanismSnapshot last = snapshot();
  if (sink == nullptr || !last.retains_ownership()) {
    return;
  }
  try {
    const std::string text = "memstrata: mechanism #" + std::to_string(last.identity.serial()) +
                             " of registry " + std::to_string(last.identity.registry()) +
                             " ended while it owned " + std::to_string(last.live_allocations) +
                             " live and " + std::to_string(last.quarantined_allocations) +
                             " quarantined allocations (" +
                             std::to_string(last.quarantined_bytes.value) +
                             " bytes in quarantine); nobody can release them any more";
    sink(LogLevel::error, text);
  } catch (const std::exception&) {
    sink(LogLevel::error, "memstrata: a mechanism ended while it owned allocations");
  }
}

BindingIdentity MechanismRecord::binding_identity(std::uint64_t binding) const noexcept {
  const IdentitySource& identities = *parts_.identities;
  return {.id = identities.restore<BindingId>(binding),
          .generation = identities.restore<BindingGeneration>(binding + 1),
          .device = parts_.device,
          .mechanism = parts_.identity,
          .context = parts_.context->identity(),
          .authority = parts_.authority->identity};
}

AllocationIdentity MechanismRecord::identity_of(const AllocationRecord& record) const noexcept {
  return {.binding = binding_identity(record.binding),
          .generation = parts_.identities->restore<AllocationGeneration>(record.generation),
          .place = record.place};
}

BindingError MechanismRecord::refusal(MechanismLifecycle lifecycle, const char* operation) const {
  if (lifecycle == MechanismLifecycle::device_lost) {
    const MutexLock lock(mutex_);
    return DeviceLost{.device = parts_.device, .reason = loss_reason_};
  }
  return InactiveMechanism{
      .mechanism = parts_.identity, .lifecycle = lifecycle, .operation = operation};
}

Result<AllocationRecord*, BindingError> MechanismRecord::open(std::uint64_t binding,
                                                              Bytes bytes,
                                                              Bytes alignment) {
  if (parts_.identities->exhausted()) [[unlikely]] {
    return fail(BindingError(IdentityExhausted{}));
  }
  const Tier tier = parts_.device.tier;
  if (!is_power_of_two(alignment.value)) [[unlikely]] {
    return fail(BindingError(MemoryError(InvalidRequest{
        .tier = tier, .requested = bytes, .reason = "the alignment is not a power of two"})));
  }
  AllocationRecord* record = nullptr;
  try {
    record = table_.take();
  } catch (const std::bad_alloc&) {
    return fail(BindingError(MemoryError(AllocationFailed{
        .tier = tier,
        .requested = bytes,
        .reason =
            "there is no memory for the record of the allocation; the allocator was not called"})));
  }
  if (record == nullptr) [[unlikely]] {
    static_assert(RecordTable::capacity == 16'776'960);
    return fail(BindingError(MemoryError(AllocationFailed{
        .tier = tier,
        .requested = bytes,
        .reason =
            "the books of the mechanism hold 16776960 allocations, the most that they can count; "
            "allocate larger pieces and divide them"})));
  }
  if (record->serials_left == 0) {
    const auto run = parts_.identities->issue_run(serials_at_once);
    if (!run) {
      table_.give_back(*record);
      return fail(BindingError(IdentityExhausted{}));
    }
    record->generation = run->first - 1;
    record->serials_left = static_cast<std::uint8_t>(run->count);
  }
  use_serial(*record);
  fill(*record, binding, bytes, alignment);
  return record;
}

Result<void, BindingError> MechanismRecord::prepare(AllocationRecord& record) {
  const MechanismLifecycle lifecycle = gate_.lifecycle();
  if (lifecycle != MechanismLifecycle::active && lifecycle != MechanismLifecycle::retired) {
    return fail(refusal(lifecycle, "release"));
  }
  if (try_prepare(record)) {
    return {};
  }
  const RecordControl found = record.state();
  if (found.state != State::live) {
    return fail(BindingError(StaleAllocation{.allocation = identity_of(record)}));
  }
  if (found.pins != 0) {
    return fail(
        BindingError(OutstandingViews{.allocation = identity_of(record), .views = found.pins}));
  }
  return prepare(record);  // the device was lost, or the last view ended, in between
}

bool MechanismRecord::let_go(AllocationRecord& record, State state) noexcept {
  std::uint64_t word = record.control.load(std::memory_order_relaxed);
  RecordControl after;
  do {
    after = {.state = state, .held = false, .pins = RecordControl::of(word).pins};
  } while (!record.control.compare_exchange_weak(
      word, after.word(), std::memory_order_acq_rel, std::memory_order_relaxed));
  return after.pins != 0;
}

void MechanismRecord::drop_owner(AllocationRecord& record) noexcept {
  bool kept_by_views = false;
  {
    const MutexLock lock(mutex_);
    if (gate_.drop_live()) {
      // Lost or terminated: it stays as it is until the end of the context is confirmed.
      kept_by_views = let_go(record, State::live);
    } else {
      enter_quarantine(
          record, QuarantineReason(QuarantineReason::Kind::owner_dropped), record.bytes);
      kept_by_views = let_go(record, *next(State::live, Event::drop_owner));
    }
  }
  if (!kept_by_views) {
    drop();
  }
}

ReleaseOutcome MechanismRecord::release(AllocationRecord& record) noexcept {
  const MechanismLifecycle lifecycle = gate_.lifecycle();
  if (lifecycle == MechanismLifecycle::device_lost) {
    return retain_prepared(
        record, Event::lose_device, QuarantineReason(QuarantineReason::Kind::device_lost));
  }
  if (lifecycle == MechanismLifecycle::terminated) {
    return retain_prepared(
        record, Event::refuse, QuarantineReason(QuarantineReason::Kind::mechanism_terminated));
  }
  try {
    const MechanismRelease answer = parts_.allocator->release(record.span());
    if (const auto* complete = std::get_if<MechanismRelease::Complete>(&answer.kind())) [[likely]] {
      const Bytes bytes = record.bytes;
      record.control.store(RecordControl{.state = State::released}.word(),
                           std::memory_order_release);
      table_.give_back(record);
      return ReleaseOutcome::released(
          {.allocation_bytes = bytes, .unmapped_bytes = complete->unmapped});
    }
    return keep_rest(record, answer);
  } catch (const std::exception& thrown) {
    return keep_aborted(record, ErrorText::copy(thrown.what()));
  } catch (...) {
    return keep_aborted(record, "an exception of unknown type");
  }
}

void MechanismRecord::end() noexcept {
  delete this;  // NOLINT(cppcoreguidelines-owning-memory): the count is the owner
}

Result<void, BindingError> MechanismRecord::pin(AllocationRecord& record,
                                                std::uint64_t generation) {
  if (!try_pin(record, generation)) {
    return fail(BindingError(StaleAllocation{.allocation = identity_of(record)}));
  }
  return {};
}

void MechanismRecord::pin_again(AllocationRecord& record) noexcept {
  const auto before = RecordControl::of(record.control.fetch_add(1, std::memory_order_relaxed));
  MEMSTRATA_VERIFY(before.pins != 0 && before.pins != std::numeric_limits<std::uint32_t>::max(),
                   "a view was copied that is not there, or there are too many",
                   before.pins);
}

void MechanismRecord::end_orphan(AllocationRecord& record, State state) noexcept {
  if (state == State::released) {
    table_.give_back(record);  // reconciled while this view was there
  }
  drop();
}

void MechanismRecord::count_prefix(Bytes bytes) noexcept {
  const MutexLock lock(mutex_);
  ++prefix_count_;
  prefix_bytes_ = saturating_add(prefix_bytes_, bytes);
}

void MechanismRecord::drop_prefix(std::list<PrefixKeepsake>& one) noexcept {
  const Bytes bytes = one.front().bytes;
  bool is_operation = false;
  {
    const MutexLock lock(mutex_);
    const MechanismLifecycle lifecycle = gate_.lifecycle();
    if (lifecycle == MechanismLifecycle::device_lost) {
      keepsakes_.splice(keepsakes_.end(), one);  // its teardown would call a device that is lost
      return;
    }
    --prefix_count_;
    prefix_bytes_ = saturating_sub(prefix_bytes_, bytes);
    is_operation = lifecycle != MechanismLifecycle::terminated;
    if (is_operation) {
      gate_.begin_teardown();  // the end of the context cannot be confirmed while it runs
    }
  }
  one.clear();
  if (is_operation) {
    gate_.end_call();
  }
}

ErrorText MechanismRecord::invalidate(ErrorText reason) noexcept {
  const MutexLock lock(mutex_);
  if (gate_.apply(MechanismEvent::invalidate_device) == MechanismLifecycle::device_lost) {
    std::swap(loss_reason_, reason);
  }
  return reason;
}

void MechanismRecord::terminate(std::list<PrefixKeepsake>& keepsakes) noexcept {
  const MutexLock lock(mutex_);
  gate_.terminate();
  quarantined_count_ = 0;
  quarantined_low_ = 0;
  quarantined_high_ = 0;
  for (PrefixKeepsake& each : keepsakes_) {
    --prefix_count_;
    prefix_bytes_ = saturating_sub(prefix_bytes_, each.bytes);
    retain();
    each.mechanism =
        MechanismRef(this);  // whoever removes the mechanism meanwhile does not end it yet
  }
  keepsakes.splice(keepsakes.end(), keepsakes_);
}

MechanismSnapshot MechanismRecord::snapshot() const noexcept {
  const MutexLock lock(mutex_);
  const GateFigures now = gate_.figures();
  return {
      .identity = parts_.identity,
      .device = parts_.device,
      .provider_context = parts_.context->identity(),
      .authority = parts_.authority->identity,
      .coherence = parts_.coherence,
      .lifecycle = now.lifecycle,
      .live_allocations = now.live,
      .active_operations = now.active_operations(),
      .queued_releases = now.queued,
      .quarantined_allocations = quarantined_count_,
      .quarantined_bytes = Bytes{quarantined_high_ != 0 ? std::numeric_limits<std::uint64_t>::max()
                                                        : quarantined_low_},
      .shared_prefixes = prefix_count_,
      .shared_prefix_bytes = prefix_bytes_};
}

bool MechanismRecord::keeps_prefixes() const noexcept {
  const MutexLock lock(mutex_);
  return !keepsakes_.empty();
}

}  // namespace memstrata::detail
