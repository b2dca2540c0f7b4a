// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "frontend/replay/kv_mechanism.hpp"
#include "frontend/replay/kv_memory.hpp"
#include "frontend/replay/kv_store.hpp"
#include "frontend/replay/sequence_rooms.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"

namespace memstrata::replay_detail {

/// Our own policy: each sequence is one buffer whose address never changes; prompt blocks are sealed prefixes that
/// every user maps read-only; the rest grows by granules.
class VirtualStore final : public KvStore {
 public:
  VirtualStore(const ReplayInput& input,
               const Holding& holding,
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
  [[nodiscard]] Outcome admit_full(const Sequence& sequence, std::uint64_t hits, KvSequence& kept);
  [[nodiscard]] Outcome admit_sliding(const Sequence& sequence, KvSequence& kept);
  [[nodiscard]] Outcome attach(const Sequence& sequence, std::uint64_t depth, KvSequence& kept);
  [[nodiscard]] Outcome create_object(const Sequence& sequence,
                                      std::uint64_t depth,
                                      bool parent_is_hit,
                                      KvSequence& kept);
  [[nodiscard]] Outcome copy_front(const Sequence& sequence,
                                   std::uint64_t depth,
                                   Bytes size,
                                   KvSequence& kept,
                                   std::byte* to);
  [[nodiscard]] Outcome grow_private(const Sequence& sequence,
                                     std::uint64_t hits,
                                     KvSequence& kept);

  Holding holding_;
  Workbench& bench_;
  KvMemory& memory_;
  SequenceRooms rooms_;
  std::vector<std::optional<Owned<KvBlock>>> objects_;  // by block
  std::unordered_map<std::uint64_t, SequenceRoom> entries_;
};

}  // namespace memstrata::replay_detail
