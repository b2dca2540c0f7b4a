// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "mechanism/host/backing_state.hpp"
#include "mechanism/host/reservation_record.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/rollback.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host {

using detail::ReservationRecord;

namespace {

/// The bytes that both ranges have; empty if none.
[[nodiscard]] ByteRange common(ByteRange a, ByteRange b) noexcept {
  const Bytes first = std::max(a.offset, b.offset);
  const Bytes last = std::min(a.end(), b.end());
  return last > first ? ByteRange{.offset = first, .size = last - first} : ByteRange{};
}

/// Takes a run back: its memory goes and its addresses fault, but for `kept`, which stays resident. False if the
/// kernel refuses; then the run is still usable.
[[nodiscard]] bool withdraw(ReservationRecord& record, ByteRange run, ByteRange kept) noexcept {
  // A retained part begins where the run begins.
  const ByteRange rest{.offset = run.offset + kept.size, .size = run.size - kept.size};
  if (!rest.empty() && !record.advise(rest, Advice::discard).is_ok()) {
    return false;
  }
  return record.protect(run, Protection::none).is_ok();
}

/// Makes one run usable and zero. After a failure it is as before; `stuck` says that even that was refused.
[[nodiscard]] Result<void, VirtualMemoryError> establish(ReservationRecord& record,
                                                         ByteRange run,
                                                         bool& stuck) {
  const ByteRange kept = common(run, record.retained);
  record.before_run(run);
  if (const SystemResult opened = record.protect(run, Protection::read_write); !opened.is_ok()) {
    // The kernel goes mapping by mapping and may have stopped half-way; what it opened is untouched.
    stuck = !record.protect(run, Protection::none).is_ok();
    return fail(detail::refused(SystemCallKind::protect, opened.error));
  }
  if (record.state->options().populate) {
    if (const SystemResult filled = record.populate(run); !filled.is_ok()) {
      stuck = !withdraw(record, run, kept);
      return fail(detail::refused(SystemCallKind::advise, filled.error));
    }
  }
  if (!kept.empty()) {
    std::memset(record.pointer(kept.offset), 0, kept.size.value);
  }
  return {};
}

/// Notes that a run is committed. The map was prepared for it.
void enter(ReservationRecord& record, ByteRange run) noexcept {
  const ByteRange kept = common(run, record.retained);
  if (!kept.empty()) {
    record.retained = {.offset = kept.end(), .size = record.retained.end() - kept.end()};
  }
  record.claim_stray(run);
  const std::uint64_t runs = record.committed.runs();
  record.committed.insert(run);
  record.after_run(run, runs);
}

/// Only a tail that the commit continues can be reused; any other is given back first.
[[nodiscard]] Result<Bytes, VirtualMemoryError> reusable_tail(ReservationRecord& record,
                                                              std::span<const ByteRange> runs) {
  Bytes reused;
  for (const ByteRange& run : runs) {
    const ByteRange kept = common(run, record.retained);
    if (kept.empty()) {
      continue;
    }
    if (run.offset != record.retained.offset) {
      MEMSTRATA_TRY_VOID(record.discard_retained());
      return Bytes{};
    }
    reused = kept.size;
  }
  return reused;
}

/// Room for the runs in the budget of mappings, the lease and the map, before the first side effect.
[[nodiscard]] Result<void, VirtualMemoryError> make_room(ReservationRecord& record,
                                                         std::span<const ByteRange> runs) {
  Bytes wanted;
  std::uint64_t more = 0;
  std::uint64_t fewer = 0;
  for (const ByteRange& run : runs) {
    wanted += run.size;
    const std::uint64_t after = record.committed.runs_after_insert(run);
    more += after > record.committed.runs() ? 2U : 0U;
    fewer += after < record.committed.runs() ? 2U : 0U;
  }
  if (more > fewer) {
    MEMSTRATA_TRY_VOID(record.state->take_mappings(more - fewer));
    record.counted_mappings += more - fewer;
  }
  MEMSTRATA_TRY(const Bytes reused, reusable_tail(record, runs));
  MEMSTRATA_TRY_VOID(record.claim("commit", wanted - reused));
  try {
    for (const ByteRange& run : runs) {
      record.committed.prepare(run);
    }
  } catch (const std::exception&) {
    return fail(detail::no_bookkeeping());
  }
  return {};
}

[[nodiscard]] Result<void, VirtualMemoryError> commit_one(ReservationRecord& record,
                                                          ByteRange run) {
  bool stuck = false;
  auto done = establish(record, run, stuck);
  if (done || stuck) {
    enter(record, run);
  }
  return done;
}

/// Commits what only lengthens a run of a record that has nothing but runs: no mapping, lease or tail changes, so
/// there is nothing to make room for and nothing to settle.
[[nodiscard]] Result<void, VirtualMemoryError> extend_run(ReservationRecord& record,
                                                          ByteRange run) {
  bool stuck = false;
  auto done = establish(record, run, stuck);
  if (done || stuck) {
    record.committed.insert(run);
  }
  return done;
}

/// Commits checked runs that neither overlap nor touch.
[[nodiscard]] Result<void, VirtualMemoryError> commit_runs(ReservationRecord& record,
                                                           std::span<const ByteRange> runs) {
  auto undo = [&record](const ByteRange& run) noexcept {
    if (withdraw(record, run, {})) {
      record.before_removal(run);
      record.committed.remove(run);
    }
  };
  RollbackLog<ByteRange, decltype(undo)> log(runs.size(), std::move(undo));
  for (const ByteRange& run : runs) {
    MEMSTRATA_TRY_VOID(commit_one(record, run));
    log.record(run);
  }
  log.keep();
  return {};
}

/// The ranges in order, with those that touch put together.
[[nodiscard]] Result<std::vector<ByteRange>, VirtualMemoryError> merged(
    std::span<const ByteRange> ranges) {
  std::vector<ByteRange> sorted(ranges.begin(), ranges.end());
  std::ranges::sort(sorted, {}, &ByteRange::offset);
  std::vector<ByteRange> runs;
  runs.reserve(sorted.size());
  for (const ByteRange& range : sorted) {
    if (runs.empty() || range.offset > runs.back().end()) {
      runs.push_back(range);
    } else if (range.offset < runs.back().end()) {
      return fail(AlreadyMapped{.offset = range.offset});
    } else {
      runs.back().size += range.size;
    }
  }
  return runs;
}

/// What a decommit keeps resident: the tail afterwards, and what of it all is given back.
struct TailPlan {
  ByteRange tail;
  ByteRange discarded;
};

[[nodiscard]] TailPlan plan_tail(const ReservationRecord& record, ByteRange range) noexcept {
  const Bytes most = record.state->options().retained_tail;
  const ByteRange next{.offset = range.end(), .size = record.state->granule()};
  const bool ends_a_run = range.end() == record.place.size ||
                          (!record.committed.first_set(next) && !record.first_shared(next));
  if (most == Bytes{} || !ends_a_run) {
    return {.tail = record.retained, .discarded = range};
  }
  const bool continues = !record.retained.empty() && record.retained.offset == range.end();
  const Bytes end = continues ? record.retained.end() : range.end();
  const Bytes kept = std::min(most, end - range.offset);
  return {.tail = {.offset = range.offset, .size = kept},
          .discarded = {.offset = range.offset + kept, .size = end - range.offset - kept}};
}

}  // namespace

