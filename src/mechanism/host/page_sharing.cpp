// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdint>
#include <exception>
#include <iterator>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "mechanism/host/backing_state.hpp"
#include "mechanism/host/prefix_record.hpp"
#include "mechanism/host/reservation_record.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/rollback.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host {

using detail::PrefixRecord;
using detail::PrefixReference;
using detail::ReservationRecord;
using detail::SharedPiece;

namespace {

using Pieces = std::map<std::uint64_t, SharedPiece>;

/// Bare address space at `range`.
[[nodiscard]] SystemResult map_nothing(ReservationRecord& record,
                                       ByteRange range,
                                       Placement placement) noexcept {
  const SystemResult mapped = record.state->call({.kind = SystemCallKind::map,
                                                  .placement = placement,
                                                  .address = record.address(range.offset),
                                                  .length = range.size.value});
  if (mapped.is_ok() && record.state->options().huge_pages &&
      !record.advise(range, Advice::huge_pages).is_ok()) {
    record.seams += 2;  // differs from its neighbours now and cannot merge with them
  }
  return mapped;
}

/// Private writable pages at `range`, in place of what is there.
[[nodiscard]] SystemResult map_private(ReservationRecord& record, ByteRange range) noexcept {
  const SystemResult mapped = record.state->call({.kind = SystemCallKind::map,
                                                  .protection = Protection::read_write,
                                                  .placement = Placement::replace,
                                                  .address = record.address(range.offset),
                                                  .length = range.size.value});
  if (mapped.is_ok() && record.state->options().huge_pages &&
      !record.advise(range, Advice::huge_pages).is_ok()) {
    record.seams += 2;
  }
  return mapped;
}

/// Bytes of `prefix` from `from` on, read-only at `range`.
[[nodiscard]] SystemResult map_prefix(ReservationRecord& record,
                                      ByteRange range,
                                      const PrefixRecord& prefix,
                                      Bytes from,
                                      Placement placement) noexcept {
  return record.state->call({.kind = SystemCallKind::map,
                             .protection = Protection::read,
                             .placement = placement,
                             .descriptor = prefix.file().reader(),
                             .address = record.address(range.offset),
                             .length = range.size.value,
                             .offset = (prefix.offset + from).value});
}

/// The piece that holds the shared granule at `offset`.
[[nodiscard]] Pieces::iterator piece_at(ReservationRecord& record, Bytes offset) noexcept {
  return std::prev(record.pieces.upper_bound(offset.value));
}

/// Cuts the pieces at both ends of `range`, so that `range` is a whole number of pieces. Their sum does not
/// change. May throw `std::bad_alloc`; a cut that was made stays, which is harmless.
void cut_at_ends(ReservationRecord& record, ByteRange range) {
  for (const Bytes at : {range.offset, range.end()}) {
    if (record.pieces.empty() || record.pieces.upper_bound(at.value) == record.pieces.begin()) {
      continue;
    }
    const auto piece = piece_at(record, at);
    const Bytes start{piece->first};
    if (start == at || start + piece->second.size <= at) {
      continue;
    }
    const Bytes lower = at - start;
    SharedPiece upper{.size = piece->second.size - lower,
                      .prefix_offset = piece->second.prefix_offset + lower,
                      .prefix = piece->second.prefix};
    record.pieces.emplace(at.value, std::move(upper));
    piece->second.size = lower;
  }
}

/// Puts pieces together again that `cut_at_ends` cut and nobody needed cut.
void heal_cut(ReservationRecord& record, Bytes at) noexcept {
  const auto upper = record.pieces.find(at.value);
  if (upper == record.pieces.end() || upper == record.pieces.begin()) {
    return;
  }
  const auto lower = std::prev(upper);
  if (Bytes{lower->first} + lower->second.size == at &&
      lower->second.prefix.record() == upper->second.prefix.record() &&
      lower->second.prefix_offset + lower->second.size == upper->second.prefix_offset) {
    lower->second.size += upper->second.size;
    record.pieces.erase(upper);
  }
}

/// Forgets the pieces of `range`, which is cut at its ends; the bytes whose last reference went.
[[nodiscard]] Bytes forget_pieces(ReservationRecord& record, ByteRange range) noexcept {
  Bytes gone;
  auto piece = record.pieces.find(range.offset.value);
  while (piece != record.pieces.end() && Bytes{piece->first} < range.end()) {
    record.shared -= piece->second.size;
    gone += piece->second.prefix.release();
    piece = record.pieces.erase(piece);
  }
  return gone;
}

/// One shared piece that is being replaced by a private copy.
struct Break {
  ByteRange range;
  PrefixRecord* prefix;
  Bytes from;
};

[[nodiscard]] SystemResult copy_from_prefix(ReservationRecord& record,
                                            const Break& piece) noexcept {
  for (Bytes done; done < piece.range.size;) {
    const SystemResult read =
        record.state->call({.kind = SystemCallKind::read_file,
                            .descriptor = piece.prefix->file().reader(),
                            .address = record.address(piece.range.offset + done),
                            .length = (piece.range.size - done).value,
                            .offset = (piece.prefix->offset + piece.from + done).value});
    if (read.error == EINTR) {
      continue;
    }
    if (!read.is_ok()) {
      return read;
    }
    if (read.value == 0) {
      return {.error = EIO};  // the file is shorter than the prefix, which cannot be
    }
    done += Bytes{read.value};
  }
  return {};
}

/// Undoes a break: the shared granules come back, or else the place is bare and its piece forgotten.
void mend(ReservationRecord& record, const Break& piece) noexcept {
  if (map_prefix(record, piece.range, *piece.prefix, piece.from, Placement::replace).is_ok()) {
    return;
  }
  const bool bare = map_nothing(record, piece.range, Placement::replace).is_ok();
  static_cast<void>(forget_pieces(record, piece.range));
  if (!bare) {
    record.committed.insert(piece.range);  // still private memory, and still charged
  }
}

/// Makes one piece private and copies its content. After a failure it is shared as before, or bare.
[[nodiscard]] Result<void, VirtualMemoryError> break_one(ReservationRecord& record,
                                                         const Break& piece) {
  if (const SystemResult mapped = map_private(record, piece.range); !mapped.is_ok()) {
    // Some kernels have taken the old mapping away by then; what is there now stays.
    static_cast<void>(
        map_prefix(record, piece.range, *piece.prefix, piece.from, Placement::if_vacant));
    return fail(detail::refused(SystemCallKind::map, mapped.error));
  }
  if (record.state->options().populate) {
    if (const SystemResult filled = record.populate(piece.range); !filled.is_ok()) {
      mend(record, piece);
      return fail(detail::refused(SystemCallKind::advise, filled.error));
    }
  }
  if (const SystemResult copied = copy_from_prefix(record, piece); !copied.is_ok()) {
    mend(record, piece);
    return fail(detail::refused(SystemCallKind::read_file, copied.error));
  }
  return {};
}

[[nodiscard]] Result<void, VirtualMemoryError> break_pieces(ReservationRecord& record,
                                                            std::span<const Break> pieces) {
  auto undo = [&record](const Break& piece) noexcept { mend(record, piece); };
  RollbackLog<Break, decltype(undo)> log(pieces.size(), std::move(undo));
  for (const Break& piece : pieces) {
    MEMSTRATA_TRY_VOID(break_one(record, piece));
    log.record(piece);
  }
  log.keep();
  return {};
}

/// The pieces of `range`, which is cut at its ends.
[[nodiscard]] std::vector<Break> breaks_of(ReservationRecord& record, ByteRange range) {
  std::vector<Break> found;
  for (auto piece = record.pieces.find(range.offset.value);
       piece != record.pieces.end() && Bytes{piece->first} < range.end();
       ++piece) {
    found.push_back({.range = {.offset = Bytes{piece->first}, .size = piece->second.size},
                     .prefix = piece->second.prefix.record(),
                     .from = piece->second.prefix_offset});
  }
  return found;
}

/// Cuts, budget, lease and map for a break, before its first side effect.
[[nodiscard]] Result<void, VirtualMemoryError> make_room_for_break(ReservationRecord& record,
                                                                   ByteRange range) {
  const std::uint64_t before = record.counted_mappings;
  cut_at_ends(record, range);
  record.committed.prepare(range);
  // While it is undecided a place may be either, so both are counted.
  const std::uint64_t most = record.needed_mappings() + 2;
  if (most > before) {
    MEMSTRATA_TRY_VOID(record.state->take_mappings(most - before));
    record.counted_mappings = most;
  }
  return record.claim("break_shared", range.size);
}

[[nodiscard]] Result<void, VirtualMemoryError> break_range(ReservationRecord& record,
                                                           ByteRange range) {
  MEMSTRATA_TRY_VOID(make_room_for_break(record, range));
  const std::vector<Break> pieces = breaks_of(record, range);
  MEMSTRATA_TRY_VOID(break_pieces(record, pieces));
  static_cast<void>(forget_pieces(record, range));
  record.before_piece_goes();
  const std::uint64_t runs = record.committed.runs();
  record.committed.insert(range);
  record.after_run(range, runs);
  return {};
}

}  // namespace

