// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/kv_pattern.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/frontend/replay/geometry.hpp"

namespace memstrata::replay_detail {
namespace {

constexpr std::uint64_t word = sizeof(std::uint64_t);

// Odd constants without a pattern of their own: 2^64 divided by the golden ratio, and two primes.
constexpr std::uint64_t step = 0x9E3779B97F4A7C15ULL;
constexpr std::uint64_t block_mark = 0xD6E8FEB86659FD93ULL;
constexpr std::uint64_t request_mark = 0xA0761D6478BD642FULL;
constexpr std::uint64_t sliding_mark = 0xE7037ED1A0B428DBULL;

/// Spreads every bit of `value` over all bits. Source: the finalizer of splitmix64 (Steele, Lea, Flood 2014).
constexpr std::uint64_t mix(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31U);
}

constexpr std::uint64_t row_start(std::uint64_t owner, std::uint64_t row) noexcept {
  return mix(owner + row * step);
}

/// Eight words at a time: the compiler turns this into whatever the machine has.
constexpr std::uint64_t lane_count = 8;
using Lanes [[gnu::vector_size(lane_count * word)]] = std::uint64_t;

// By reference: returned by value, the type would have another calling convention on each machine.
void set_lanes(Lanes& lanes, std::uint64_t first) noexcept {
  for (std::uint64_t lane = 0; lane < lane_count; ++lane) {
    lanes[lane] = first + lane * step;
  }
}

/// Writes `words` words that start with `value`.
void write_words(std::byte* to, std::uint64_t value, std::uint64_t words) noexcept {
  Lanes lanes{};
  set_lanes(lanes, value);
  std::uint64_t done = 0;
  for (; done + lane_count <= words; done += lane_count) {
    std::memcpy(to + done * word, &lanes, sizeof(lanes));
    lanes += lane_count * step;
  }
  std::memcpy(to + done * word, &lanes, (words - done) * word);
}

/// Reads `words` words and says whether all are what `write_words` wrote.
bool equals(const std::byte* from, std::uint64_t value, std::uint64_t words) noexcept {
  Lanes lanes{};
  set_lanes(lanes, value);
  Lanes differ{};
  std::uint64_t done = 0;
  for (; done + lane_count <= words; done += lane_count) {
    Lanes found;
    std::memcpy(&found, from + done * word, sizeof(found));
    differ |= found ^ lanes;
    lanes += lane_count * step;
  }
  std::uint64_t any = 0;
  for (std::uint64_t lane = 0; lane < lane_count; ++lane) {
    any |= differ[lane];
  }
  return any == 0 && std::memcmp(from + done * word, &lanes, (words - done) * word) == 0;
}

/// Counts the words that differ in a row of which at least one does.
void inspect(const std::byte* from,
             std::uint64_t value,
             std::uint64_t words,
             std::uint64_t offset,
             KvCheck& result) noexcept {
  for (std::uint64_t index = 0; index < words; ++index) {
    std::uint64_t found = 0;
    std::memcpy(&found, from + index * word, word);
    const std::uint64_t expected = value + index * step;
    if (found != expected && result.mismatches++ == 0) {
      result.first = {.offset = Bytes{offset + index * word}, .expected = expected, .found = found};
    }
  }
}

/// Calls `use(row start, first word in the row, words, offset from the range's start)` for each row of the range.
template <class Use>
void for_each_row(std::uint64_t owner, std::uint64_t row, ByteRange bytes, Use&& use) noexcept {
  MEMSTRATA_ASSERT(bytes.offset.value % word == 0 && bytes.size.value % word == 0,
                   "a pattern is written in whole words",
                   bytes.offset.value,
                   bytes.size.value);
  std::uint64_t number = bytes.offset.value / row;
  std::uint64_t inside = bytes.offset.value % row;
  for (std::uint64_t done = 0; done < bytes.size.value; ++number, inside = 0) {
    const std::uint64_t size = std::min(row - inside, bytes.size.value - done);
    use(row_start(owner, number), inside / word, size / word, done);
    done += size;
  }
}

}  // namespace

Bytes pattern_row(const KvGeometry& geometry, KvPattern::Layers layers) noexcept {
  if (geometry.scale > 1) {
    return layers == KvPattern::Layers::full ? geometry.full_bytes_per_token()
                                             : geometry.sliding_bytes_per_token();
  }
  const Bytes layer = geometry.bytes_per_layer();
  const bool splits = geometry.latent_dim == 0 && layer.value % (2 * word) == 0;
  return splits ? Bytes{layer.value / 2} : layer;
}

KvPattern::KvPattern(const KvGeometry& geometry, Layers layers, std::uint64_t seed) noexcept
    : seed_(mix(layers == Layers::full ? seed : seed ^ sliding_mark)),
      row_(std::max(pattern_row(geometry, layers).value, word)) {}

KvOwner KvPattern::block(std::uint64_t id) const noexcept {
  return {mix(seed_ ^ block_mark) ^ mix(id + block_mark)};
}

KvOwner KvPattern::request(std::uint64_t request, std::uint64_t incarnation) const noexcept {
  return {mix(seed_ ^ request_mark) ^ mix(mix(request + request_mark) + incarnation)};
}

std::uint64_t fill_rows(std::uint64_t owner, Bytes row, ByteRange bytes, std::byte* to) noexcept {
  std::uint64_t sum = 0;
  for_each_row(
      owner,
      row.value,
      bytes,
      [&](std::uint64_t start, std::uint64_t first, std::uint64_t words, std::uint64_t at) {
        write_words(to + at, start + first * step, words);
        sum += start;
      });
  return sum;
}

std::uint64_t KvPattern::fill(KvOwner owner, ByteRange bytes, std::byte* to) const noexcept {
  return fill_rows(owner.key, Bytes{row_}, bytes, to);
}

KvCheck KvPattern::check(KvOwner owner, ByteRange bytes, const std::byte* from) const noexcept {
  KvCheck result;
  for_each_row(
      owner.key,
      row_,
      bytes,
      [&](std::uint64_t start, std::uint64_t first, std::uint64_t words, std::uint64_t at) {
        const std::uint64_t value = start + first * step;
        if (!equals(from + at, value, words)) [[unlikely]] {
          inspect(from + at, value, words, bytes.offset.value + at, result);
        }
      });
  return result;
}

}  // namespace memstrata::replay_detail