Result<void, VirtualMemoryError> PageBacking::commit(Reservation& reservation, ByteRange range) {
  ReservationRecord& record = *reservation.record_;
  MEMSTRATA_TRY_VOID(record.check_range(range));
  if (record.has_only_runs() && record.committed.is_plain_extension(range)) [[likely]] {
    return extend_run(record, range);
  }
  MEMSTRATA_TRY_VOID(record.check_vacant(range));
  auto done = make_room(record, {&range, 1});
  if (done) {
    done = commit_one(record, range);
  }
  record.settle();
  return done;
}

Result<void, VirtualMemoryError> PageBacking::commit(Reservation& reservation,
                                                     std::span<const ByteRange> ranges) {
  ReservationRecord& record = *reservation.record_;
  for (const ByteRange& range : ranges) {
    MEMSTRATA_TRY_VOID(record.check_range(range));
  }
  for (const ByteRange& range : ranges) {
    MEMSTRATA_TRY_VOID(record.check_vacant(range));
  }
  try {
    MEMSTRATA_TRY(const std::vector<ByteRange> runs, merged(ranges));
    auto done = make_room(record, runs);
    if (done) {
      done = commit_runs(record, runs);
    }
    record.settle();
    return done;
  } catch (const std::exception&) {
    record.settle();
    return fail(detail::no_bookkeeping());
  }
}

Result<void, VirtualMemoryError> PageBacking::decommit(Reservation& reservation, ByteRange range) {
  ReservationRecord& record = *reservation.record_;
  MEMSTRATA_TRY_VOID(record.check_range(range));
  if (const auto clear = record.committed.first_clear(range)) {
    return fail(NotMapped{.offset = *clear});
  }
  const TailPlan plan = plan_tail(record, range);
  const bool moves_tail = !plan.tail.empty() && plan.tail != record.retained;
  if (moves_tail && !record.retained.empty() && record.retained.offset != range.end()) {
    MEMSTRATA_TRY_VOID(record.discard_retained());
  }
  // Discard first: should the protection be refused at the limit of mappings, the memory is gone all the same.
  if (!plan.discarded.empty()) {
    if (const SystemResult gone = record.advise(plan.discarded, Advice::discard); !gone.is_ok()) {
      return fail(detail::refused(SystemCallKind::advise, gone.error));
    }
    if (plan.discarded.overlaps(record.retained)) {
      record.retained.size = saturating_sub(plan.discarded.offset, record.retained.offset);
      record.settle();
    }
  }
  if (const SystemResult closed = record.protect(range, Protection::none); !closed.is_ok()) {
    // Perhaps it stopped half-way; what still counts as committed must be usable.
    static_cast<void>(record.protect(range, Protection::read_write));
    return fail(detail::refused(SystemCallKind::protect, closed.error));
  }
  record.before_removal(range);
  record.committed.remove(range);
  record.retained = plan.tail;
  record.start_over_if_empty();
  record.settle();
  return {};
}

Result<Bytes, VirtualMemoryError> PageBacking::trim_retained(Reservation& reservation) {
  ReservationRecord& record = *reservation.record_;
  const Bytes tail = record.retained.size;
  MEMSTRATA_TRY_VOID(record.discard_retained());
  return tail;
}

}  // namespace memstrata::host
