// SPDX-License-Identifier: Apache-2.0
#include "memstrata/mechanism/host/page_backing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mechanism/host/backing_state.hpp"
#include "mechanism/host/prefix_record.hpp"
#include "mechanism/host/reservation_record.hpp"
#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/contract/platform_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/host_limits.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host {

using detail::ReservationRecord;

namespace {

/// Where a reservation of `length` begins: at a granule, and at a huge page if it is as long as one.
[[nodiscard]] Bytes alignment_for(Bytes length, Bytes granule) noexcept {
  const Bytes by_granule = is_power_of_two(granule.value) ? granule : page_size();
  return length >= huge_page_size() ? std::max(by_granule, huge_page_size()) : by_granule;
}

[[nodiscard]] Result<void, VirtualMemoryError> check_options(const PageBackingOptions& options) {
  MEMSTRATA_TRY_VOID(detail::check_length("granule", options.granule, page_size()));
  if (options.retained_tail == Bytes{}) {
    return {};
  }
  MEMSTRATA_TRY_VOID(detail::check_length("retained tail", options.retained_tail, options.granule));
  if (options.governor == nullptr) {
    return fail(VirtualMemoryError::delegated(
        "create a page backing",
        MemoryError(InvalidRequest{.tier = Tier::host,
                                   .requested = options.retained_tail,
                                   .reason = "a retained tail is held memory and needs a "
                                             "governor that is charged for it"})));
  }
  return {};
}

}  // namespace

namespace detail {

void ReservationRelease::operator()(ReservationRecord* record) const noexcept {
  // The state may live only through this record.
  const std::shared_ptr<BackingState> state = std::move(record->state);
  state->drop(record);
}

}  // namespace detail

PageBacking::Reservation::Reservation(
    std::unique_ptr<ReservationRecord, detail::ReservationRelease> record,
    DeviceAddress base,
    Bytes size) noexcept
    : record_(std::move(record)), base_(base), size_(size) {}

std::byte* PageBacking::Reservation::data() const noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): this is where a host address becomes a pointer
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(base_.value()));
}

PageBacking::PageBacking(std::shared_ptr<detail::BackingState> state) noexcept
    : state_(std::move(state)) {}

Result<PageBacking, VirtualMemoryError> PageBacking::create() {
  return create(PageBackingOptions{});
}

Result<PageBacking, VirtualMemoryError> PageBacking::create(PageBackingOptions options) {
  try {
    MEMSTRATA_TRY_VOID(check_options(options));
    const bool asks_the_system = options.mapping_budget && !options.mapping_limit;
    const auto limit = asks_the_system ? read_mapping_limit().value() : std::nullopt;
    return PageBacking(std::make_shared<detail::BackingState>(std::move(options), limit));
  } catch (const std::exception&) {
    return fail(detail::no_bookkeeping());
  }
}

Bytes PageBacking::granularity() const noexcept {
  return state_->granule();
}

const PageBackingOptions& PageBacking::options() const noexcept {
  return state_->options();
}

PhysicalMemoryAccounting PageBacking::physical_memory_accounting() const noexcept {
  const auto& governor = state_->options().governor;
  return governor == nullptr ? PhysicalMemoryAccounting::buffer()
                             : PhysicalMemoryAccounting::backing(governor->authority_id());
}

Bytes PageBacking::committed(const Reservation& reservation) const noexcept {
  return reservation.record_->committed.total();
}

Bytes PageBacking::shared(const Reservation& reservation) const noexcept {
  return reservation.record_->shared;
}

Bytes PageBacking::retained(const Reservation& reservation) const noexcept {
  return reservation.record_->retained.size;
}

std::uint64_t PageBacking::mappings(const Reservation& reservation) const noexcept {
  return reservation.record_->counted_mappings;
}

Bytes PageBacking::committed_in(const Reservation& reservation, ByteRange range) const noexcept {
  return reservation.record_->committed.count(range);
}

Bytes PageBacking::shared_in(const Reservation& reservation, ByteRange range) const noexcept {
  Bytes sum;
  const auto& pieces = reservation.record_->pieces;
  auto piece = pieces.upper_bound(range.offset.value);
  if (piece != pieces.begin()) {
    --piece;
  }
  for (; piece != pieces.end() && Bytes{piece->first} < range.end(); ++piece) {
    const Bytes first = std::max(Bytes{piece->first}, range.offset);
    const Bytes last = std::min(Bytes{piece->first} + piece->second.size, range.end());
    sum += saturating_sub(last, first);
  }
  return sum;
}

std::vector<ByteRange> PageBacking::committed_runs(const Reservation& reservation,
                                                   ByteRange range) const {
  return reservation.record_->committed.set_runs(range);
}

