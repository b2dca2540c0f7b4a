// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "frontend/replay/kv_mechanism.hpp"
#include "frontend/replay/kv_memory.hpp"
#include "frontend/replay/kv_store.hpp"
#include "frontend/replay/sequence_rooms.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"

namespace memstrata::replay_detail {

/// The two policies that share nothing: `reserve-max`, whose slots hold the whole context and are used again, and
/// `realloc`, which takes new room of twice the size, copies and gives the old room back.
class MovingStore final : public KvStore {
 public:
  MovingStore(const Holding& holding,
              Workbench& bench,
              KvMemory& memory,
              std::shared_ptr<host::PageBacking> backing);

  [[nodiscard]] Outcome admit(const Sequence& sequence, std::uint64_t hits) override;
  [[nodiscard]] Outcome grow(const Sequence& sequence, std::uint64_t capacity) override;
  [[nodiscard]] Outcome drop(const Sequence& sequence) override;
  [[nodiscard]] Outcome evict(BlockIndex block) override;
  [[nodiscard]] Outcome clear() override;
  [[nodiscard]] std::vector<KvPiece> pieces(const Sequence& sequence) override;
  void check_sliding(const Sequence& sequence) override;

 private:
  struct Room {
    SequenceRoom memory;
    std::uint64_t capacity = 0;  ///< Tokens.
  };

  [[nodiscard]] Result<Room, KvStoreError> make_room(const Sequence& sequence,
                                                     std::uint64_t capacity,
                                                     TimedOp op);
  [[nodiscard]] Result<Owned<KvSequence>, KvStoreError> make_buffer(const Sequence& sequence,
                                                                    ReplayAllocationKind kind,
                                                                    Bytes bytes,
                                                                    TimedOp op);
  [[nodiscard]] Outcome move_to(const Sequence& sequence, Room& room, std::uint64_t capacity);
  void write(const Sequence& sequence, Room& room, std::uint64_t first);

  Holding holding_;
  Workbench& bench_;
  SequenceRooms rooms_;
  std::vector<Room> idle_;  // slots that nobody uses
  std::unordered_map<std::uint64_t, Room> used_;
};

}  // namespace memstrata::replay_detail
