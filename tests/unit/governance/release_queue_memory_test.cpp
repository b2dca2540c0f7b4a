// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#include "memstrata/contract/fence.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "memstrata/governance/fenced_release_queue.hpp"
#include "support/binding_rig.hpp"
#include "support/queue_rig.hpp"

namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

/// Blocks of this size and above cannot be had on this thread.
thread_local std::size_t refused_size = no_limit;

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

namespace memstrata {
namespace {

using test::expect_quiescent;
using test::QueueRig;

// G-179
TEST(FencedReleaseQueueEnqueue, WithoutMemoryToGrowLeavesTheRequestWithTheCaller) {
  const QueueRig rig;
  rig.put(192);  // three segments are full
  PreparedAllocationRelease request = rig.prepare();
  const AllocationIdentity identity = request.identity();

  refused_size = 6144;  // a further segment, and nothing else here
  const auto refused = rig.queue->enqueue(std::move(request));
  refused_size = no_limit;

  ASSERT_EQ(refused, DeferredEnqueueRejection::refused);
  ASSERT_EQ(request.identity(), identity);  // NOLINT(bugprone-use-after-move): it stays
  EXPECT_EQ(rig.queue->pending(), 192U);
  EXPECT_EQ(rig.queue->counters().rejected, 1U);
  EXPECT_EQ(rig.log->pins, 192U);
  EXPECT_EQ(rig.log->ended, 2U);
  ASSERT_EQ(rig.queue->enqueue(std::move(request)), std::nullopt);
  rig.fences->set_all(FenceState::completed);
  EXPECT_EQ(rig.queue->poll(), 193U);
  expect_quiescent(rig.binding.snapshot());
}

// G-180
TEST(FencedReleaseQueuePoll, SettlesFailedAndLostFencesWithoutMemory) {
  const QueueRig rig;
  rig.put(3);
  rig.fences->set_all(FenceState::completed);
  rig.fences->set(1, FenceState::failed);
  rig.fences->set(3, FenceState::lost);

  refused_size = 0;
  const std::size_t settled = rig.queue->poll();
  refused_size = no_limit;

  EXPECT_EQ(settled, 3U);
  EXPECT_EQ(rig.queue->pending(), 0U);
  EXPECT_EQ(rig.quarantined().size(), 3U);
}

}  // namespace
}  // namespace memstrata
