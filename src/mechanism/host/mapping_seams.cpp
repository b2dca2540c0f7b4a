// SPDX-License-Identifier: Apache-2.0

// Why this file exists. Linux merges neighbouring private mappings of equal protection only if their pages hang
// under the same owner (an "anon_vma") or one of them has none yet. A run that is committed and touched on its
// own, with untouched address space on both sides, gets an owner of its own; after many such runs have come and
// gone, the reservation is left in as many pieces as there ever were runs, although nothing is committed. (3,000
// isolated runs of 64 KiB, committed and released: 3,000 mappings remain; with the steps below 1. Linux 6.18.)
// A page next to the first run that is made writable for a moment merges with the run and, when it is protected
// again, takes the owner along into the gap, which then shares it with all that is later cut out of it. Two
// cheap calls per side, once per reservation, and the count of mappings is exact from then on. Only where a prefix
// separates the gaps, or where nothing is populated and the steps would cost a third of a commit, owners may
// differ: there each place where two may meet is counted as a mapping more.

#include <cstdint>
#include <optional>

#include "mechanism/host/reservation_record.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host::detail {

void ReservationRecord::heal_stray() noexcept {
  if (stray &&
      state->call({.kind = SystemCallKind::protect, .address = *stray, .length = page_size().value})
          .is_ok()) {
    stray.reset();
  }
}

void ReservationRecord::claim_stray(ByteRange range) noexcept {
  const ByteRange taken{.offset = place.offset + range.offset, .size = range.size};
  if (stray && taken.overlaps({.offset = Bytes{*stray}, .size = page_size()})) {
    stray.reset();
  }
}

void ReservationRecord::spread_into(std::uint64_t page) noexcept {
  heal_stray();
  const SystemCall open{.kind = SystemCallKind::protect,
                        .protection = Protection::read_write,
                        .address = page,
                        .length = page_size().value};
  if (stray || !state->call(open).is_ok()) {
    ++seams;
    return;
  }
  stray = page;
  heal_stray();
  if (stray) {
    ++seams;
  }
}

void ReservationRecord::spread_to_both_sides(ByteRange run) noexcept {
  const auto is_vacant = [this](Bytes offset) {
    const ByteRange granule{.offset = offset, .size = state->granule()};
    return offset >= place.size ||
           (!committed.first_set(granule).has_value() && !first_shared(granule).has_value());
  };
  if (is_vacant(run.end())) {
    spread_into(address(run.end()));
  }
  if (run.offset == Bytes{} || is_vacant(run.offset - state->granule())) {
    spread_into(address(run.offset) - page_size().value);
  }
}

void ReservationRecord::join_gaps() noexcept {
  const ByteRange everything{.offset = Bytes{}, .size = place.size};
  const Bytes start = committed.first_set(everything).value_or(Bytes{});
  const ByteRange rest{.offset = start, .size = place.size - start};
  const Bytes end = committed.first_clear(rest).value_or(place.size);
  spread_to_both_sides({.offset = start, .size = end - start});
  gaps_joined = true;
}

void ReservationRecord::before_piece() noexcept {
  if (committed.runs() == 1 && !gaps_joined && !had_pieces && state->options().populate) {
    join_gaps();
  }
}

void ReservationRecord::after_run(ByteRange run, std::uint64_t runs_before) noexcept {
  const bool begun = committed.runs() > runs_before;
  if (had_pieces && begun) {
    if (state->options().populate) {
      spread_to_both_sides(run);
    }
    mixed_owners = mixed_owners || !pieces.empty() || !state->options().populate;
  } else if (!state->options().populate) {
    // Runs that join keep a seam where two owners meet.
    seams += mixed_owners && committed.runs() < runs_before ? 1U : 0U;
    mixed_owners = mixed_owners || (begun && runs_before != 0);
  }
}

void ReservationRecord::before_removal(ByteRange range) noexcept {
  // What is cut from the end of a run, or is all of it, meets a gap that may have another owner.
  if (mixed_owners && !state->options().populate &&
      committed.runs_after_remove(range) <= committed.runs()) {
    ++seams;
  }
}

void ReservationRecord::start_over_if_empty() noexcept {
  if (seams == 0 || committed.runs() != 0 || !pieces.empty() || !retained.empty()) {
    return;
  }
  SystemCall fresh{.kind = SystemCallKind::map,
                   .placement = Placement::replace,
                   .address = mapping.offset.value,
                   .length = mapping.size.value};
  if (!state->call(fresh).is_ok()) {
    // Some kernels have taken the old mapping away by then; nobody else may get the hole.
    fresh.placement = Placement::if_vacant;
    if (!state->call(fresh).is_ok()) {
      return;
    }
  }
  gaps_joined = false;
  had_pieces = false;
  mixed_owners = false;
  seams = 0;
  stray.reset();
  if (state->options().huge_pages) {
    static_cast<void>(advise({.offset = Bytes{}, .size = place.size}, Advice::huge_pages));
  }
}

}  // namespace memstrata::host::detail
