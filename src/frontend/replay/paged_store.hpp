// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "frontend/replay/kv_mechanism.hpp"
#include "frontend/replay/kv_memory.hpp"
#include "frontend/replay/kv_store.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata::replay_detail {

/// Pages of one size in one address range, committed one by one; the lowest free page is taken first, so that the
/// committed ones lie close together. Single-threaded.
class PagePool {
 public:
  using PageNumber = std::uint32_t;

  PagePool(Owned<KvPool> range, Bytes page) noexcept : range_(std::move(range)), page_(page) {}

  /// Takes `count` pages, all or none.
  [[nodiscard]] Result<std::vector<PageNumber>, VirtualBufferError> take(std::size_t count);

  /// Gives pages back; their memory is gone.
  [[nodiscard]] Result<void, VirtualBufferError> give(std::vector<PageNumber> pages);

  [[nodiscard]] std::byte* at(PageNumber page) noexcept {
    return range_->data() + (page_ * page).value;
  }

  /// The range with all pages, to be released. No call but the destructor may follow.
  [[nodiscard]] Owned<KvPool> take_range() noexcept { return std::move(range_); }

 private:
  Owned<KvPool> range_;
  Bytes page_;
  std::priority_queue<PageNumber, std::vector<PageNumber>, std::greater<>> free_;
  PageNumber fresh_ = 0;
};

/// Blocks of 16 tokens behind a table per sequence; the pages of a prompt block are shared by reference.
class PagedStore final : public KvStore {
 public:
  PagedStore(const ReplayInput& input,
             Workbench& bench,
             KvMemory& memory,
             std::optional<PagePool> full,
             std::optional<PagePool> sliding);

  [[nodiscard]] Outcome admit(const Sequence& sequence, std::uint64_t hits) override;
  [[nodiscard]] Outcome grow(const Sequence& sequence, std::uint64_t capacity) override;
  [[nodiscard]] Outcome drop(const Sequence& sequence) override;
  [[nodiscard]] Outcome evict(BlockIndex block) override;
  [[nodiscard]] Outcome clear() override;
  [[nodiscard]] std::vector<KvPiece> pieces(const Sequence& sequence) override;
  void check_sliding(const Sequence& sequence) override;

 private:
  using Table = std::vector<PagePool::PageNumber>;

  struct Entry {
    Table
        full;  ///< The whole sequence; the pages of its prompt blocks come first and belong to the blocks.
    Table sliding;  ///< The ring.
  };

  [[nodiscard]] Outcome extend(PagePool& pool, Table& table, std::uint64_t tokens, TimedOp op);
  void write(const Sequence& sequence, Entry& entry, std::uint64_t first, std::uint64_t last);
  void write_sliding(const Sequence& sequence,
                     Entry& entry,
                     std::uint64_t first,
                     std::uint64_t last);

  Workbench& bench_;
  KvMemory& memory_;
  std::optional<PagePool> full_;     // absent if no layer keeps every token
  std::optional<PagePool> sliding_;  // absent without sliding layers
  std::vector<Table> blocks_;        // pages of each block that is there
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace memstrata::replay_detail
