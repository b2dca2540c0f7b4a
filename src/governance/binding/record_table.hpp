// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

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

  /// A record that nobody uses, for the caller alone. Null if all `capacity` are in use.
  /// Throws std::bad_alloc before anything is changed.
  [[nodiscard]] AllocationRecord* take();

  /// Takes back a record to which nobody refers.
  void give_back(AllocationRecord& record) noexcept;

  /// The record at `place`, or null if there has never been one.
  [[nodiscard]] AllocationRecord* find(std::uint32_t place) noexcept;

  /// Records that were ever in use: places below this exist.
  [[nodiscard]] std::uint32_t carved() const noexcept {
    return carved_.load(std::memory_order_acquire);
  }

  /// The count of quarantined records in the block of `place`, which exists. The mechanism's mutex guards it.
  [[nodiscard]] std::uint32_t& quarantined_in_block(std::uint32_t place) noexcept;

 private:
  struct Chunk {
    std::unique_ptr<AllocationRecord[]> records;     // NOLINT(modernize-avoid-c-arrays): a length known at run time
    std::unique_ptr<std::uint32_t[]> quarantined;    // NOLINT(modernize-avoid-c-arrays): one per block
  };

  struct Position {
    std::size_t chunk;
    std::uint32_t offset;
  };

  [[nodiscard]] static Position position(std::uint32_t place) noexcept;
  [[nodiscard]] Chunk& chunk_for(std::size_t number);
  [[nodiscard]] AllocationRecord* pop() noexcept;
  [[nodiscard]] AllocationRecord* carve();

  // Place + 1 of the first free record in the low half, a count of changes in the high half: a head that was taken
  // and given back in between is not mistaken for the same one.
  alignas(line_pair) std::atomic<std::uint64_t> free_{0};
  alignas(line_pair) std::atomic<std::uint32_t> carved_{0};
  std::array<std::atomic<Chunk*>, chunks> chunks_{};
};

}  // namespace memstrata::detail
