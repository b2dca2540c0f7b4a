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
#include "frontend/replay/workbench.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/structure/virtual_buffer.hpp"

namespace memstrata::replay_detail {

MovingStore::MovingStore(const Holding& holding,
                         Workbench& bench,
                         KvMemory& memory,
                         std::shared_ptr<host::PageBacking> backing)
    : holding_(holding), bench_(bench), memory_(memory), backing_(std::move(backing)) {}

Result<Owned<KvSequence>, KvStoreError> MovingStore::make_buffer(const Sequence& sequence,
                                                                 ReplayAllocationKind kind,
                                                                 Bytes bytes,
                                                                 TimedOp op) {
  std::optional<Owned<KvSequence>> owned;
  {
    const OpTimer timer(bench_, TimedOp::reserve);
    MEMSTRATA_TRY(auto buffer,
                  VirtualBuffer<host::PageBacking>::create(
                      backing_, bytes, bench_.governor(), Workbench::terms(sequence.request)));
    MEMSTRATA_TRY(owned,
                  memory_.own(KvSequence{.mapped = {}, .buffer = std::move(buffer)},
                              {.kind = kind, .request = sequence.request, .backing = backing_}));
  }
  const OpTimer timer(bench_, op);
  MEMSTRATA_TRY_VOID((*owned)->buffer.grow_to(bytes));
  return *std::move(owned);
}

Result<MovingStore::Room, KvStoreError> MovingStore::make_room(const Sequence& sequence,
                                                               std::uint64_t capacity,
                                                               TimedOp op) {
  Room room;
  room.capacity = capacity;
  if (bench_.full_token() != Bytes{}) {
    MEMSTRATA_TRY(
        room.full,
        make_buffer(sequence, ReplayAllocationKind::sequence, bench_.full_token() * capacity, op));
  }
  if (bench_.window() != 0) {
    const std::uint64_t kept = std::min(capacity, bench_.window());
    MEMSTRATA_TRY(
        room.sliding,
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
  rooms_.insert_or_assign(sequence.request, *std::move(room));
  return {};
}

void MovingStore::write(const Sequence& sequence, Room& room, std::uint64_t first) {
  if (room.full) {
    const Bytes offset = bench_.full_token() * first;
    bench_.write_full(sequence,
                      {.offset = offset, .size = bench_.full_token() * (sequence.tokens - first)},
                      (*room.full)->buffer.data() + offset.value);
  }
  if (room.sliding) {
    bench_.write_sliding(sequence,
                         std::max(first, first_kept(sequence.tokens, bench_.window())),
                         sequence.tokens,
                         (*room.sliding)->buffer.data());
  }
}

KvStore::Outcome MovingStore::grow(const Sequence& sequence, std::uint64_t capacity) {
  Room& room = rooms_.at(sequence.request);
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
  if (larger.full) {
    bench_.copy(
        (*larger.full)->buffer.data(), (*room.full)->buffer.data(), bench_.full_token() * live);
  }
  if (larger.sliding) {
    const std::uint64_t kept = std::min(live, bench_.window());
    bench_.copy((*larger.sliding)->buffer.data(),
                (*room.sliding)->buffer.data(),
                bench_.sliding_token() * kept);
  }
  return release(std::exchange(room, std::move(larger)));
}

KvStore::Outcome MovingStore::drop(const Sequence& sequence) {
  const auto found = rooms_.find(sequence.request);
  Room room = std::move(found->second);
  rooms_.erase(found);
  if (holding_.has_slots()) {
    idle_.push_back(std::move(room));
    return {};
  }
  return release(std::move(room));
}

KvStore::Outcome MovingStore::release(Room room) {
  if (room.full) {
    MEMSTRATA_TRY_VOID(memory_.release(*std::move(room.full)));
  }
  if (room.sliding) {
    MEMSTRATA_TRY_VOID(memory_.release(*std::move(room.sliding)));
  }
  return {};
}

KvStore::Outcome MovingStore::evict(BlockIndex /*block*/) {
  return {};
}

KvStore::Outcome MovingStore::clear() {
  while (!rooms_.empty()) {
    Room room = std::move(rooms_.begin()->second);
    rooms_.erase(rooms_.begin());
    MEMSTRATA_TRY_VOID(release(std::move(room)));
  }
  while (!idle_.empty()) {
    Room room = std::move(idle_.back());
    idle_.pop_back();
    MEMSTRATA_TRY_VOID(release(std::move(room)));
  }
  return {};
}

std::vector<KvPiece> MovingStore::pieces(const Sequence& sequence) {
  Room& room = rooms_.at(sequence.request);
  if (!room.full) {
    return {};
  }
  return {{.bytes = {.offset = {}, .size = bench_.full_token() * sequence.tokens},
           .data = (*room.full)->buffer.data()}};
}

void MovingStore::check_sliding(const Sequence& sequence) {
  Room& room = rooms_.at(sequence.request);
  if (room.sliding) {
    bench_.check_sliding(sequence,
                         first_kept(sequence.tokens, bench_.window()),
                         sequence.tokens,
                         (*room.sliding)->buffer.data());
  }
}

}  // namespace memstrata::replay_detail
