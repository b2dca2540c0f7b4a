// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/rollback.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace memstrata {
namespace {

struct Undo {
  std::vector<int>& undone;

  void operator()(int step) const noexcept { undone.push_back(step); }
};

TEST(RollbackLog, UndoesNewestFirst) {
  std::vector<int> undone;
  {
    RollbackLog<int, Undo> log(3, Undo{undone});
    log.record(1);
    log.record(2);
    log.record(3);
    EXPECT_TRUE(undone.empty());
  }

  EXPECT_EQ(undone, (std::vector{3, 2, 1}));
}

TEST(RollbackLog, UndoesNothingThatIsKept) {
  std::vector<int> undone;
  {
    RollbackLog<int, Undo> log(2, Undo{undone});
    log.record(1);
    log.record(2);
    log.keep();
  }

  EXPECT_TRUE(undone.empty());
}

TEST(RollbackLog, UndoesWhatComesAfterAKeep) {
  std::vector<int> undone;
  {
    RollbackLog<int, Undo> log(3, Undo{undone});
    log.record(1);
    log.keep();
    log.record(2);
  }

  EXPECT_EQ(undone, (std::vector{2}));
}

TEST(RollbackLog, UndoesWhenAnExceptionPasses) {
  std::vector<int> undone;
  const auto interrupted = [&] {
    RollbackLog<int, Undo> log(2, Undo{undone});
    log.record(7);
    throw std::runtime_error("no memory for the next step");
  };

  EXPECT_THROW(interrupted(), std::runtime_error);
  EXPECT_EQ(undone, (std::vector{7}));
}

}  // namespace
}  // namespace memstrata
