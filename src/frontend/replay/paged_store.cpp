// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/paged_store.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "frontend/replay/holding.hpp"
#include "frontend/replay/kv_memory.hpp"
#include "frontend/replay/kv_store.hpp"
#include "frontend/replay/replay_input.hpp"
#include "frontend/replay/workbench.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata::replay_detail {
namespace {

constexpr std::uint64_t pages_per_block = trace_block_tokens / page_tokens;

std::uint64_t pages_of(std::uint64_t tokens) noexcept {
  return tokens / page_tokens + (tokens % page_tokens == 0 ? 0 : 1);
}

/// Neighbouring pages as one range of bytes each. `pages` is sorted.
std::vector<ByteRange> runs_of(std::span<const PagePool::PageNumber> pages, Bytes page) {
  std::vector<ByteRange> runs;
  for (const PagePool::PageNumber number : pages) {
    const Bytes offset = page * number;
    if (!runs.empty() && runs.back().end() == offset) {
      runs.back().size += page;
    } else {
      runs.push_back({.offset = offset, .size = page});
    }
  }
  return runs;
}

}  // namespace

Result<std::vector<PagePool::PageNumber>, VirtualBufferError> PagePool::take(std::size_t count) {
  std::vector<PageNumber> pages;
  pages.reserve(count);
  const PageNumber fresh_before = fresh_;
  while (pages.size() < count) {
    if (free_.empty()) {
      pages.push_back(fresh_++);
    } else {
      pages.push_back(free_.top());
      free_.pop();
    }
  }
  if (auto done = range_->commit(runs_of(pages, page_)); !done) {
    for (const PageNumber page : pages) {
      if (page < fresh_before) {
        free_.push(page);
      }
    }
    fresh_ = fresh_before;
    return fail(std::move(done).error());
  }
  return pages;
}

Result<void, VirtualBufferError> PagePool::give(std::vector<PageNumber> pages) {
  std::ranges::sort(pages);
  for (const ByteRange& run : runs_of(pages, page_)) {
    MEMSTRATA_TRY_VOID(range_->decommit(run));
  }
  for (const PageNumber page : pages) {
    free_.push(page);
  }
  return {};
}

PagedStore::PagedStore(const ReplayInput& input,
                       Workbench& bench,
                       KvMemory& memory,
                       std::optional<PagePool> full,
                       std::optional<PagePool> sliding)
    : bench_(bench),
      memory_(memory),
      full_(std::move(full)),
      sliding_(std::move(sliding)),
      blocks_(input.block_count()) {}

KvStore::Outcome PagedStore::admit(const Sequence& sequence, std::uint64_t hits) {
  const auto inserted = entries_.insert_or_assign(sequence.request, Entry{});
  Entry& entry = inserted.first->second;
  if (full_) {
    {
      const OpTimer timer(bench_, TimedOp::share);
      for (const BlockIndex block : sequence.path.first(hits)) {
        entry.full.insert(entry.full.end(), blocks_[block].begin(), blocks_[block].end());
      }
    }
    MEMSTRATA_TRY_VOID(extend(*full_, entry.full, sequence.tokens, TimedOp::commit));
    for (std::uint64_t depth = hits; depth < sequence.path.size(); ++depth) {
      const auto first = entry.full.begin() + static_cast<std::ptrdiff_t>(depth * pages_per_block);
      blocks_[sequence.path[depth]].assign(first,
                                           first + static_cast<std::ptrdiff_t>(pages_per_block));
    }
    write(sequence, entry, hits * trace_block_tokens, sequence.tokens);
  }
  if (sliding_) {
    const std::uint64_t kept = std::min(sequence.tokens, bench_.window());
    MEMSTRATA_TRY_VOID(extend(*sliding_, entry.sliding, kept, TimedOp::commit));
    write_sliding(sequence, entry, first_kept(sequence.tokens, bench_.window()), sequence.tokens);
  }
  return {};
}

KvStore::Outcome PagedStore::extend(PagePool& pool,
                                    Table& table,
                                    std::uint64_t tokens,
                                    TimedOp op) {
  const std::size_t needed = pages_of(tokens);
  if (needed > table.size()) {
    const OpTimer timer(bench_, op);
    MEMSTRATA_TRY(const Table more, pool.take(needed - table.size()));
    table.insert(table.end(), more.begin(), more.end());
    bench_.note_leased();
  }
  return {};
}

