// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/moving_store.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "frontend/replay/holding.hpp"
#include "frontend/replay/kv_mechanism.hpp"
#include "frontend/replay/kv_memory.hpp"
#include "frontend/replay/kv_store.hpp"
#include "frontend/replay/replay_input.hpp"
#include "frontend/replay/sequence_rooms.hpp"
#include "frontend/replay/workbench.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"

namespace memstrata::replay_detail {

MovingStore::MovingStore(const Holding& holding,
                         Workbench& bench,
                         KvMemory& memory,
                         std::shared_ptr<host::PageBacking> backing)
    : holding_(holding), bench_(bench), rooms_(bench, memory, std::move(backing)) {}

Result<Owned<KvSequence>, KvStoreError> MovingStore::make_buffer(const Sequence& sequence,
                                                                 ReplayAllocationKind kind,
                                                                 Bytes bytes,
                                                                 TimedOp op) {
  MEMSTRATA_TRY(auto owned, rooms_.make_buffer(sequence, kind, bytes));
  const OpTimer timer(bench_, op);
  MEMSTRATA_TRY_VOID(owned->buffer.grow_to(bytes));
  return owned;
}

Result<MovingStore::Room, KvStoreError> MovingStore::make_room(const Sequence& sequence,
                                                               std::uint64_t capacity,
                                                               TimedOp op) {
  Room room;
  room.capacity = capacity;
  if (bench_.full_token() != Bytes{}) {
    MEMSTRATA_TRY(
        room.memory.full,
        make_buffer(sequence, ReplayAllocationKind::sequence, bench_.full_token() * capacity, op));
  }
  if (bench_.window() != 0) {
    const std::uint64_t kept = std::min(capacity, bench_.window());
    MEMSTRATA_TRY(
        room.memory.sliding,
        make_buffer(sequence, ReplayAllocationKind::sliding, bench_.sliding_token() * kept, op));
  }
  bench_.note_leased();
  return room;
}

KvStore::Outcome MovingStore::admit(const Sequence& sequence, std::uint64_t /*hits*/) {
  std::optional<Room> room;
  if (idle_.empty()) {
    MEMSTRATA_TRY(room, make_room(sequence, sequence.room, TimedOp::commit));
  } else {
    room = std::move(idle_.back());
    idle_.pop_back();
  }
  write(sequence, *room, 0);
  used_.insert_or_assign(sequence.request, *std::move(room));
  return {};
}

void MovingStore::write(const Sequence& sequence, Room& room, std::uint64_t first) {
  if (room.memory.full) {
    const Bytes offset = bench_.full_token() * first;
    bench_.write_full(sequence,
                      {.offset = offset, .size = bench_.full_token() * (sequence.tokens - first)},
                      (*room.memory.full)->buffer.data() + offset.value);
  }
  if (room.memory.sliding) {
    bench_.write_sliding(sequence,
                         std::max(first, first_kept(sequence.tokens, bench_.window())),
                         sequence.tokens,
                         (*room.memory.sliding)->buffer.data());
  }
}

KvStore::Outcome MovingStore::grow(const Sequence& sequence, std::uint64_t capacity) {
  Room& room = used_.at(sequence.request);
  if (capacity > room.capacity) {
    MEMSTRATA_TRY_VOID(move_to(sequence, room, capacity));
  }
  write(sequence, room, sequence.tokens - 1);
  return {};
}

// Old and new are held while the live bytes are copied.
KvStore::Outcome MovingStore::move_to(const Sequence& sequence,
                                      Room& room,
                                      std::uint64_t capacity) {
  MEMSTRATA_TRY(Room larger, make_room(sequence, capacity, TimedOp::grow));
  const std::uint64_t live = sequence.tokens - 1;
  if (larger.memory.full) {
    bench_.copy((*larger.memory.full)->buffer.data(),
                (*room.memory.full)->buffer.data(),
                bench_.full_token() * live);
  }
  if (larger.memory.sliding) {
    const std::uint64_t kept = std::min(live, bench_.window());
    bench_.copy((*larger.memory.sliding)->buffer.data(),
                (*room.memory.sliding)->buffer.data(),
                bench_.sliding_token() * kept);
  }
  return rooms_.release(std::exchange(room, std::move(larger)).memory);
}

KvStore::Outcome MovingStore::drop(const Sequence& sequence) {
  Room room = std::move(used_.extract(sequence.request).mapped());
  if (holding_.has_slots()) {
    idle_.push_back(std::move(room));
    return {};
  }
  return rooms_.release(std::move(room.memory));
}

KvStore::Outcome MovingStore::evict(BlockIndex /*block*/) {
  return {};
}

KvStore::Outcome MovingStore::clear() {
  while (!used_.empty()) {
    MEMSTRATA_TRY_VOID(rooms_.release(std::move(used_.extract(used_.begin()).mapped().memory)));
  }
  while (!idle_.empty()) {
    Room room = std::move(idle_.back());
    idle_.pop_back();
    MEMSTRATA_TRY_VOID(rooms_.release(std::move(room.memory)));
  }
  return {};
}

std::vector<KvPiece> MovingStore::pieces(const Sequence& sequence) {
  return rooms_.pieces(sequence, used_.at(sequence.request).memory);
}

void MovingStore::check_sliding(const Sequence& sequence) {
  rooms_.check_sliding(sequence, used_.at(sequence.request).memory);
}

}  // namespace memstrata::replay_detail
