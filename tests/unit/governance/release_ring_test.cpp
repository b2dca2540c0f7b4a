// SPDX-License-Identifier: Apache-2.0
#include "governance/release_ring.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace memstrata::detail {
namespace {

using Value = std::unique_ptr<int>;
using Slots = std::vector<std::optional<Value>>;

void grow(Ring<Value>& ring, std::size_t room) {
  Slots slots(room);
  ring.move_into(slots);
}

template <class T>
T pop(Ring<T>& ring) {
  std::optional<T> front;
  ring.pop_front(front);
  return *std::move(front);
}

std::vector<int> values(Ring<Value>& ring) {
  std::vector<int> found;
  ring.for_each([&found](const Value& value) { found.push_back(*value); });
  return found;
}

TEST(Ring, IsEmptyAndWithoutRoomAtFirst) {
  const Ring<Value> ring;

  EXPECT_TRUE(ring.empty());
  EXPECT_EQ(ring.size(), 0U);
  EXPECT_EQ(ring.capacity(), 0U);
}

TEST(RingPush, AtTheBackIsFirstInFirstOut) {
  Ring<Value> ring;
  grow(ring, 4);
  for (int i = 1; i <= 3; ++i) {
    ring.push_back(std::make_unique<int>(i));
  }

  EXPECT_EQ(ring.size(), 3U);
  EXPECT_EQ(values(ring), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(*pop(ring), 1);
  EXPECT_EQ(*pop(ring), 2);
  EXPECT_EQ(*pop(ring), 3);
  EXPECT_TRUE(ring.empty());
}

TEST(RingPush, AtTheFrontIsFirstOut) {
  Ring<Value> ring;
  grow(ring, 4);
  ring.push_back(std::make_unique<int>(3));

  ring.push_front(std::make_unique<int>(2));
  ring.push_front(std::make_unique<int>(1));

  EXPECT_EQ(values(ring), (std::vector<int>{1, 2, 3}));
}

TEST(RingPush, GoesRoundAndRoundWithoutGrowing) {
  Ring<Value> ring;
  grow(ring, 4);
  ring.push_back(std::make_unique<int>(0));
  for (int i = 1; i < 20; ++i) {
    ring.push_back(std::make_unique<int>(i));
    EXPECT_EQ(values(ring), (std::vector<int>{i - 1, i}));
    EXPECT_EQ(*pop(ring), i - 1);
  }

  EXPECT_EQ(ring.capacity(), 4U);
  EXPECT_EQ(ring.size(), 1U);
}

TEST(RingMoveInto, KeepsTheOrderOfWhatLiesAcrossTheEnd) {
  Ring<Value> ring;
  grow(ring, 4);
  for (int i = 1; i <= 4; ++i) {
    ring.push_back(std::make_unique<int>(i));
  }
  static_cast<void>(pop(ring));
  ring.push_back(std::make_unique<int>(5));

  Slots slots(8);
  ring.move_into(slots);

  EXPECT_EQ(ring.capacity(), 8U);
  EXPECT_EQ(slots.size(), 4U);
  EXPECT_EQ(values(ring), (std::vector<int>{2, 3, 4, 5}));
  ring.push_back(std::make_unique<int>(6));
  ring.push_front(std::make_unique<int>(1));
  EXPECT_EQ(values(ring), (std::vector<int>{1, 2, 3, 4, 5, 6}));
}

TEST(RingMoveInto, LeavesNoValueInTheOldArray) {
  Ring<Value> ring;
  grow(ring, 2);
  ring.push_back(std::make_unique<int>(1));

  Slots slots(4);
  ring.move_into(slots);

  EXPECT_FALSE(slots[0].has_value());
  EXPECT_FALSE(slots[1].has_value());
}

TEST(RingPop, LeavesNothingBehind) {
  Ring<std::shared_ptr<int>> ring;
  std::vector<std::optional<std::shared_ptr<int>>> slots(2);
  ring.move_into(slots);
  const auto value = std::make_shared<int>(1);
  ring.push_back(std::shared_ptr<int>(value));
  EXPECT_EQ(value.use_count(), 2);

  static_cast<void>(pop(ring));

  EXPECT_EQ(value.use_count(), 1);
}

TEST(RingSwap, ExchangesEverything) {
  Ring<Value> ring;
  grow(ring, 2);
  ring.push_back(std::make_unique<int>(1));
  Ring<Value> other;

  std::swap(ring, other);

  EXPECT_TRUE(ring.empty());
  EXPECT_EQ(ring.capacity(), 0U);
  EXPECT_EQ(values(other), (std::vector<int>{1}));
}

}  // namespace
}  // namespace memstrata::detail
