// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "mechanism/host/backing_state.hpp"
#include "mechanism/host/record_list.hpp"
#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/commit_map.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host::detail {

/// `value` is a whole number of granules and not zero.
[[nodiscard]] Result<void, VirtualMemoryError> check_length(const char* what,
                                                            Bytes value,
                                                            Bytes granule);
/// `range` is a whole number of granules, not empty, and lies in the first `whole` bytes.
[[nodiscard]] Result<void, VirtualMemoryError> check_inside(ByteRange range,
                                                            Bytes whole,
                                                            Bytes granule);

/// A part of a prefix that is mapped into a reservation.
struct SharedPiece {
  Bytes size;
  Bytes prefix_offset;
  PrefixReference prefix;
};

/// Everything known about one reservation. Single-threaded, but for the members that never change.
struct ReservationRecord {
  ReservationRecord(std::shared_ptr<BackingState> owner, ByteRange whole, ByteRange usable) noexcept
      : state(std::move(owner)), mapping(whole), place(usable), committed(state->granule()) {}

  std::shared_ptr<BackingState> state;
  const ByteRange mapping;  ///< What was mapped, with slack on both sides. Addresses.
  const ByteRange place;    ///< What the caller may use. Addresses.

  CommitMap committed;                          ///< Private granules, as offsets.
  std::map<std::uint64_t, SharedPiece> pieces;  ///< By offset; disjoint.
  Bytes shared;                                 ///< Sum of the pieces.
  ByteRange retained;                           ///< Resident but protected, or empty. Offsets.
  std::optional<MemoryLease> lease;  ///< Committed and retained, if the backing accounts.

  // Private mappings merge only if the kernel has them under one page-table owner (an anon_vma), which a
  // separately touched run does not share with the gap beside it. See mapping_seams.cpp.
  bool gaps_joined = false;            ///< The gaps were given the owner of the only run.
  bool had_pieces = false;             ///< A prefix was mapped here, now or before.
  bool mixed_owners = false;           ///< Runs may have different owners.
  std::uint64_t seams = 0;             ///< Mappings that may exist beyond runs, gaps and pieces.
  std::optional<std::uint64_t> stray;  ///< Page that could not be protected again. Address.
  std::uint64_t counted_mappings = 1;  ///< What the budget was charged for this record.

  RecordLinks<ReservationRecord> links;

  [[nodiscard]] std::uint64_t address(Bytes offset) const noexcept {
    return (place.offset + offset).value;
  }

  [[nodiscard]] std::byte* pointer(Bytes offset) const noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the record keeps addresses as numbers
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address(offset)));
  }

  /// Mappings that the kernel may need for what the record holds now.
  [[nodiscard]] std::uint64_t needed_mappings() const noexcept {
    return 1 + 2 * committed.runs() + 2 * static_cast<std::uint64_t>(pieces.size()) + seams;
  }

  /// Whether there is neither a piece, nor a tail, nor a lease, nor a stray page.
  [[nodiscard]] bool has_only_runs() const noexcept {
    return pieces.empty() && retained.empty() && !lease && !stray;
  }

  [[nodiscard]] Bytes held() const noexcept { return committed.total() + retained.size; }

  /// Makes budget and lease say what the record holds now. The lease is never below it before the call.
  void settle() noexcept;

  /// Offset, length and range checks in the order of the specification.
  [[nodiscard]] Result<void, VirtualMemoryError> check_range(ByteRange range) const;
  /// Nothing of `range` is committed or shared.
  [[nodiscard]] Result<void, VirtualMemoryError> check_vacant(ByteRange range) const;
  /// All of `range` is shared.
  [[nodiscard]] Result<void, VirtualMemoryError> check_shared(ByteRange range) const;
  /// First shared granule of `range`.
  [[nodiscard]] std::optional<Bytes> first_shared(ByteRange range) const noexcept;

  /// Claims `extra` bytes if the backing accounts.
  [[nodiscard]] Result<void, VirtualMemoryError> claim(const char* operation, Bytes extra);

  [[nodiscard]] SystemResult protect(ByteRange range, Protection protection) noexcept {
    return state->call({.kind = SystemCallKind::protect,
                        .protection = protection,
                        .address = address(range.offset),
                        .length = range.size.value});
  }

  [[nodiscard]] SystemResult advise(ByteRange range, Advice advice) noexcept {
    return state->call({.kind = SystemCallKind::advise,
                        .advice = advice,
                        .address = address(range.offset),
                        .length = range.size.value});
  }

  /// Fills in the pages of `range`.
  [[nodiscard]] SystemResult populate(ByteRange range) noexcept {
    return state->populate({.offset = place.offset + range.offset, .size = range.size});
  }

  /// Gives back the retained tail.
  [[nodiscard]] Result<void, VirtualMemoryError> discard_retained() noexcept;

  // --- mapping_seams.cpp ---

  /// Before `run` becomes private memory: if it is the second run, the gaps get the owner of the first.
  void before_run(ByteRange run) noexcept {
    if (committed.runs() == 1 && !gaps_joined && !had_pieces && state->options().populate &&
        committed.runs_after_insert(run) == 2) {
      join_gaps();
    }
  }

  /// After `run` was entered into `committed`, which had `runs_before` runs.
  void after_run(ByteRange run, std::uint64_t runs_before) noexcept;
  /// Before `range` leaves `committed`.
  void before_removal(ByteRange range) noexcept;
  /// Before the first piece splits the reservation.
  void before_piece() noexcept;

  /// Before `range` stops being a piece: what lies left and right of it may have different owners.
  void before_piece_goes() noexcept { seams += mixed_owners ? 1U : 0U; }

  /// When nothing is held any more: lets the kernel forget all owners, if there may be seams.
  void start_over_if_empty() noexcept;
  /// `range` belongs to somebody now: forget a stray page inside it.
  void claim_stray(ByteRange range) noexcept;

 private:
  void join_gaps() noexcept;
  void spread_into(std::uint64_t page) noexcept;
  void spread_to_both_sides(ByteRange run) noexcept;
  void heal_stray() noexcept;
};

}  // namespace memstrata::host::detail
