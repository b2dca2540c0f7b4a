// SPDX-License-Identifier: Apache-2.0
#include "mechanism/host/backing_state.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "mechanism/host/prefix_record.hpp"
#include "mechanism/host/record_list.hpp"
#include "mechanism/host/reservation_record.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host::detail {
namespace {

constinit ProcessCount mappings_of_the_process;
constinit ProcessCount descriptors_of_the_process;

/// The part of a limit that we allow ourselves, in percent; the rest is for everybody else in the process.
/// Source: at the limit itself, thread stacks can no longer be made (docs/decisions.md).
constexpr std::uint64_t share_of_limit = 75;

[[nodiscard]] std::uint64_t our_share(std::uint64_t limit) noexcept {
  return limit / 100 * share_of_limit + limit % 100 * share_of_limit / 100;
}

}  // namespace

bool ProcessCount::try_add(std::uint64_t extra, std::optional<std::uint64_t> limit) noexcept {
  if (!limit) {
    add(extra);
    return true;
  }
  std::uint64_t now = used();
  do {
    if (now > *limit || extra > *limit - now) {
      return false;
    }
  } while (!used_.compare_exchange_weak(now, now + extra, std::memory_order_relaxed));
  return true;
}

ProcessCount& process_mappings() noexcept {
  return mappings_of_the_process;
}

ProcessCount& process_descriptors() noexcept {
  return descriptors_of_the_process;
}

VirtualMemoryError refused(SystemCallKind kind, int code) noexcept {
  ErrorText reason("the kernel gave no reason");
  try {
    reason = ErrorText::copy(std::generic_category().message(code));
  } catch (const std::exception&) {
    reason = ErrorText("the reason could not be stored: no memory");
  }
  return Os{.operation = function_name(kind), .reason = std::move(reason), .code = code};
}

VirtualMemoryError no_bookkeeping() noexcept {
  return Os{.operation = "bookkeeping",
            .reason = "no memory for the books of the backing",
            .code = ENOMEM};
}

BackingState::BackingState(PageBackingOptions options, std::optional<std::uint64_t> mapping_limit)
    : options_(std::move(options)),
      calls_(options_.system_calls != nullptr ? options_.system_calls : real_system_calls()) {
  if (is_power_of_two(options_.granule.value)) {
    granule_mask_ = options_.granule.value - 1;
  }
  if (options_.mapping_budget) {
    if (options_.mapping_limit) {
      mapping_limit_ = options_.mapping_limit;
    } else if (mapping_limit) {
      mapping_limit_ = our_share(*mapping_limit);
    }
  }
}

Result<void, VirtualMemoryError> BackingState::take_mappings(std::uint64_t extra) noexcept {
  if (!process_mappings().try_add(extra, mapping_limit_)) {
    return fail(MappingBudget{.used = process_mappings().used() + extra,
                              .limit = mapping_limit_.value_or(0),
                              .setting = "vm.max_map_count"});
  }
  return {};
}

std::optional<std::uint64_t> BackingState::known_descriptor_limit() const noexcept {
  if (options_.descriptor_limit) {
    return options_.descriptor_limit;
  }
  const std::uint64_t known = descriptor_limit_.load(std::memory_order_relaxed);
  return known == 0 ? std::nullopt : std::optional(known - 1);
}

std::optional<std::uint64_t> BackingState::descriptor_limit() noexcept {
  if (const auto known = known_descriptor_limit()) {
    return known;
  }
  const SystemResult raised = call({.kind = SystemCallKind::raise_descriptor_limit});
  if (!raised.is_ok()) {
    return std::nullopt;
  }
  const std::uint64_t limit = our_share(raised.value);
  descriptor_limit_.store(limit + 1, std::memory_order_relaxed);
  return limit;
}

SystemResult BackingState::populate(ByteRange where) noexcept {
  const SystemResult filled = call({.kind = SystemCallKind::advise,
                                    .advice = Advice::populate_write,
                                    .address = where.offset.value,
                                    .length = where.size.value});
  if (filled.error != EINVAL) {
    return filled;
  }
  // Before Linux 5.14 there is no such advice: touch each page without changing it.
  for (Bytes at = where.offset; at < where.end(); at += page_size()) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses of calls are numbers
    auto* const byte = reinterpret_cast<std::uint8_t*>(static_cast<std::uintptr_t>(at.value));
    std::atomic_ref<std::uint8_t>(*byte).fetch_or(0, std::memory_order_relaxed);
  }
  return {};
}

void BackingState::enlist(ReservationRecord& record) noexcept {
  const MutexLock lock(mutex_);
  reservations_.add(record);
}

void BackingState::enlist(PrefixRecord& record) noexcept {
  const MutexLock lock(mutex_);
  prefixes_.add(record);
}

bool BackingState::unmap(const ReservationRecord& record) noexcept {
  return call({.kind = SystemCallKind::unmap,
               .address = record.mapping.offset.value,
               .length = record.mapping.size.value})
      .is_ok();
}

