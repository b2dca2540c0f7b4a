// SPDX-License-Identifier: Apache-2.0
// What ranges and buffers do without memory for their own records.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/structure/buffer_segments.hpp"
#include "memstrata/structure/virtual_buffer.hpp"
#include "support/scripted_governor.hpp"
#include "support/sim_rig.hpp"

namespace {

constexpr std::size_t every_size = std::numeric_limits<std::size_t>::max();

/// Blocks of this size and above cannot be had on this thread.
thread_local std::size_t refused_size = every_size;

}  // namespace

// Not inlined, so that the compiler sees pairs of new and delete and not what is in them.
// NOLINTBEGIN(cppcoreguidelines-no-malloc): the allocation function itself
[[gnu::noinline]] void* operator new(std::size_t size) {
  void* const block = size < refused_size ? std::malloc(size) : nullptr;
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  return block;
}

[[gnu::noinline]] void operator delete(void* block) noexcept {
  std::free(block);
}

[[gnu::noinline]] void operator delete(void* block, std::size_t /*size*/) noexcept {
  std::free(block);
}

// NOLINTEND(cppcoreguidelines-no-malloc)

namespace memstrata::records_memory_test {
namespace {

using test::BooksCall;
using test::budget_error;
using test::granules;
using test::SimRig;

constexpr Bytes g = 4_KiB;           // the granule of the rig
constexpr std::size_t piece = 4096;  // bytes that hold the records of 32768 granules

/// The answer of `operation`, during which no block of `size` or above can be had.
template <class Operation>
[[nodiscard]] auto without_memory(std::size_t size, Operation&& operation) {
  refused_size = size;
  auto answer = operation();
  refused_size = every_size;
  return answer;
}

/// The same without any memory.
template <class Operation>
[[nodiscard]] auto without_memory(Operation&& operation) {
  return without_memory(0, std::forward<Operation>(operation));
}

void expect_no_memory_for(Bytes requested, const VirtualBufferError& refused) {
  const auto* error = budget_error<AllocationFailed>(refused);
  ASSERT_NE(error, nullptr) << refused.message();
  EXPECT_EQ(error->tier, Tier::device);
  EXPECT_EQ(error->requested, requested);
  EXPECT_NE(refused.message().find("no memory for the records"), std::string::npos)
      << refused.message();
}

TEST(RecordsMemory, RoomThatIsThereNeedsNoMemory) {
  BufferSegments segments;
  ASSERT_TRUE(segments.make_room(3));
  segments.append(1_B, SegmentKind::shared);

  EXPECT_TRUE(without_memory([&] { return segments.make_room(2); }));
  EXPECT_TRUE(without_memory([&] { return segments.make_room(0); }));
}

TEST(RecordsMemory, RoomThatCannotBeHadLeavesTheSegmentsAsTheyWere) {
  BufferSegments segments;
  ASSERT_TRUE(segments.make_room(1));
  segments.append(1_B, SegmentKind::shared);

  EXPECT_FALSE(without_memory([&] { return segments.make_room(1000); }));

  EXPECT_EQ(segments.end(), 1_B);
  EXPECT_EQ(segments.live().size(), 1U);
  EXPECT_TRUE(segments.validate());
}

TEST(RecordsMemory, AGrowthSaysHowManyBytesItWasAboutToAdd) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(g * 3).has_value());

  const auto refused = without_memory([&] { return buffer.grow_to(g * 4 + 1_B); });

  ASSERT_FALSE(refused.has_value());
  expect_no_memory_for(g * 2, refused.error());
  EXPECT_EQ(buffer.length(), g * 3);
  EXPECT_EQ(rig.used(), g * 3);
  EXPECT_EQ(rig.calls("commit"), 1U);
  EXPECT_EQ(rig.governor->books().count(BooksCall::Kind::claim), 1U);
  EXPECT_TRUE(buffer.validate());
  EXPECT_TRUE(buffer.grow_to(g * 5).has_value());
}

