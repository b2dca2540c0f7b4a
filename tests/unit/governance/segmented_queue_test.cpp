// SPDX-License-Identifier: Apache-2.0
#include "governance/segmented_queue.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace memstrata::detail {
namespace {

using Value = std::shared_ptr<int>;
using Queue = SegmentedQueue<Value, 4>;

std::vector<int> values(Queue& queue, std::size_t most = static_cast<std::size_t>(-1)) {
  std::vector<int> found;
  queue.for_each([&found](const Value& value) { found.push_back(*value); }, most);
  return found;
}

void push(Queue& queue, int value) {
  if (!queue.has_room()) {
    queue.add(Queue::make_segment());
  }
  queue.push(std::make_shared<int>(value));
}

void drop(Queue& queue, std::size_t count) {
  queue.for_each([](Value& value) { std::destroy_at(&value); }, count);
  queue.drop_destroyed(count);
}

std::vector<int> numbers(int first, int last) {
  std::vector<int> all(static_cast<std::size_t>(last - first));
  std::iota(all.begin(), all.end(), first);
  return all;
}

TEST(SegmentedQueue, IsEmptyAndWithoutRoomAtFirst) {
  const Queue queue;

  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_FALSE(queue.has_room());
}

TEST(SegmentedQueue, HasRoomForWhatItsSegmentsHold) {
  Queue queue;
  queue.add(Queue::make_segment());
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(queue.has_room()) << i;
    queue.push(std::make_shared<int>(i));
  }
  EXPECT_FALSE(queue.has_room());
  queue.add(Queue::make_segment());
  queue.add(Queue::make_segment());
  for (int i = 4; i < 12; ++i) {
    ASSERT_TRUE(queue.has_room()) << i;
    queue.push(std::make_shared<int>(i));
  }
  EXPECT_FALSE(queue.has_room());
  EXPECT_EQ(values(queue), numbers(0, 12));
}

TEST(SegmentedQueue, IsFirstInFirstOutAcrossSegments) {
  Queue queue;
  for (int i = 0; i < 11; ++i) {
    push(queue, i);
  }
  EXPECT_EQ(values(queue, 6), numbers(0, 6));
  EXPECT_EQ(values(queue, 0), numbers(0, 0));

  drop(queue, 3);
  EXPECT_EQ(values(queue), numbers(3, 11));
  drop(queue, 6);
  EXPECT_EQ(values(queue), numbers(9, 11));
  push(queue, 11);
  EXPECT_EQ(values(queue), numbers(9, 12));
  EXPECT_EQ(queue.size(), 3U);
}

// Whatever is pushed and dropped: the order holds, and no more segments are used than the longest queue needs.
TEST(SegmentedQueue, UsesItsSegmentsAgain) {
  for (int dropped = 1; dropped <= 9; ++dropped) {
    Queue queue;
    queue.add(Queue::make_segment());
    queue.add(Queue::make_segment());
    queue.add(Queue::make_segment());
    queue.add(Queue::make_segment());
    int first = 0;
    int last = 0;
    for (int round = 0; round < 50; ++round) {
      while (last - first < 10) {
        ASSERT_TRUE(queue.has_room()) << dropped << " " << round;
        queue.push(std::make_shared<int>(last++));
      }
      drop(queue, static_cast<std::size_t>(dropped));
      first += dropped;
      ASSERT_EQ(values(queue), numbers(first, last));
    }
  }
}

TEST(SegmentedQueue, BeginsAnewInItsFirstSegmentWhenItIsEmpty) {
  Queue queue;
  queue.add(Queue::make_segment());
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(queue.has_room());
      queue.push(std::make_shared<int>(i));
    }
    ASSERT_EQ(values(queue), numbers(0, 3));
    drop(queue, 3);
    ASSERT_TRUE(queue.empty());
  }
}

TEST(SegmentedQueue, NeverMovesAValue) {
  Queue queue;
  push(queue, 0);
  push(queue, 1);
  std::vector<Value*> places;
  queue.for_each([&places](Value& value) { places.push_back(&value); });
  drop(queue, 1);
  for (int i = 2; i < 100; ++i) {
    push(queue, i);
  }

  EXPECT_EQ(**places[1], 1);
  queue.for_each([&places](Value& value) { EXPECT_EQ(&value, places[1]); }, 1);
}

TEST(SegmentedQueue, EndsItsValuesWithItself) {
  const auto value = std::make_shared<int>(1);
  {
    Queue queue;
    for (int i = 0; i < 10; ++i) {
      if (!queue.has_room()) {
        queue.add(Queue::make_segment());
      }
      queue.push(value);
    }
    drop(queue, 5);
    EXPECT_EQ(value.use_count(), 6);
  }
  EXPECT_EQ(value.use_count(), 1);
}

TEST(SegmentedQueue, MayBeAsLongAsMemoryAllows) {
  Queue queue;
  for (int i = 0; i < 400'000; ++i) {
    push(queue, i);
  }
  EXPECT_EQ(queue.size(), 400'000U);  // and 100,000 segments end with it, not one inside the other
}

TEST(SegmentedQueueSwap, ExchangesEverything) {
  Queue queue;
  for (int i = 0; i < 6; ++i) {
    push(queue, i);
  }
  drop(queue, 2);
  Queue other;

  queue.swap(other);

  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.has_room());
  EXPECT_EQ(values(other), numbers(2, 6));
  push(other, 6);
  push(queue, 7);
  EXPECT_EQ(values(other), numbers(2, 7));
  EXPECT_EQ(values(queue), numbers(7, 8));
}

}  // namespace
}  // namespace memstrata::detail
