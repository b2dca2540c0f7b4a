// SPDX-License-Identifier: Apache-2.0
#include "governance/binding/record_table.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "governance/binding/allocation_record.hpp"

namespace memstrata::detail {
namespace {

/// Records that are made at a time: enough that growth seldom touches the shared counter.
constexpr std::uint32_t carve_at_once = 32;

}  // namespace

RecordTable::~RecordTable() {
  for (auto& chunk : chunks_) {
    delete chunk.load(
        std::memory_order_relaxed);  // NOLINT(cppcoreguidelines-owning-memory): an atomic owner
  }
}

RecordTable::Chunk& RecordTable::chunk_for(std::size_t number) {
  if (Chunk* const there = chunks_[number].load(std::memory_order_acquire)) {
    return *there;
  }
  const std::size_t blocks = std::size_t{1} << number;
  auto made = std::make_unique<Chunk>(blocks);
  const auto first = static_cast<std::uint32_t>(block_records * (blocks - 1));
  for (std::uint32_t i = 0; i < blocks * block_records; ++i) {
    made->records[i].place = first + i;
  }
  Chunk* expected = nullptr;
  // Release: whoever finds the chunk finds its records made.
  if (chunks_[number].compare_exchange_strong(
          expected, made.get(), std::memory_order_acq_rel, std::memory_order_acquire)) {
    return *made.release();
  }
  return *expected;
}

std::uint32_t& RecordTable::quarantined_in_block(std::uint32_t place) noexcept {
  const Position at = position(place);
  return chunks_[at.chunk].load(std::memory_order_acquire)->quarantined[at.offset / block_records];
}

// A few new records at once, all from one chunk: the first for the caller, the others onto the free list.
AllocationRecord* RecordTable::carve() {
  std::uint32_t first = carved_.load(std::memory_order_relaxed);
  while (first < capacity) {
    Chunk& chunk = chunk_for(position(first).chunk);
    // Chunks are multiples of `carve_at_once`, and so is every value of the counter: a run has one chunk.
    if (carved_.compare_exchange_weak(
            first, first + carve_at_once, std::memory_order_acq_rel, std::memory_order_relaxed)) {
      const std::uint32_t offset = position(first).offset;
      for (std::uint32_t i = carve_at_once - 1; i > 0; --i) {
        give_back(chunk.records[offset + i]);
      }
      return &chunk.records[offset];
    }
  }
  return pop();
}

static_assert(RecordTable::block_records % carve_at_once == 0);

}  // namespace memstrata::detail