TEST(RecordsMemory, AnAttachChangesNothing) {
  const SimRig rig;
  const auto prefix = rig.prefix(2);
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.grow_to(g * 3).has_value());

  const auto refused = without_memory([&] { return buffer.attach(prefix); });

  ASSERT_FALSE(refused.has_value());
  expect_no_memory_for(g * 2, refused.error());
  EXPECT_EQ(buffer.length(), g * 3);
  EXPECT_EQ(buffer.shared_bytes(), Bytes{});
  EXPECT_EQ(rig.calls("map_shared"), 0U);
  EXPECT_TRUE(buffer.validate());
  EXPECT_TRUE(buffer.attach(prefix).has_value());
}

TEST(RecordsMemory, ABreakLeasesAndChangesNothing) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.attach(rig.prefix(4)).has_value());

  const auto refused = without_memory([&] { return buffer.break_shared(granules(g, 1, 2)); });

  ASSERT_FALSE(refused.has_value());
  expect_no_memory_for(g * 2, refused.error());
  EXPECT_EQ(buffer.shared_bytes(), g * 4);
  EXPECT_EQ(rig.calls("break_shared"), 0U);
  EXPECT_EQ(rig.used(), Bytes{});
  EXPECT_TRUE(buffer.validate());
  EXPECT_TRUE(buffer.break_shared(granules(g, 1, 2)).has_value());
}

TEST(RecordsMemory, AShrinkThatCutsASegmentChangesNothing) {
  const SimRig rig;
  auto buffer = rig.buffer(1_MiB);
  ASSERT_TRUE(buffer.attach(rig.prefix(5)).has_value());
  ASSERT_TRUE(buffer.grow_to(g * 6).has_value());
  ASSERT_TRUE(buffer.break_shared(granules(g, 2, 1)).has_value());
  ASSERT_EQ(buffer.segments().live().size(), 4U);  // all the room that there is

  const auto refused = without_memory([&] { return buffer.shrink_to(g); });

  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(budget_error<AllocationFailed>(refused.error()), nullptr);
  EXPECT_EQ(buffer.length(), g * 6);
  EXPECT_EQ(buffer.shared_bytes(), g * 4);
  EXPECT_EQ(rig.used(), g * 2);
  EXPECT_TRUE(buffer.validate());
  EXPECT_TRUE(buffer.shrink_to(g).has_value());
  EXPECT_TRUE(buffer.validate());
}

TEST(RecordsMemory, ARangeInsideThePieceOfTheRecordsThatIsThereNeedsNoOther) {
  const SimRig rig;
  auto range = rig.range(g * 65536);
  ASSERT_TRUE(range.commit(granules(g, 0, 1)).has_value());

  const auto done = without_memory(piece, [&] { return range.commit(granules(g, 32767, 1)); });
  const auto refused = without_memory(piece, [&] { return range.commit(granules(g, 32768, 1)); });

  EXPECT_TRUE(done.has_value());
  ASSERT_FALSE(refused.has_value());
  expect_no_memory_for(g, refused.error());
  EXPECT_EQ(range.committed(), g * 2);
  EXPECT_TRUE(range.validate());
}

// The records of granules come in pieces: the first range of the batch finds its own, the second does not.
TEST(RecordsMemory, ABatchOfRangesIsCommittedWhollyOrNotAtAll) {
  const SimRig rig;
  auto range = rig.range(g * 65536);
  ASSERT_TRUE(range.commit(granules(g, 0, 1)).has_value());
  const std::array ranges{granules(g, 4, 2), granules(g, 40000, 3)};

  const auto refused = without_memory(piece, [&] { return range.commit(ranges); });

  ASSERT_FALSE(refused.has_value());
  expect_no_memory_for(g * 3, refused.error());
  EXPECT_EQ(range.committed(), g);
  EXPECT_FALSE(range.is_committed(granules(g, 4, 1)));
  EXPECT_EQ(rig.used(), g);
  EXPECT_EQ(rig.calls("commit_batch"), 0U);
  EXPECT_TRUE(range.validate());
  EXPECT_TRUE(range.commit(ranges).has_value());
  EXPECT_EQ(range.committed(), g * 6);
}

}  // namespace
}  // namespace memstrata::records_memory_test
