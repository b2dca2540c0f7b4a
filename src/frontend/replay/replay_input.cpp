// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/replay_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata::replay_detail {
namespace {

constexpr BlockIndex no_block = std::numeric_limits<BlockIndex>::max();

/// Ids to dense numbers: open addressing, because the tables of the standard library cost a cache miss more per
/// look-up and dominate the preparation of long traces.
class IdTable {
 public:
  explicit IdTable(std::size_t most_ids)
      : mask_(std::bit_ceil(std::max<std::size_t>(16, most_ids * 2)) - 1),
        slots_(mask_ + 1, Slot{.id = 0, .block = no_block}) {}

  /// The number of `id`, or the place where a new one goes.
  [[nodiscard]] BlockIndex& find(std::uint64_t id) noexcept {
    // The odd constant is 2^64 divided by the golden ratio, which spreads consecutive ids.
    std::size_t at = static_cast<std::size_t>((id * 0x9E3779B97F4A7C15ULL) >> 20U) & mask_;
    while (slots_[at].block != no_block && slots_[at].id != id) {
      at = (at + 1) & mask_;
    }
    slots_[at].id = id;
    return slots_[at].block;
  }

 private:
  struct Slot {
    std::uint64_t id;
    BlockIndex block;
  };

  std::size_t mask_;
  std::vector<Slot> slots_;
};

ReplayError bad_record(std::size_t request, const char* expected) {
  return BadReplayOption{.option = "trace",
                         .value = ErrorText::copy(fmt::format("request {}", request)),
                         .expected = ErrorText::copy(expected)};
}

std::size_t full_blocks_of(const TraceRecord& record) noexcept {
  return std::min<std::size_t>(record.blocks.size(),
                               static_cast<std::size_t>(record.input_tokens / trace_block_tokens));
}

}  // namespace

Result<ReplayInput, ReplayError> ReplayInput::prepare(std::span<const TraceRecord> records) {
  if (records.empty()) {
    return fail(ReplayError(EmptySelection{}));
  }
  std::size_t references = 0;
  for (const TraceRecord& record : records) {
    references += full_blocks_of(record);
  }
  if (references >= no_block) {
    return fail(bad_record(records.size(), "fewer than 2^32 - 1 block references"));
  }
  ReplayInput input;
  input.requests_.reserve(records.size());
  input.blocks_.reserve(references);
  IdTable table(references);
  std::vector<BlockIndex> parents;
  std::int64_t last_arrival = 0;
  for (std::size_t index = 0; index < records.size(); ++index) {
    const TraceRecord& record = records[index];
    if (record.arrival.count() < last_arrival) {
      return fail(bad_record(index, "arrivals that never go back"));
    }
    last_arrival = record.arrival.count();
    if (record.input_tokens == 0) {
      return fail(bad_record(index, "a prompt of at least one token"));
    }
    const std::size_t full = full_blocks_of(record);
    input.requests_.push_back({.arrival_ns = last_arrival,
                               .input = record.input_tokens,
                               .output = record.output_tokens,
                               .first_block = input.blocks_.size(),
                               .full_blocks = static_cast<std::uint32_t>(full),
                               .block_refs = static_cast<std::uint32_t>(record.blocks.size())});
    BlockIndex parent = no_block;
    for (std::size_t depth = 0; depth < full; ++depth) {
      BlockIndex& block = table.find(record.blocks[depth]);
      if (block == no_block) {
        block = static_cast<BlockIndex>(input.ids_.size());
        input.ids_.push_back(record.blocks[depth]);
        parents.push_back(parent);
      } else if (parents[block] != parent) {
        return fail(bad_record(index, "block ids that always follow the same block"));
      }
      parent = block;
      input.blocks_.push_back(block);
    }
    input.longest_ = std::max(input.longest_, record.input_tokens + record.output_tokens);
    input.has_ids_ = input.has_ids_ || !record.blocks.empty();
  }
  return input;
}

}  // namespace memstrata::replay_detail
