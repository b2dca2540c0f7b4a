// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/commit_map.hpp"

#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"

namespace memstrata {

namespace {

constexpr std::uint64_t bits_per_word = 64;
constexpr std::uint64_t all_ones = std::numeric_limits<std::uint64_t>::max();

/// Granules `[first, last)`.
struct Span {
  std::uint64_t first;
  std::uint64_t last;
};

/// A division costs more than the rest of a query, so a granule of 2^`shift` bytes is shifted away.
[[nodiscard]] Span span_of(ByteRange range, Bytes granule, int shift) noexcept {
  const std::uint64_t end = range.end().value;
  return shift != 0
             ? Span{.first = range.offset.value >> shift, .last = end >> shift}
             : Span{.first = range.offset.value / granule.value, .last = end / granule.value};
}

/// The bits of word `word` that lie in `span`.
[[nodiscard]] std::uint64_t mask_of(Span span, std::uint64_t word) noexcept {
  const std::uint64_t start = word * bits_per_word;
  std::uint64_t mask = all_ones;
  if (span.first > start) {
    mask &= all_ones << (span.first - start);
  }
  if (span.last - start < bits_per_word) {
    mask &= ~(all_ones << (span.last - start));
  }
  return mask;
}

}  // namespace

CommitMap::CommitMap(Bytes granule) noexcept
    : granule_(granule),
      shift_(is_power_of_two(granule.value) ? std::countr_zero(granule.value) : 0) {
  MEMSTRATA_VERIFY(granule != Bytes{}, "granule of a commit map is zero");
}

std::uint64_t CommitMap::word_at(std::uint64_t word) const noexcept {
  const std::uint64_t leaf = word / words_per_leaf;
  if (leaf >= leaves_.size() || leaves_[leaf] == nullptr) {
    return 0;
  }
  return (*leaves_[leaf])[word % words_per_leaf];
}

bool CommitMap::is_set(std::uint64_t granule) const noexcept {
  return ((word_at(granule / bits_per_word) >> (granule % bits_per_word)) & 1U) != 0;
}

int CommitMap::set_neighbours(ByteRange range) const noexcept {
  const Span span = span_of(range, granule_, shift_);
  const bool before = span.first != 0 && is_set(span.first - 1);
  return static_cast<int>(before) + static_cast<int>(is_set(span.last));
}

std::uint64_t CommitMap::runs_after_insert(ByteRange range) const noexcept {
  return range.empty() ? runs_ : runs_ + 1 - static_cast<std::uint64_t>(set_neighbours(range));
}

std::uint64_t CommitMap::runs_after_remove(ByteRange range) const noexcept {
  return range.empty() ? runs_ : runs_ + static_cast<std::uint64_t>(set_neighbours(range)) - 1;
}

bool CommitMap::is_plain_extension(ByteRange range) const noexcept {
  const Span span = span_of(range, granule_, shift_);
  const std::uint64_t first = span.first % bits_per_word;
  const std::uint64_t count = span.last - span.first;
  const std::uint64_t word = span.first / bits_per_word;
  // The neighbours must lie in the same word; every 64th granule takes the long way.
  if (first == 0 || count == 0 || first + count >= bits_per_word) {
    return false;
  }
  const std::uint64_t bits = word_at(word);
  const std::uint64_t with_next = ~(all_ones << (count + 1)) << first;
  return (bits & with_next) == 0 && ((bits >> (first - 1)) & 1U) != 0;
}

void CommitMap::prepare(ByteRange range) {
  if (range.empty()) {
    return;
  }
  const Span span = span_of(range, granule_, shift_);
  const std::uint64_t granules_per_leaf = words_per_leaf * bits_per_word;
  const std::uint64_t last_leaf = (span.last - 1) / granules_per_leaf;
  if (last_leaf >= leaves_.size()) {
    leaves_.resize(last_leaf + 1);
  }
  for (std::uint64_t leaf = span.first / granules_per_leaf; leaf <= last_leaf; ++leaf) {
    if (leaves_[leaf] == nullptr) {
      leaves_[leaf] = std::make_unique<Leaf>();
    }
  }
}

void CommitMap::insert(ByteRange range) noexcept {
  if (range.empty()) {
    return;
  }
  const std::uint64_t runs = runs_after_insert(range);
  const Span span = span_of(range, granule_, shift_);
  for (std::uint64_t word = span.first / bits_per_word; word * bits_per_word < span.last; ++word) {
    const std::uint64_t leaf = word / words_per_leaf;
    MEMSTRATA_VERIFY(leaf < leaves_.size() && leaves_[leaf] != nullptr,
                     "commit map was not prepared",
                     word,
                     leaves_.size());
    std::uint64_t& bits = (*leaves_[leaf])[word % words_per_leaf];
    const std::uint64_t mask = mask_of(span, word);
    MEMSTRATA_VERIFY((bits & mask) == 0, "granule is set already", bits, mask);
    bits |= mask;
  }
  runs_ = runs;
  total_ += range.size;
}

void CommitMap::remove(ByteRange range) noexcept {
  if (range.empty()) {
    return;
  }
  const std::uint64_t runs = runs_after_remove(range);
  const Span span = span_of(range, granule_, shift_);
  for (std::uint64_t word = span.first / bits_per_word; word * bits_per_word < span.last; ++word) {
    const std::uint64_t leaf = word / words_per_leaf;
    const std::uint64_t mask = mask_of(span, word);
    MEMSTRATA_VERIFY((word_at(word) & mask) == mask, "granule is not set", word, mask);
    (*leaves_[leaf])[word % words_per_leaf] &= ~mask;
  }
  runs_ = runs;
  total_ -= range.size;
}

std::optional<Bytes> CommitMap::first_set(ByteRange range) const noexcept {
  const Span span = span_of(range, granule_, shift_);
  for (std::uint64_t word = span.first / bits_per_word; word * bits_per_word < span.last; ++word) {
    const std::uint64_t leaf = word / words_per_leaf;
    if (leaf >= leaves_.size()) {
      return std::nullopt;
    }
    if (leaves_[leaf] == nullptr) {
      word = (leaf + 1) * words_per_leaf - 1;
      continue;
    }
    const std::uint64_t bits = word_at(word) & mask_of(span, word);
    if (bits != 0) {
      return granule_ * (word * bits_per_word + static_cast<std::uint64_t>(std::countr_zero(bits)));
    }
  }
  return std::nullopt;
}

std::optional<Bytes> CommitMap::first_clear(ByteRange range) const noexcept {
  const Span span = span_of(range, granule_, shift_);
  for (std::uint64_t word = span.first / bits_per_word; word * bits_per_word < span.last; ++word) {
    const std::uint64_t bits = ~word_at(word) & mask_of(span, word);
    if (bits != 0) {
      return granule_ * (word * bits_per_word + static_cast<std::uint64_t>(std::countr_zero(bits)));
    }
  }
  return std::nullopt;
}

Bytes CommitMap::count(ByteRange range) const noexcept {
  const Span span = span_of(range, granule_, shift_);
  std::uint64_t granules = 0;
  for (std::uint64_t word = span.first / bits_per_word; word * bits_per_word < span.last; ++word) {
    const std::uint64_t leaf = word / words_per_leaf;
    if (leaf >= leaves_.size()) {
      break;
    }
    if (leaves_[leaf] == nullptr) {
      word = (leaf + 1) * words_per_leaf - 1;
      continue;
    }
    granules += static_cast<std::uint64_t>(std::popcount(word_at(word) & mask_of(span, word)));
  }
  return granule_ * granules;
}

std::vector<ByteRange> CommitMap::set_runs(ByteRange range) const {
  std::vector<ByteRange> found;
  Bytes at = range.offset;
  while (at < range.end()) {
    const auto start = first_set({.offset = at, .size = range.end() - at});
    if (!start) {
      break;
    }
    const Bytes end =
        first_clear({.offset = *start, .size = range.end() - *start}).value_or(range.end());
    found.push_back({.offset = *start, .size = end - *start});
    at = end;
  }
  return found;
}

std::vector<ByteRange> CommitMap::clear_runs(ByteRange range) const {
  std::vector<ByteRange> found;
  Bytes at = range.offset;
  while (at < range.end()) {
    const auto start = first_clear({.offset = at, .size = range.end() - at});
    if (!start) {
      break;
    }
    const Bytes end =
        first_set({.offset = *start, .size = range.end() - *start}).value_or(range.end());
    found.push_back({.offset = *start, .size = end - *start});
    at = end;
  }
  return found;
}

bool CommitMap::validate() const {
  std::uint64_t granules = 0;
  std::uint64_t runs = 0;
  bool previous = false;
  for (std::uint64_t word = 0; word < leaves_.size() * words_per_leaf; ++word) {
    const std::uint64_t bits = word_at(word);
    granules += static_cast<std::uint64_t>(std::popcount(bits));
    const std::uint64_t starts = bits & ~((bits << 1U) | static_cast<std::uint64_t>(previous));
    runs += static_cast<std::uint64_t>(std::popcount(starts));
    previous = (bits >> (bits_per_word - 1)) != 0;
  }
  return runs == runs_ && granule_ * granules == total_;
}

}  // namespace memstrata
