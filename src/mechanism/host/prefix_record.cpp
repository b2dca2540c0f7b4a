// SPDX-License-Identifier: Apache-2.0
#include "mechanism/host/prefix_record.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "mechanism/host/backing_state.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host::detail {

Result<PrefixFile, VirtualMemoryError> PrefixFile::create(BackingState& state,
                                                          Bytes length,
                                                          bool sealable) {
  constexpr std::uint64_t both = 2;
  const auto limit = state.descriptor_limit();
  if (!process_descriptors().try_add(both, limit)) {
    return fail(DescriptorBudget{
        .used = process_descriptors().used() + both, .limit = *limit, .setting = "RLIMIT_NOFILE"});
  }
  PrefixFile file(state.calls());
  const SystemResult made = state.call({.kind = SystemCallKind::create_file, .sealable = sealable});
  if (!made.is_ok()) {
    process_descriptors().subtract(both);
    return fail(refused(SystemCallKind::create_file, made.error));
  }
  file.writer_ = static_cast<std::int32_t>(made.value);
  const SystemResult reopened =
      state.call({.kind = SystemCallKind::reopen_read_only, .descriptor = file.writer_});
  if (!reopened.is_ok()) {
    process_descriptors().subtract(1);
    return fail(refused(SystemCallKind::reopen_read_only, reopened.error));
  }
  file.reader_ = static_cast<std::int32_t>(reopened.value);
  const SystemResult resized = state.call(
      {.kind = SystemCallKind::resize_file, .descriptor = file.writer_, .length = length.value});
  if (!resized.is_ok()) {
    return fail(refused(SystemCallKind::resize_file, resized.error));
  }
  return file;
}

PrefixFile::PrefixFile(PrefixFile&& other) noexcept
    : calls_(std::move(other.calls_)),
      writer_(std::exchange(other.writer_, -1)),
      reader_(std::exchange(other.reader_, -1)) {}

PrefixFile& PrefixFile::operator=(PrefixFile&& other) noexcept {
  PrefixFile taken(std::move(other));
  std::swap(calls_, taken.calls_);
  std::swap(writer_, taken.writer_);
  std::swap(reader_, taken.reader_);
  return *this;
}

PrefixFile::~PrefixFile() {
  close(writer_);
  close(reader_);
}

void PrefixFile::close(std::int32_t& descriptor) noexcept {
  if (descriptor < 0) {
    return;
  }
  // Linux has given the descriptor up whatever the answer is; a second close could hit somebody else's.
  static_cast<void>(
      calls_->execute({.kind = SystemCallKind::close_file, .descriptor = descriptor}));
  descriptor = -1;
  process_descriptors().subtract(1);
}

std::optional<Bytes> PrefixArena::take(Bytes size) noexcept {
  // Relaxed: an offset only has to be unique.
  std::uint64_t next = next_.load(std::memory_order_relaxed);
  do {
    if (size > length || Bytes{next} > length - size) {
      return std::nullopt;
    }
  } while (!next_.compare_exchange_weak(next, next + size.value, std::memory_order_relaxed));
  return Bytes{next};
}

bool PrefixRecord::try_refer() noexcept {
  std::uint64_t now = references_.load(std::memory_order_relaxed);
  do {
    if (now == 0) {
      return false;
    }
  } while (!references_.compare_exchange_weak(now, now + 1, std::memory_order_relaxed));
  return true;
}

SystemResult PrefixRecord::map_window(BackingState& with, std::uint64_t where) noexcept {
  const SystemResult mapped =
      with.call({.kind = SystemCallKind::map,
                 .protection = Protection::read_write,
                 .placement = where == 0 ? Placement::anywhere : Placement::if_vacant,
                 .descriptor = file().writer(),
                 .address = where,
                 .length = size.value,
                 .offset = offset.value});
  if (mapped.is_ok()) {
    window = mapped.value;
  }
  return mapped;
}

SystemResult PrefixRecord::unmap_window(BackingState& with) noexcept {
  if (window == 0) {
    return {};
  }
  const SystemResult unmapped =
      with.call({.kind = SystemCallKind::unmap, .address = window, .length = size.value});
  if (unmapped.is_ok()) {
    window = 0;
    process_mappings().subtract(1);
  }
  return unmapped;
}

bool PrefixRecord::give_back(BackingState& with) noexcept {
  if (!unmap_window(with).is_ok()) {
    return false;
  }
  if (arena != nullptr) {
    const bool punched = with.call({.kind = SystemCallKind::punch_hole,
                                    .descriptor = arena->file().writer(),
                                    .length = size.value,
                                    .offset = offset.value})
                             .is_ok();
    if (!punched) {
      return false;
    }
    arena.reset();
  } else if (own_file) {
    own_file.reset();
    with.give_own_file();
  }
  lease.reset();
  return true;
}

namespace {

/// A range of the file that many prefixes share, in a new file if there is none with room.
[[nodiscard]] Result<void, VirtualMemoryError> place_in_arena(BackingState& state,
                                                              PrefixRecord& record) {
  std::shared_ptr<PrefixArena> arena = state.arena();
  for (;;) {
    if (arena != nullptr) {
      if (const auto offset = arena->take(record.size)) {
        record.arena = std::move(arena);
        record.offset = *offset;
        return {};
      }
    }
    MEMSTRATA_TRY(PrefixFile file, PrefixFile::create(state, PrefixArena::length, false));
    const auto made = std::make_shared<PrefixArena>(std::move(file));
    arena = state.install_arena(arena, made);
  }
}

[[nodiscard]] Result<void, VirtualMemoryError> place_prefix(BackingState& state,
                                                            PrefixRecord& record) {
  if (!state.try_take_own_file()) {
    return place_in_arena(state, record);
  }
  auto file = PrefixFile::create(state, record.size, true);
  if (!file) {
    state.give_own_file();
    return fail(std::move(file).error());
  }
  record.own_file.emplace(std::move(*file));
  return {};
}

}  // namespace

Result<PrefixReference, VirtualMemoryError> create_prefix(
    const std::shared_ptr<BackingState>& state,
    Bytes size) {
  auto record = std::make_unique<PrefixRecord>(state, size);
  if (const auto& governor = state->options().governor) {
    auto lease =
        governor->reserve(Tier::host, size, state->options().role, state->options().holder);
    if (!lease) {
      return fail(VirtualMemoryError::delegated("create_prefix", std::move(lease).error()));
    }
    record->lease = std::move(*lease);
  }
  MEMSTRATA_TRY_VOID(place_prefix(*state, *record));
  state->enlist(*record);
  // From here on letting go of the reference gives everything back.
  PrefixReference reference(record.release());
  PrefixRecord& made = *reference.record();
  MEMSTRATA_TRY_VOID(state->take_mappings(1));
  if (const SystemResult mapped = made.map_window(*state, 0); !mapped.is_ok()) {
    process_mappings().subtract(1);
    return fail(refused(SystemCallKind::map, mapped.error));
  }
  if (state->options().populate) {
    const SystemResult filled = state->populate({.offset = Bytes{made.window}, .size = made.size});
    if (!filled.is_ok()) {
      return fail(refused(SystemCallKind::advise, filled.error));
    }
  }
  return reference;
}

}  // namespace memstrata::host::detail