Result<void, VirtualMemoryError> PageBacking::map_shared(Reservation& reservation,
                                                         Bytes offset,
                                                         const Prefix& prefix,
                                                         ByteRange part) {
  ReservationRecord& record = *reservation.record_;
  const ByteRange place{.offset = offset, .size = part.size};
  if (!owns(prefix)) {
    return fail(PrefixRefused{.operation = "map_shared",
                              .reason = "the prefix was made by another backing"});
  }
  MEMSTRATA_TRY_VOID(detail::check_inside(part, prefix.size(), state_->granule()));
  MEMSTRATA_TRY_VOID(record.check_range(place));
  MEMSTRATA_TRY_VOID(record.check_vacant(place));
  MEMSTRATA_TRY_VOID(state_->take_mappings(2));
  record.counted_mappings += 2;
  record.before_piece();
  const auto settled = [&record](Result<void, VirtualMemoryError> result) {
    record.settle();
    return result;
  };
  Pieces::iterator piece;
  try {
    piece = record.pieces
                .emplace(offset.value,
                         SharedPiece{.size = part.size,
                                     .prefix_offset = part.offset,
                                     .prefix = prefix.reference_})
                .first;
  } catch (const std::exception&) {
    return settled(fail(detail::no_bookkeeping()));
  }
  if (place.overlaps(record.retained)) {
    if (auto trimmed = record.discard_retained(); !trimmed) {
      record.pieces.erase(piece);
      return settled(std::move(trimmed));
    }
  }
  const PrefixRecord& source = *prefix.reference_.record();
  SystemResult mapped = map_prefix(record, place, source, part.offset, Placement::replace);
  SystemCallKind failed = SystemCallKind::map;
  if (!mapped.is_ok()) {
    // Some kernels have taken the old mapping away by then; nobody else may get the hole.
    static_cast<void>(map_nothing(record, place, Placement::if_vacant));
  } else if (state_->options().populate_shared) {
    failed = SystemCallKind::advise;
    mapped = record.advise(place, Advice::populate_read);
    if (!mapped.is_ok() && !map_nothing(record, place, Placement::replace).is_ok()) {
      mapped =
          {};  // it cannot be taken away again, so it is what was asked for, only not filled in
    }
  }
  if (!mapped.is_ok()) {
    record.pieces.erase(piece);
    return settled(fail(detail::refused(failed, mapped.error)));
  }
  record.claim_stray(place);
  record.shared += part.size;
  record.had_pieces = true;
  return settled({});
}

