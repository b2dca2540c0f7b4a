// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "frontend/replay/kv_store.hpp"
#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/structure/virtual_buffer.hpp"

namespace memstrata::replay_detail {

/// Our own policy: each sequence is one buffer whose address never changes; prompt blocks are sealed prefixes that
/// every user maps read-only; the rest grows by granules.
class VirtualStore final : public KvStore {
 public:
  using Buffer = VirtualBuffer<host::PageBacking>;

  VirtualStore(const ReplayInput& input,
               const Holding& holding,
               Workbench& bench,
               std::shared_ptr<host::PageBacking> backing);

  [[nodiscard]] Outcome admit(const Sequence& sequence, std::uint64_t hits) override;
  [[nodiscard]] Outcome grow(const Sequence& sequence, std::uint64_t capacity) override;
  [[nodiscard]] Outcome drop(const Sequence& sequence) override;
  [[nodiscard]] Outcome evict(BlockIndex block) override;
  [[nodiscard]] Outcome clear() override;
  [[nodiscard]] std::vector<KvPiece> pieces(const Sequence& sequence) override;
  void check_sliding(const Sequence& sequence) override;

 private:
  /// A prompt block in memory. The lease comes first, so that the memory goes before the permission.
  struct Object {
    MemoryLease lease;
    host::Prefix prefix;
  };

  struct Entry {
    std::optional<Buffer> full;     // absent if no layer keeps every token
    std::optional<Buffer> sliding;  // absent without sliding layers
  };

  [[nodiscard]] Result<Buffer, VirtualBufferError> make_buffer(const Sequence& sequence,
                                                               std::uint64_t tokens,
                                                               Bytes token);
  [[nodiscard]] Outcome admit_full(const Sequence& sequence, std::uint64_t hits, Buffer& buffer);
  [[nodiscard]] Outcome admit_sliding(const Sequence& sequence, Buffer& buffer);
  [[nodiscard]] Outcome attach(const Sequence& sequence, std::uint64_t depth, Buffer& buffer);
  [[nodiscard]] Outcome create_object(const Sequence& sequence,
                                      std::uint64_t depth,
                                      bool parent_is_hit,
                                      Buffer& buffer);
  [[nodiscard]] Outcome copy_front(const Sequence& sequence,
                                   std::uint64_t depth,
                                   Bytes size,
                                   Buffer& buffer,
                                   std::byte* to);
  [[nodiscard]] Outcome grow_private(const Sequence& sequence, std::uint64_t hits, Buffer& buffer);

  Holding holding_;
  Workbench& bench_;
  std::shared_ptr<host::PageBacking> backing_;
  std::vector<std::optional<Object>> objects_;  // by block
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace memstrata::replay_detail
