// SPDX-License-Identifier: Apache-2.0
#include "frontend/trace/block_index.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <unordered_map>
#include <vector>

namespace memstrata::detail {
namespace {

TEST(BlockIndexInsert, NumbersKeysInOrderOfFirstAppearance) {
  BlockIndex index;

  EXPECT_EQ(index.insert(900).index, 0U);
  EXPECT_EQ(index.insert(7).index, 1U);
  const auto again = index.insert(900);

  EXPECT_EQ(again.index, 0U);
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(index.size(), 2U);
  EXPECT_EQ(index.key(1), 7U);
  EXPECT_EQ(index.find(8), std::nullopt);
}

TEST(BlockIndexFind, KnowsNothingBeforeTheFirstKey) {
  const BlockIndex index;

  EXPECT_EQ(index.find(0), std::nullopt);
}

TEST(BlockIndexProperty, InsertsAndPopsAgreeWithAMap) {
  constexpr std::uint64_t seed = 41;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  BlockIndex index;
  std::unordered_map<std::uint64_t, std::uint32_t> model;
  std::vector<std::uint64_t> order;

  for (int step = 0; step < 20'000; ++step) {
    if (random() % 4 == 0 && !order.empty()) {
      model.erase(order.back());
      order.pop_back();
      index.pop();
    } else {
      const std::uint64_t key = random() % 8'000;
      const bool is_new = model.try_emplace(key, static_cast<std::uint32_t>(order.size())).second;
      if (is_new) {
        order.push_back(key);
      }
      const auto place = index.insert(key);
      ASSERT_EQ(place.is_new, is_new) << "step " << step;
      ASSERT_EQ(place.index, model.at(key)) << "step " << step;
    }
    const std::uint64_t probe = random() % 8'000;
    const auto known = model.find(probe);
    ASSERT_EQ(index.find(probe), known == model.end() ? std::nullopt : std::optional(known->second))
        << "step " << step;
    ASSERT_EQ(index.size(), order.size());
  }
}

}  // namespace
}  // namespace memstrata::detail