Result<void, VirtualMemoryError> PageBacking::break_shared(Reservation& reservation,
                                                           ByteRange range) {
  ReservationRecord& record = *reservation.record_;
  MEMSTRATA_TRY_VOID(record.check_range(range));
  MEMSTRATA_TRY_VOID(record.check_shared(range));
  Result<void, VirtualMemoryError> done;
  try {
    done = break_range(record, range);
  } catch (const std::exception&) {
    done = fail(detail::no_bookkeeping());
  }
  heal_cut(record, range.end());
  heal_cut(record, range.offset);
  record.settle();
  return done;
}

Result<Bytes, VirtualMemoryError> PageBacking::unmap_shared(Reservation& reservation,
                                                            ByteRange range) {
  ReservationRecord& record = *reservation.record_;
  MEMSTRATA_TRY_VOID(record.check_range(range));
  MEMSTRATA_TRY_VOID(record.check_shared(range));
  try {
    cut_at_ends(record, range);
  } catch (const std::exception&) {
    heal_cut(record, range.offset);
    return fail(detail::no_bookkeeping());
  }
  SystemResult bare = map_nothing(record, range, Placement::replace);
  if (!bare.is_ok() && map_nothing(record, range, Placement::if_vacant).is_ok()) {
    bare = {};  // the kernel had unmapped it before it failed; now the place is bare, as was asked
  }
  if (!bare.is_ok()) {
    heal_cut(record, range.end());
    heal_cut(record, range.offset);
    record.settle();
    return fail(detail::refused(SystemCallKind::map, bare.error));
  }
  record.before_piece_goes();
  const Bytes gone = forget_pieces(record, range);
  record.start_over_if_empty();
  record.settle();
  return gone;
}

Result<PrefixBuilder, VirtualMemoryError> PageBacking::create_prefix(Bytes size) {
  const Bytes granule = state_->granule();
  MEMSTRATA_TRY_VOID(detail::check_length("prefix length", size, granule));
  const Bytes largest = align_down(detail::PrefixArena::length, granule);
  if (size > largest) {
    return fail(TooLarge{.what = "prefix length", .value = size, .largest = largest});
  }
  if (state_->has_parked()) {
    state_->retry_parked();
  }
  try {
    MEMSTRATA_TRY(PrefixReference reference, detail::create_prefix(state_, size));
    return PrefixBuilder(std::move(reference));
  } catch (const std::exception&) {
    return fail(detail::no_bookkeeping());
  }
}

}  // namespace memstrata::host
