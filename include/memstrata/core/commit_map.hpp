// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "memstrata/core/bytes.hpp"

namespace memstrata {

/// Which granules of a range are committed: a sparse bitmap that grows with the highest granule ever used.
/// Offsets and sizes are multiples of the granule. Creating one allocates nothing. Thread-compatible.
///
/// Cost: constant for one granule, one word operation per 64 granules for a long range, independent of how many
/// granules are set.
class CommitMap {
 public:
  /// `granule` is above zero.
  explicit CommitMap(Bytes granule) noexcept;

  [[nodiscard]] Bytes granule() const noexcept { return granule_; }

  /// Bytes set now.
  [[nodiscard]] Bytes total() const noexcept { return total_; }

  /// Maximal runs of set granules now: isolated granules cost the kernel mappings.
  [[nodiscard]] std::uint64_t runs() const noexcept { return runs_; }

  /// How many runs there would be after `range`, which is wholly clear, was set.
  [[nodiscard]] std::uint64_t runs_after_insert(ByteRange range) const noexcept;
  /// How many runs there would be after `range`, which is wholly set, was cleared.
  [[nodiscard]] std::uint64_t runs_after_remove(ByteRange range) const noexcept;

  /// Whether `range` is clear, prepared, and would only lengthen a run: the usual growth, answered from one word.
  /// "No" says nothing.
  [[nodiscard]] bool is_plain_extension(ByteRange range) const noexcept;

  /// Takes the memory that setting `range` needs. May throw `std::bad_alloc`; the map is then as before.
  void prepare(ByteRange range);
  /// Sets `range`, which is wholly clear and prepared.
  void insert(ByteRange range) noexcept;
  /// Clears `range`, which is wholly set.
  void remove(ByteRange range) noexcept;

  /// Offset of the first set granule of `range`, or nothing.
  [[nodiscard]] std::optional<Bytes> first_set(ByteRange range) const noexcept;
  /// Offset of the first clear granule of `range`, or nothing.
  [[nodiscard]] std::optional<Bytes> first_clear(ByteRange range) const noexcept;
  /// Bytes of `range` that are set.
  [[nodiscard]] Bytes count(ByteRange range) const noexcept;

  /// The maximal runs of set granules inside `range`, lowest first.
  [[nodiscard]] std::vector<ByteRange> set_runs(ByteRange range) const;
  /// The maximal runs of clear granules inside `range`, lowest first.
  [[nodiscard]] std::vector<ByteRange> clear_runs(ByteRange range) const;

  /// Recomputes total and runs from scratch; for tests and checked builds.
  [[nodiscard]] bool validate() const;

 private:
  static constexpr std::size_t words_per_leaf = 512;
  using Leaf = std::array<std::uint64_t, words_per_leaf>;

  [[nodiscard]] std::uint64_t word_at(std::uint64_t word) const noexcept;
  [[nodiscard]] bool is_set(std::uint64_t granule) const noexcept;
  /// How many of the two granules beside `range` are set.
  [[nodiscard]] int set_neighbours(ByteRange range) const noexcept;

  Bytes granule_;
  int shift_;  ///< Power of two of the granule, or 0.
  Bytes total_;
  std::uint64_t runs_ = 0;
  std::vector<std::unique_ptr<Leaf>> leaves_;
};

}  // namespace memstrata
