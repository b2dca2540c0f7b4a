// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/virtual_store.hpp"

#include <algorithm>
#include <cstddef>
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
#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"
#include "memstrata/structure/physical_charge.hpp"

namespace memstrata::replay_detail {

VirtualStore::VirtualStore(const ReplayInput& input,
                           const Holding& holding,
                           Workbench& bench,
                           KvMemory& memory,
                           std::shared_ptr<host::PageBacking> backing)
    : holding_(holding),
      bench_(bench),
      memory_(memory),
      rooms_(bench, memory, std::move(backing)),
      objects_(input.block_count()) {}

KvStore::Outcome VirtualStore::admit(const Sequence& sequence, std::uint64_t hits) {
  SequenceRoom entry;
  if (bench_.full_token() != Bytes{}) {
    MEMSTRATA_TRY(entry.full,
                  rooms_.make_buffer(sequence,
                                     ReplayAllocationKind::sequence,
                                     bench_.full_token() * bench_.options().context_tokens));
    MEMSTRATA_TRY_VOID(admit_full(sequence, hits, **entry.full));
  }
  if (bench_.window() != 0) {
    MEMSTRATA_TRY(
        entry.sliding,
        rooms_.make_buffer(
            sequence, ReplayAllocationKind::sliding, bench_.sliding_token() * bench_.window()));
    MEMSTRATA_TRY_VOID(admit_sliding(sequence, **entry.sliding));
  }
  entries_.insert_or_assign(sequence.request, std::move(entry));
  return {};
}

KvStore::Outcome VirtualStore::admit_full(const Sequence& sequence,
                                          std::uint64_t hits,
                                          KvSequence& kept) {
  for (std::uint64_t depth = 0; depth < hits; ++depth) {
    MEMSTRATA_TRY_VOID(attach(sequence, depth, kept));
  }
  for (std::uint64_t depth = hits; depth < sequence.path.size(); ++depth) {
    MEMSTRATA_TRY_VOID(create_object(sequence, depth, depth == hits && hits > 0, kept));
    MEMSTRATA_TRY_VOID(attach(sequence, depth, kept));
  }
  return grow_private(sequence, hits, kept);
}

// The granules that the block completes come from its object; what straddles its end comes from the next one.
KvStore::Outcome VirtualStore::attach(const Sequence& sequence,
                                      std::uint64_t depth,
                                      KvSequence& kept) {
  const Bytes mapped = holding_.mapped(depth);
  if (mapped == Bytes{}) {
    return {};
  }
  const OpTimer timer(bench_, TimedOp::share);
  const KvBlock& block = **objects_[sequence.path[depth]];
  kept.mapped.push_back(block.charge);
  MEMSTRATA_TRY_VOID(kept.buffer.attach(block.prefix, {.offset = {}, .size = mapped}));
  return {};
}

KvStore::Outcome VirtualStore::create_object(const Sequence& sequence,
                                             std::uint64_t depth,
                                             bool parent_is_hit,
                                             KvSequence& kept) {
  const Bytes size = holding_.object(depth);
  std::optional<MemoryLease> lease;
  std::optional<host::PrefixBuilder> builder;
  {
    const OpTimer timer(bench_, TimedOp::commit);
    const LeaseTerms terms = Workbench::terms(sequence.request);
    MEMSTRATA_TRY(lease, bench_.governor()->reserve(terms.tier, size, terms.role, terms.holder));
    MEMSTRATA_TRY(builder, rooms_.backing().create_prefix(size));
  }
  const Bytes block = bench_.block_bytes();
  const Bytes start = align_down(block * depth, bench_.options().granule);
  const Bytes front = block * depth - start;
  if (front != Bytes{} && parent_is_hit) {
    MEMSTRATA_TRY_VOID(copy_front(sequence, depth, front, kept, builder->data()));
    bench_.write_full(
        sequence, {.offset = block * depth, .size = block}, builder->data() + front.value);
  } else {
    bench_.write_full(sequence, {.offset = start, .size = front + block}, builder->data());
  }
  const OpTimer timer(bench_, TimedOp::share);
  MEMSTRATA_TRY(auto prefix, builder->seal());
  MEMSTRATA_TRY(objects_[sequence.path[depth]],
                memory_.own(KvBlock{.charge = std::make_shared<BlockCharge>(*std::move(lease)),
                                    .prefix = std::move(prefix)},
                            rooms_.origin(sequence, ReplayAllocationKind::block)));
  return {};
}

// The granule that straddles the seam stands in the parent's object: mapped for a moment, its front is copied.
KvStore::Outcome VirtualStore::copy_front(const Sequence& sequence,
                                          std::uint64_t depth,
                                          Bytes size,
                                          KvSequence& kept,
                                          std::byte* to) {
  auto& buffer = kept.buffer;
  const Bytes before = buffer.length();
  const auto& parent = (*objects_[sequence.path[depth - 1]])->prefix;
  MEMSTRATA_TRY_VOID(buffer.attach(
      parent, {.offset = holding_.mapped(depth - 1), .size = bench_.options().granule}));
  bench_.copy(to, buffer.data() + before.value, size);
  MEMSTRATA_TRY_VOID(buffer.shrink_to(before));
  return {};
}

KvStore::Outcome VirtualStore::grow_private(const Sequence& sequence,
                                            std::uint64_t hits,
                                            KvSequence& kept) {
  auto& buffer = kept.buffer;
  const std::uint64_t blocks = sequence.path.size();
  const Bytes prompt = bench_.block_bytes() * blocks;
  const Bytes seam = holding_.seam(blocks);
  const Bytes end = bench_.full_token() * sequence.tokens;
  Bytes from = prompt - seam;
  {
    const OpTimer timer(bench_, TimedOp::commit);
    if (seam != Bytes{} && hits == blocks) {
      const auto& last = (*objects_[sequence.path[blocks - 1]])->prefix;
      MEMSTRATA_TRY_VOID(buffer.attach(
          last, {.offset = holding_.mapped(blocks - 1), .size = bench_.options().granule}));
      MEMSTRATA_TRY_VOID(buffer.break_shared({.offset = from, .size = bench_.options().granule}));
      from = prompt;
    }
    MEMSTRATA_TRY_VOID(buffer.grow_to(end));
  }
  bench_.note_leased();
  bench_.write_full(sequence, {.offset = from, .size = end - from}, buffer.data() + from.value);
  return {};
}

KvStore::Outcome VirtualStore::admit_sliding(const Sequence& sequence, KvSequence& kept) {
  const std::uint64_t tokens = std::min(sequence.tokens, bench_.window());
  {
    const OpTimer timer(bench_, TimedOp::commit);
    MEMSTRATA_TRY_VOID(kept.buffer.grow_to(bench_.sliding_token() * tokens));
  }
  bench_.write_sliding(
      sequence, first_kept(sequence.tokens, bench_.window()), sequence.tokens, kept.buffer.data());
  return {};
}

KvStore::Outcome VirtualStore::grow(const Sequence& sequence, std::uint64_t /*capacity*/) {
  SequenceRoom& entry = entries_.at(sequence.request);
  const std::uint64_t token = sequence.tokens - 1;
  {
    const OpTimer timer(bench_, TimedOp::grow);
    if (entry.full) {
      MEMSTRATA_TRY_VOID((*entry.full)->buffer.grow_to(bench_.full_token() * sequence.tokens));
    }
    if (entry.sliding) {
      const std::uint64_t kept = std::min(sequence.tokens, bench_.window());
      MEMSTRATA_TRY_VOID((*entry.sliding)->buffer.grow_to(bench_.sliding_token() * kept));
    }
  }
  if (entry.full) {
    const ByteRange bytes{.offset = bench_.full_token() * token, .size = bench_.full_token()};
    bench_.write_full(sequence, bytes, (*entry.full)->buffer.data() + bytes.offset.value);
  }
  if (entry.sliding) {
    bench_.write_sliding(sequence, token, sequence.tokens, (*entry.sliding)->buffer.data());
  }
  return {};
}

KvStore::Outcome VirtualStore::drop(const Sequence& sequence) {
  return rooms_.release(std::move(entries_.extract(sequence.request).mapped()));
}

KvStore::Outcome VirtualStore::evict(BlockIndex block) {
  auto object = std::exchange(objects_[block], std::nullopt);
  MEMSTRATA_TRY_VOID(memory_.release(*std::move(object)));
  return {};
}

KvStore::Outcome VirtualStore::clear() {
  while (!entries_.empty()) {
    MEMSTRATA_TRY_VOID(rooms_.release(std::move(entries_.extract(entries_.begin()).mapped())));
  }
  for (BlockIndex block = 0; block < objects_.size(); ++block) {
    if (objects_[block]) {
      MEMSTRATA_TRY_VOID(evict(block));
    }
  }
  return {};
}

std::vector<KvPiece> VirtualStore::pieces(const Sequence& sequence) {
  return rooms_.pieces(sequence, entries_.at(sequence.request));
}

void VirtualStore::check_sliding(const Sequence& sequence) {
  rooms_.check_sliding(sequence, entries_.at(sequence.request));
}

}  // namespace memstrata::replay_detail