// Page by page, because a table and not the address says where the next token goes.
void PagedStore::write(const Sequence& sequence,
                       Entry& entry,
                       std::uint64_t first,
                       std::uint64_t last) {
  while (first < last) {
    const std::uint64_t end = std::min(last, (first / page_tokens + 1) * page_tokens);
    const Bytes inside = bench_.full_token() * (first % page_tokens);
    bench_.write_full(
        sequence,
        {.offset = bench_.full_token() * first, .size = bench_.full_token() * (end - first)},
        full_->at(entry.full[first / page_tokens]) + inside.value);
    first = end;
  }
}

void PagedStore::write_sliding(const Sequence& sequence,
                               Entry& entry,
                               std::uint64_t first,
                               std::uint64_t last) {
  for (std::uint64_t token = first; token < last; ++token) {
    const std::uint64_t place = token % bench_.window();
    std::byte* const page = sliding_->at(entry.sliding[place / page_tokens]);
    // The writer finds the token's place in a ring; a page is a part of one.
    std::byte* const ring = page - (bench_.sliding_token() * (place - place % page_tokens)).value;
    bench_.write_sliding(sequence, token, token + 1, ring);
  }
}

void PagedStore::check_sliding(const Sequence& sequence) {
  if (!sliding_) {
    return;
  }
  Entry& entry = entries_.at(sequence.request);
  for (std::uint64_t token = first_kept(sequence.tokens, bench_.window()); token < sequence.tokens;
       ++token) {
    const std::uint64_t place = token % bench_.window();
    const std::byte* const page = sliding_->at(entry.sliding[place / page_tokens]);
    bench_.check_sliding(sequence,
                         token,
                         token + 1,
                         page - (bench_.sliding_token() * (place - place % page_tokens)).value);
  }
}

KvStore::Outcome PagedStore::grow(const Sequence& sequence, std::uint64_t /*capacity*/) {
  Entry& entry = entries_.at(sequence.request);
  if (full_) {
    MEMSTRATA_TRY_VOID(extend(*full_, entry.full, sequence.tokens, TimedOp::grow));
    write(sequence, entry, sequence.tokens - 1, sequence.tokens);
  }
  if (sliding_) {
    const std::uint64_t kept = std::min(sequence.tokens, bench_.window());
    MEMSTRATA_TRY_VOID(extend(*sliding_, entry.sliding, kept, TimedOp::grow));
    write_sliding(sequence, entry, sequence.tokens - 1, sequence.tokens);
  }
  return {};
}

KvStore::Outcome PagedStore::drop(const Sequence& sequence) {
  const OpTimer timer(bench_, TimedOp::release);
  Entry& entry = entries_.at(sequence.request);
  if (full_) {
    const std::size_t shared =
        std::min<std::size_t>(sequence.path.size() * pages_per_block, entry.full.size());
    entry.full.erase(entry.full.begin(), entry.full.begin() + static_cast<std::ptrdiff_t>(shared));
    MEMSTRATA_TRY_VOID(full_->give(std::move(entry.full)));
  }
  if (sliding_) {
    MEMSTRATA_TRY_VOID(sliding_->give(std::move(entry.sliding)));
  }
  entries_.erase(sequence.request);
  return {};
}

KvStore::Outcome PagedStore::evict(BlockIndex block) {
  const OpTimer timer(bench_, TimedOp::release);
  if (full_) {
    MEMSTRATA_TRY_VOID(full_->give(std::exchange(blocks_[block], Table())));
  }
  return {};
}

KvStore::Outcome PagedStore::clear() {
  entries_.clear();
  blocks_.clear();
  if (full_) {
    MEMSTRATA_TRY_VOID(memory_.release(full_->take_range()));
  }
  if (sliding_) {
    MEMSTRATA_TRY_VOID(memory_.release(sliding_->take_range()));
  }
  return {};
}

std::vector<KvPiece> PagedStore::pieces(const Sequence& sequence) {
  std::vector<KvPiece> pieces;
  if (!full_) {
    return pieces;
  }
  const Entry& entry = entries_.at(sequence.request);
  pieces.reserve(entry.full.size());
  for (std::uint64_t first = 0; first < sequence.tokens; first += page_tokens) {
    const std::uint64_t count = std::min(page_tokens, sequence.tokens - first);
    pieces.push_back(
        {.bytes = {.offset = bench_.full_token() * first, .size = bench_.full_token() * count},
         .data = full_->at(entry.full[first / page_tokens])});
  }
  return pieces;
}

}  // namespace memstrata::replay_detail
