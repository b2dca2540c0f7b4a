// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "frontend/replay/kv_mechanism.hpp"
#include "frontend/replay/kv_memory.hpp"
#include "frontend/replay/kv_store.hpp"
#include "frontend/replay/workbench.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"

namespace memstrata::replay_detail {

/// The memory of one sequence in address ranges of its own.
struct SequenceRoom {
  std::optional<Owned<KvSequence>> full;     ///< Absent if no layer keeps every token.
  std::optional<Owned<KvSequence>> sliding;  ///< Absent without sliding layers.
};

/// Makes, reads and releases the rooms of sequences over one backing. Single-threaded.
class SequenceRooms {
 public:
  /// `bench` and `memory` outlive it.
  SequenceRooms(Workbench& bench, KvMemory& memory, std::shared_ptr<host::PageBacking> backing);

  [[nodiscard]] host::PageBacking& backing() const noexcept { return *backing_; }

  [[nodiscard]] KvOrigin origin(const Sequence& sequence, ReplayAllocationKind kind) const;

  /// A buffer with address space for `capacity`, without memory.
  [[nodiscard]] Result<Owned<KvSequence>, KvStoreError> make_buffer(const Sequence& sequence,
                                                                    ReplayAllocationKind kind,
                                                                    Bytes capacity);

  /// Asks for the release of both buffers.
  [[nodiscard]] KvStore::Outcome release(SequenceRoom room);

  /// Where the full-attention bytes lie: one piece, or none.
  [[nodiscard]] std::vector<KvPiece> pieces(const Sequence& sequence,
                                            const SequenceRoom& room) const;

  void check_sliding(const Sequence& sequence, const SequenceRoom& room);

 private:
  Workbench& bench_;
  KvMemory& memory_;
  std::shared_ptr<host::PageBacking> backing_;
};

}  // namespace memstrata::replay_detail
