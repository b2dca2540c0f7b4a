// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "governance/binding/allocation_record.hpp"
#include "memstrata/core/cache_line.hpp"

namespace memstrata::detail {

/// The records of one mechanism. They never move and are freed only with the table, so that a reference to one may
/// be followed at any time. Memory grows with the largest number of records in use at once. Thread-safe.
class RecordTable {
 public:
  /// Records of the first chunk, and of a block that counts its quarantined records; each chunk has twice as many
  /// as the one before.
  static constexpr std::uint32_t block_records = 256;
  static constexpr std::size_t chunks = 16;
  /// All chunks together: below what `MechanismGate` can count.
  static constexpr std::uint32_t capacity = block_records * ((std::uint32_t{1} << chunks) - 1);

  RecordTable() noexcept = default;
  RecordTable(const RecordTable&) = delete;
  RecordTable& operator=(const RecordTable&) = delete;
  RecordTable(RecordTable&&) = delete;
  RecordTable& operator=(RecordTable&&) = delete;
  ~RecordTable();

  /// A record that was used before and that nobody uses now, for the caller alone, or null if there is none.
  [[nodiscard]] AllocationRecord* pop() noexcept {
    // Acquire: the record's members are as whoever gave it back left them.
    std::uint64_t head = free_.load(std::memory_order_acquire);
    while (const auto first = static_cast<std::uint32_t>(head)) {
      AllocationRecord& record = at(first - 1);
      const std::uint32_t then = record.next_free.load(std::memory_order_relaxed);
      if (free_.compare_exchange_weak(head,
                                      changed_head(head, then),
                                      std::memory_order_acquire,
                                      std::memory_order_acquire)) {
        return &record;
      }
    }
    return nullptr;
  }

  /// A record that nobody uses, for the caller alone. Null if all `capacity` are in use.
  /// Throws std::bad_alloc before anything is changed.
  [[nodiscard]] AllocationRecord* take() {
    AllocationRecord* const record = pop();
    return record != nullptr ? record : carve();
  }

  /// Takes back a record to which nobody refers.
  void give_back(AllocationRecord& record) noexcept {
    std::uint64_t head = free_.load(std::memory_order_relaxed);
    do {
      record.next_free.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    } while (!free_.compare_exchange_weak(head,
                                          changed_head(head, record.place + 1),
                                          std::memory_order_release,
                                          std::memory_order_relaxed));
  }

  /// The record at `place`, or null if there has never been one.
  [[nodiscard]] AllocationRecord* find(std::uint32_t place) noexcept {
    return place < carved() ? &at(place) : nullptr;
  }

  /// Records that were ever in use: places below this exist.
  [[nodiscard]] std::uint32_t carved() const noexcept {
    return carved_.load(std::memory_order_acquire);
  }

  /// The records of the block that begins at `place`, which exists and is a multiple of `block_records`. Those that
  /// were never in use are as new.
  [[nodiscard]] std::span<const AllocationRecord, block_records> block(
      std::uint32_t place) noexcept {
    return std::span<const AllocationRecord, block_records>(&at(place), block_records);
  }

  /// The count of quarantined records in the block of `place`, which exists. The mechanism's mutex guards it.
  [[nodiscard]] std::uint32_t& quarantined_in_block(std::uint32_t place) noexcept;

 private:
  struct Chunk {
    explicit Chunk(std::size_t blocks) : records(blocks * block_records), quarantined(blocks) {}

    std::vector<AllocationRecord> records;   // its length never changes, so that nothing moves
    std::vector<std::uint32_t> quarantined;  // one for each block
  };

  struct Position {
    std::size_t chunk;
    std::uint32_t offset;
  };

  [[nodiscard]] static Position position(std::uint32_t place) noexcept {
    const std::uint32_t block = (place / block_records) + 1;
    const auto chunk = static_cast<std::size_t>(std::bit_width(block)) - 1;
    const std::uint32_t before = block_records * ((std::uint32_t{1} << chunk) - 1);
    return {.chunk = chunk, .offset = place - before};
  }

  /// The head of the free list with another place + 1 in front and one more change counted.
  [[nodiscard]] static std::uint64_t changed_head(std::uint64_t head,
                                                  std::uint32_t place_plus_one) noexcept {
    constexpr std::uint64_t one_change = std::uint64_t{1} << 32U;
    return ((head & ~(one_change - 1)) + one_change) | place_plus_one;
  }

  /// The record at `place`, which exists.
  [[nodiscard]] AllocationRecord& at(std::uint32_t place) noexcept {
    const Position where = position(place);
    return chunks_[where.chunk].load(std::memory_order_acquire)->records[where.offset];
  }

  [[nodiscard]] Chunk& chunk_for(std::size_t number);
  [[nodiscard]] AllocationRecord* carve();

  // Place + 1 of the first free record in the low half, a count of changes in the high half: a head that was taken
  // and given back in between is not mistaken for the same one.
  alignas(line_pair) std::atomic<std::uint64_t> free_{0};
  alignas(line_pair) std::atomic<std::uint32_t> carved_{0};
  std::array<std::atomic<Chunk*>, chunks> chunks_{};
};

}  // namespace memstrata::detail
