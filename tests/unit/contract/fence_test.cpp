// SPDX-License-Identifier: Apache-2.0
#include "memstrata/contract/fence.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

#include <initializer_list>
#include <memory>
#include <utility>

namespace memstrata {
namespace {

class FixedFence final : public Fence {
 public:
  explicit FixedFence(FenceState state) : state_(state) {}

  [[nodiscard]] FenceState state() const noexcept override { return state_; }

 private:
  FenceState state_;
};

FenceSet set_of(std::initializer_list<FenceState> states) {
  FenceSet marks;
  for (const FenceState state : states) {
    marks.add(std::make_shared<FixedFence>(state));
  }
  return marks;
}

constexpr std::initializer_list<FenceState> all_states = {FenceState::pending,
                                                          FenceState::completed,
                                                          FenceState::failed,
                                                          FenceState::lost};

/// How much a state says about a set that has it.
int weight(FenceState state) {
  switch (state) {
    case FenceState::completed:
      return 0;
    case FenceState::pending:
      return 1;
    case FenceState::failed:
      return 2;
    case FenceState::lost:
      return 3;
  }
  std::unreachable();
}

TEST(FenceStateToString, NamesEveryState) {
  EXPECT_EQ(to_string(FenceState::pending), "pending");
  EXPECT_EQ(to_string(FenceState::completed), "completed");
  EXPECT_EQ(to_string(FenceState::failed), "failed");
  EXPECT_EQ(to_string(FenceState::lost), "lost");
}

TEST(FenceSetState, OfASetWithoutMarksIsCompleted) {
  EXPECT_EQ(FenceSet().state(), FenceState::completed);
  EXPECT_TRUE(FenceSet().fences().empty());
}

// G-178
TEST(FenceSetState, IsTheWeightiestOfItsMarksInAnyOrder) {
  for (const FenceState first : all_states) {
    EXPECT_EQ(set_of({first}).state(), first);
    for (const FenceState second : all_states) {
      for (const FenceState third : all_states) {
        const FenceState weightiest =
            std::max({first, second, third},
                     [](FenceState a, FenceState b) { return weight(a) < weight(b); });

        EXPECT_EQ(set_of({first, second, third}).state(), weightiest)
            << to_string(first) << ", " << to_string(second) << ", " << to_string(third);
      }
    }
  }
}

TEST(FenceSetAdd, KeepsTheOrderAndTakesFourMarks) {
  FenceSet marks;
  for (std::size_t i = 0; i < FenceSet::most; ++i) {
    const auto fence = std::make_shared<FixedFence>(FenceState::pending);
    marks.add(fence);
    EXPECT_EQ(marks.fences().size(), i + 1);
    EXPECT_EQ(marks.fences()[i], fence);
  }
}

TEST(FenceSetAdd, OfOneMoreMarkStopsTheProgram) {
  FenceSet marks = set_of(
      {FenceState::completed, FenceState::completed, FenceState::completed, FenceState::completed});

  EXPECT_DEATH(marks.add(std::make_shared<FixedFence>(FenceState::pending)), "full");
}

TEST(FenceSetAdd, OfNoFenceStopsTheProgram) {
  FenceSet marks;

  EXPECT_DEATH(marks.add(nullptr), "no fence");
}

TEST(FenceSetMove, LeavesTheSourceWithoutMarks) {
  FenceSet source = set_of({FenceState::pending, FenceState::failed});

  const FenceSet target = std::move(source);

  EXPECT_EQ(target.fences().size(), 2U);
  EXPECT_EQ(target.state(), FenceState::failed);
  // NOLINTBEGIN(bugprone-use-after-move): what a moved-from set says
  EXPECT_TRUE(source.fences().empty());
  EXPECT_EQ(source.state(), FenceState::completed);
  // NOLINTEND(bugprone-use-after-move)
}

TEST(FenceSetMove, IntoASetEndsTheMarksThatItHad) {
  const auto old = std::make_shared<FixedFence>(FenceState::lost);
  const auto kept = std::make_shared<FixedFence>(FenceState::pending);
  FenceSet target;
  target.add(old);
  target.add(old);
  FenceSet source;
  source.add(kept);

  target = std::move(source);

  EXPECT_EQ(old.use_count(), 1);
  EXPECT_EQ(kept.use_count(), 2);
  EXPECT_EQ(target.state(), FenceState::pending);
}

TEST(FenceSetMove, IntoItselfChangesNothing) {
  FenceSet marks = set_of({FenceState::pending});
  FenceSet& same = marks;

  marks = std::move(same);

  EXPECT_EQ(marks.fences().size(), 1U);
  EXPECT_EQ(marks.state(), FenceState::pending);
}

}  // namespace
}  // namespace memstrata
