// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/kv_pattern.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "replay_rig.hpp"

namespace memstrata::replay_detail {
namespace {

using test::toy_geometry;

KvPattern toy_pattern(std::uint64_t seed = 1) {
  return {toy_geometry(), KvPattern::Layers::full, seed};
}

std::vector<std::byte> filled(const KvPattern& pattern, KvOwner owner, ByteRange bytes) {
  std::vector<std::byte> memory(bytes.size.value);
  pattern.fill(owner, bytes, memory.data());
  return memory;
}

TEST(KvPatternCheck, AcceptsWhatWasFilled) {
  const KvPattern pattern = toy_pattern();
  const ByteRange bytes{.offset = Bytes{0}, .size = Bytes{4'096}};
  const auto memory = filled(pattern, pattern.block(7), bytes);

  EXPECT_EQ(pattern.check(pattern.block(7), bytes, memory.data()).mismatches, 0U);
}

TEST(KvPatternFill, DoesNotDependOnWhereItIsCut) {
  const KvPattern pattern = toy_pattern();
  const KvOwner owner = pattern.request(3, 1);
  const auto whole = filled(pattern, owner, {.offset = {}, .size = Bytes{4'096}});

  for (std::uint64_t cut = 8; cut < 4'096; cut += 8) {
    const auto tail = filled(pattern, owner, {.offset = Bytes{cut}, .size = Bytes{4'096 - cut}});
    ASSERT_TRUE(
        std::equal(tail.begin(), tail.end(), whole.begin() + static_cast<std::ptrdiff_t>(cut)))
        << cut;
  }
}

// Each word of a range is checked, and the first one that differs is named.
TEST(KvPatternCheck, FindsEveryFlippedBit) {
  const KvPattern pattern = toy_pattern();
  const ByteRange bytes{.offset = Bytes{72}, .size = Bytes{1'000}};
  auto memory = filled(pattern, pattern.block(1), bytes);

  for (std::size_t place = 0; place < memory.size(); ++place) {
    memory[place] ^= std::byte{0x10};
    const KvCheck check = pattern.check(pattern.block(1), bytes, memory.data());
    memory[place] ^= std::byte{0x10};
    ASSERT_EQ(check.mismatches, 1U) << place;
    ASSERT_EQ(check.first.offset, Bytes{72 + place / 8 * 8});
    ASSERT_NE(check.first.expected, check.first.found);
  }
}

TEST(KvPatternFill, DiffersBySeedOwnerPositionAndKindOfLayer) {
  const KvPattern one = toy_pattern(1);
  const KvPattern two = toy_pattern(2);
  const KvPattern sliding(toy_geometry(), KvPattern::Layers::sliding, 1);
  const ByteRange start{.offset = {}, .size = Bytes{2'048}};
  const ByteRange later{.offset = Bytes{2'048}, .size = Bytes{2'048}};
  std::set<std::uint64_t> words;
  std::size_t written = 0;

  for (const auto& memory : {filled(one, one.block(1), start),
                             filled(one, one.block(1), later),
                             filled(one, one.block(2), start),
                             filled(two, two.block(1), start),
                             filled(one, one.request(1, 0), start),
                             filled(one, one.request(1, 1), start),
                             filled(one, one.request(0, 1), start),
                             filled(sliding, sliding.request(1, 0), start)}) {
    for (std::size_t at = 0; at < memory.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, memory.data() + at, 8);
      words.insert(word);
      ++written;
    }
  }

  EXPECT_EQ(words.size(), written);
}

// A row is K or V of one layer, so that a row in the wrong place is a mismatch.
TEST(KvPatternRow, IsOneOfKOrVOfALayer) {
  const KvGeometry llama = find_geometry("llama-3-8b").value();
  const KvGeometry deepseek = find_geometry("deepseek-v3").value();
  KvGeometry scaled = llama;
  scaled.scale = 64;

  EXPECT_EQ(pattern_row(llama, KvPattern::Layers::full), Bytes{2'048});
  EXPECT_EQ(pattern_row(deepseek, KvPattern::Layers::full), Bytes{1'152});
  EXPECT_EQ(pattern_row(scaled, KvPattern::Layers::full), Bytes{2'048});
}

}  // namespace
}  // namespace memstrata::replay_detail
