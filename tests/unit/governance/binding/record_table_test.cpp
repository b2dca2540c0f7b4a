// SPDX-License-Identifier: Apache-2.0
#include "governance/binding/record_table.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "governance/binding/allocation_record.hpp"
#include "governance/binding/mechanism_gate.hpp"
#include "memstrata/core/release_state.hpp"

namespace memstrata::detail {
namespace {

static_assert(RecordTable::capacity <= MechanismGate::most_live);

TEST(RecordTable, IsEmptyAndFindsNothingBeforeTheFirstRecord) {
  RecordTable table;

  EXPECT_EQ(table.carved(), 0U);
  EXPECT_EQ(table.find(0), nullptr);
}

TEST(RecordTable, ANewRecordIsReleasedAndBelongsToNobody) {
  RecordTable table;

  const AllocationRecord* const record = table.take();

  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->generation, 0U);
  EXPECT_EQ(record->serials_left, 0U);
  const RecordControl control = record->state();
  EXPECT_FALSE(control.held);
  EXPECT_EQ(control.pins, 0U);
  EXPECT_FALSE(is_quarantine(control.state));
}

TEST(RecordTable, TheRecordGivenBackLastIsTakenNext) {
  RecordTable table;
  AllocationRecord* const first = table.take();
  AllocationRecord* const second = table.take();
  ASSERT_NE(first, second);
  table.give_back(*first);
  table.give_back(*second);

  EXPECT_EQ(table.take(), second);
  EXPECT_EQ(table.take(), first);
}

TEST(RecordTable, EveryRecordHasItsPlaceAndNeverMoves) {
  constexpr std::uint32_t records = 5000;  // over five chunks
  RecordTable table;
  std::vector<AllocationRecord*> taken;
  std::set<std::uint32_t> places;
  for (std::uint32_t i = 0; i < records; ++i) {
    taken.push_back(table.take());
    places.insert(taken.back()->place);
  }

  EXPECT_EQ(places.size(), records);
  EXPECT_GE(table.carved(), records);
  EXPECT_EQ(table.find(table.carved()), nullptr);
  for (AllocationRecord* const record : taken) {
    ASSERT_EQ(table.find(record->place), record);
  }
}

TEST(RecordTable, GrowsNoLargerThanTheMostRecordsInUseAtOnce) {
  RecordTable table;
  std::vector<AllocationRecord*> taken;
  for (int i = 0; i < 300; ++i) {
    taken.push_back(table.take());
  }
  const std::uint32_t carved = table.carved();

  for (int round = 0; round < 10; ++round) {
    for (AllocationRecord* const record : taken) {
      table.give_back(*record);
    }
    for (AllocationRecord*& record : taken) {
      record = table.take();
    }
  }

  EXPECT_EQ(table.carved(), carved);
  EXPECT_LT(carved, 300U + 64U);
}

TEST(RecordTable, GivesEveryRecordOfABlockBeforeItMakesAnother) {
  RecordTable table;
  std::set<std::uint32_t> places;
  for (std::uint32_t i = 0; i < RecordTable::block_records; ++i) {
    places.insert(table.take()->place);
  }

  EXPECT_EQ(places.size(), RecordTable::block_records);
  EXPECT_EQ(*places.rbegin(), RecordTable::block_records - 1);
  EXPECT_EQ(table.carved(), RecordTable::block_records);
}

TEST(RecordTable, CountsQuarantinePerBlock) {
  RecordTable table;
  std::vector<AllocationRecord*> taken;
  for (std::uint32_t i = 0; i < 4 * RecordTable::block_records; ++i) {
    taken.push_back(table.take());
  }

  for (std::uint32_t block = 0; block < 4; ++block) {
    table.quarantined_in_block(block * RecordTable::block_records) = block + 1;
  }

  for (std::uint32_t place = 0; place < 4 * RecordTable::block_records; ++place) {
    ASSERT_EQ(table.quarantined_in_block(place), (place / RecordTable::block_records) + 1);
  }
}

TEST(RecordTable, NeverGivesOneRecordToTwoThreads) {
  constexpr int threads = 4;
  constexpr int rounds = 3000;
  RecordTable table;
  std::vector<int> clashes(threads, 0);
  {
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&table, &clashes, t] {
        const auto me = static_cast<std::uint64_t>(t) + 1;
        for (int i = 0; i < rounds; ++i) {
          AllocationRecord* const one = table.take();
          AllocationRecord* const two = table.take();
          one->binding = me;
          two->binding = me;
          std::this_thread::yield();
          clashes[static_cast<std::size_t>(t)] +=
              (one == two || one->binding != me || two->binding != me) ? 1 : 0;
          table.give_back(*one);
          table.give_back(*two);
        }
      });
    }
  }

  EXPECT_EQ(clashes, std::vector<int>(threads, 0));
  EXPECT_LE(table.carved(), 2U * threads * 32U);
}

}  // namespace
}  // namespace memstrata::detail
