// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/sequence_rooms.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "frontend/replay/kv_mechanism.hpp"
#include "frontend/replay/kv_memory.hpp"
#include "frontend/replay/kv_store.hpp"
#include "frontend/replay/workbench.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/structure/virtual_buffer.hpp"

namespace memstrata::replay_detail {

SequenceRooms::SequenceRooms(Workbench& bench,
                             KvMemory& memory,
                             std::shared_ptr<host::PageBacking> backing)
    : bench_(bench), memory_(memory), backing_(std::move(backing)) {}

KvOrigin SequenceRooms::origin(const Sequence& sequence, ReplayAllocationKind kind) const {
  return {.kind = kind, .request = sequence.request, .backing = backing_};
}

Result<Owned<KvSequence>, KvStoreError> SequenceRooms::make_buffer(const Sequence& sequence,
                                                                   ReplayAllocationKind kind,
                                                                   Bytes capacity) {
  const OpTimer timer(bench_, TimedOp::reserve);
  MEMSTRATA_TRY(auto buffer,
                VirtualBuffer<host::PageBacking>::create(
                    backing_, capacity, bench_.governor(), Workbench::terms(sequence.request)));
  MEMSTRATA_TRY(
      auto owned,
      memory_.own(KvSequence{.mapped = {}, .buffer = std::move(buffer)}, origin(sequence, kind)));
  return owned;
}

KvStore::Outcome SequenceRooms::release(SequenceRoom room) {
  if (room.full) {
    MEMSTRATA_TRY_VOID(memory_.release(*std::move(room.full)));
  }
  if (room.sliding) {
    MEMSTRATA_TRY_VOID(memory_.release(*std::move(room.sliding)));
  }
  return {};
}

std::vector<KvPiece> SequenceRooms::pieces(const Sequence& sequence,
                                           const SequenceRoom& room) const {
  if (!room.full) {
    return {};
  }
  return {{.bytes = {.offset = {}, .size = bench_.full_token() * sequence.tokens},
           .data = (*room.full)->buffer.data()}};
}

void SequenceRooms::check_sliding(const Sequence& sequence, const SequenceRoom& room) {
  if (room.sliding) {
    bench_.check_sliding(sequence,
                         first_kept(sequence.tokens, bench_.window()),
                         sequence.tokens,
                         (*room.sliding)->buffer.data());
  }
}

}  // namespace memstrata::replay_detail