std::vector<ByteRange> PageBacking::vacant_runs(const Reservation& reservation,
                                                ByteRange range) const {
  const ReservationRecord& record = *reservation.record_;
  std::vector<ByteRange> found;
  for (const ByteRange& clear : record.committed.clear_runs(range)) {
    Bytes at = clear.offset;
    while (at < clear.end()) {
      const ByteRange rest{.offset = at, .size = clear.end() - at};
      const Bytes piece = record.first_shared(rest).value_or(clear.end());
      if (piece > at) {
        found.push_back({.offset = at, .size = piece - at});
      }
      at = piece;
      if (at < clear.end()) {
        const auto held = std::prev(record.pieces.upper_bound(at.value));
        at = std::min(Bytes{held->first} + held->second.size, clear.end());
      }
    }
  }
  return found;
}

BudgetUsage PageBacking::mapping_usage() const noexcept {
  return {.used = detail::process_mappings().used(), .limit = state_->mapping_limit()};
}

BudgetUsage PageBacking::descriptor_usage() const noexcept {
  return {.used = detail::process_descriptors().used(), .limit = state_->known_descriptor_limit()};
}

PageBacking& PageBacking::operator=(PageBacking&& other) noexcept {
  PageBacking moved(std::move(other));
  std::swap(state_, moved.state_);
  return *this;
}

PageBacking::~PageBacking() {
  if (state_ != nullptr && state_->has_parked()) {
    state_->retry_parked();
  }
}

ParkedMemory PageBacking::parked() const noexcept {
  return state_->parked();
}

ParkedMemory PageBacking::retry_parked() noexcept {
  state_->retry_parked();
  return state_->parked();
}

bool PageBacking::owns(const Prefix& prefix) const noexcept {
  return prefix.reference_.record()->state == state_;
}

Result<PageBacking::Reservation, VirtualMemoryError> PageBacking::reserve(Bytes length) {
  const Bytes granule = state_->granule();
  MEMSTRATA_TRY_VOID(detail::check_length("reservation length", length, granule));
  const Bytes alignment = alignment_for(length, granule);
  // A page in front and one behind stay ours and untouched, so that no foreign mapping ever merges with a run.
  const Bytes slack = alignment + page_size();
  const auto whole = checked_add(length, slack);
  if (!whole) {
    return fail(TooLarge{.what = "reservation length",
                         .value = length,
                         .largest = align_down(Bytes::max() - slack, granule)});
  }
  if (state_->has_parked()) {
    state_->retry_parked();
  }
  std::optional<MemoryLease> lease;
  if (const auto& governor = state_->options().governor) {
    auto empty =
        governor->reserve(Tier::host, Bytes{}, state_->options().role, state_->options().holder);
    if (!empty) {
      return fail(VirtualMemoryError::delegated("reserve", std::move(empty).error()));
    }
    lease = std::move(*empty);
  }
  MEMSTRATA_TRY_VOID(state_->take_mappings(1));
  const SystemResult mapped = state_->call({.kind = SystemCallKind::map, .length = whole->value});
  if (!mapped.is_ok()) {
    detail::process_mappings().subtract(1);
    return fail(detail::refused(SystemCallKind::map, mapped.error));
  }
  const ByteRange mapping{.offset = Bytes{mapped.value}, .size = *whole};
  const Bytes base = align_up(mapping.offset + page_size(), alignment).value_or(mapping.offset);
  try {
    std::unique_ptr<ReservationRecord, detail::ReservationRelease> record(
        new ReservationRecord(state_, mapping, {.offset = base, .size = length}));
    record->lease = std::move(lease);
    state_->enlist(*record);
    if (state_->options().huge_pages) {
      // Without transparent huge pages in the kernel this is refused, and ordinary pages serve.
      static_cast<void>(record->advise({.offset = Bytes{}, .size = length}, Advice::huge_pages));
    }
    return Reservation(std::move(record), DeviceAddress{base.value}, length);
  } catch (const std::exception&) {
    static_cast<void>(state_->call(
        {.kind = SystemCallKind::unmap, .address = mapped.value, .length = whole->value}));
    detail::process_mappings().subtract(1);
    return fail(detail::no_bookkeeping());
  }
}

std::string PageBacking::describe(const Reservation& reservation) const {
  const ReservationRecord& record = *reservation.record_;
  return fmt::format(
      "host reservation at {:#x}: {} bytes, {} committed in {} runs, {} shared in {} pieces, {} "
      "retained, {} "
      "mappings",
      record.place.offset.value,
      record.place.size.value,
      record.committed.total().value,
      record.committed.runs(),
      record.shared.value,
      record.pieces.size(),
      record.retained.size.value,
      record.counted_mappings);
}

}  // namespace memstrata::host