void BackingState::forget(ReservationRecord* record) noexcept {
  process_mappings().subtract(record->counted_mappings);
  delete record;
}

void BackingState::drop(ReservationRecord* record) noexcept {
  const bool gone = unmap(*record);
  if (!gone) {
    // The addresses stay ours. Bare address space in their place gives back at least what lies behind them.
    const SystemCall replace{.kind = SystemCallKind::map,
                             .placement = Placement::replace,
                             .address = record->mapping.offset.value,
                             .length = record->mapping.size.value};
    if (call(replace).is_ok()) {
      record->pieces.clear();
      record->lease.reset();
    }
  }
  {
    const MutexLock lock(mutex_);
    reservations_.remove(*record);
    if (!gone) {
      parked_reservations_.add(*record);
      parked_count_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  if (gone) {
    forget(record);
  }
}

void BackingState::dispose(PrefixRecord* record) noexcept {
  const bool gone = record->give_back(*this);
  {
    const MutexLock lock(mutex_);
    prefixes_.remove(*record);
    if (!gone) {
      parked_prefixes_.add(*record);
      parked_count_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  if (gone) {
    delete record;
  }
}

void BackingState::retry_parked() noexcept {
  RecordList<ReservationRecord> reservations;
  RecordList<PrefixRecord> prefixes;
  {
    const MutexLock lock(mutex_);
    std::swap(reservations, parked_reservations_);
    std::swap(prefixes, parked_prefixes_);
    parked_count_.fetch_sub(reservations.size() + prefixes.size(), std::memory_order_relaxed);
  }
  while (ReservationRecord* const record = reservations.front()) {
    reservations.remove(*record);
    if (unmap(*record)) {
      forget(record);
      continue;
    }
    const MutexLock lock(mutex_);
    parked_reservations_.add(*record);
    parked_count_.fetch_add(1, std::memory_order_relaxed);
  }
  while (PrefixRecord* const record = prefixes.front()) {
    prefixes.remove(*record);
    if (record->give_back(*this)) {
      delete record;
      continue;
    }
    const MutexLock lock(mutex_);
    parked_prefixes_.add(*record);
    parked_count_.fetch_add(1, std::memory_order_relaxed);
  }
}

BackingState::~BackingState() {
  retry_parked();
  // What the kernel still refuses stays counted for the process; only our notes about it end here.
  const MutexLock lock(mutex_);
  while (ReservationRecord* const record = parked_reservations_.front()) {
    parked_reservations_.remove(*record);
    delete record;
  }
  while (PrefixRecord* const record = parked_prefixes_.front()) {
    parked_prefixes_.remove(*record);
    delete record;
  }
}

ParkedMemory BackingState::parked() const noexcept {
  ParkedMemory found{};
  const MutexLock lock(mutex_);
  parked_reservations_.for_each([&](const ReservationRecord& record) {
    ++found.ranges;
    found.address_space += record.mapping.size;
  });
  parked_prefixes_.for_each([&](const PrefixRecord& record) {
    if (record.window != 0) {
      ++found.ranges;
      found.address_space += record.size;
    }
    found.prefix_bytes += record.size;
  });
  return found;
}

std::vector<ByteRange> BackingState::reservation_ranges() const {
  std::vector<ByteRange> ranges;
  for (;;) {
    std::size_t needed = 0;
    {
      const MutexLock lock(mutex_);
      needed = reservations_.size() + parked_reservations_.size();
      if (needed <= ranges.capacity()) {
        const auto note = [&](const ReservationRecord& record) {
          ranges.push_back(record.mapping);
        };
        reservations_.for_each(note);
        parked_reservations_.for_each(note);
        return ranges;
      }
    }
    ranges.reserve(needed + needed / 4);  // nothing is allocated under the mutex
  }
}

std::vector<PrefixReference> BackingState::live_prefixes() const {
  std::vector<PrefixReference> found;
  for (;;) {
    std::size_t needed = 0;
    {
      const MutexLock lock(mutex_);
      needed = prefixes_.size();
      if (needed <= found.capacity()) {
        prefixes_.for_each([&](PrefixRecord& record) {
          if (record.try_refer()) {
            found.emplace_back(&record);
          }
        });
        return found;
      }
    }
    found.reserve(needed + needed / 4);
  }
}

std::shared_ptr<PrefixArena> BackingState::arena() const {
  const MutexLock lock(mutex_);
  return arena_.lock();
}

std::shared_ptr<PrefixArena> BackingState::install_arena(const std::shared_ptr<PrefixArena>& seen,
                                                         const std::shared_ptr<PrefixArena>& made) {
  std::shared_ptr<PrefixArena> now;  // lets go, if it is the last, after the mutex
  const MutexLock lock(mutex_);
  now = arena_.lock();
  if (now == nullptr || now == seen) {
    arena_ = made;
    return made;
  }
  return now;
}

}  // namespace memstrata::host::detail
