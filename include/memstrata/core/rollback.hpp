// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ranges>
#include <utility>
#include <vector>

namespace memstrata {

/// The steps done so far by an all-or-nothing operation; they are undone newest first, unless `keep` is called.
/// Room for every step is taken at construction, so that recording one cannot fail after its side effect.
/// `Undo` is called with each step and must not throw. Single-threaded.
template <class Step, class Undo>
class RollbackLog {
 public:
  RollbackLog(std::size_t most_steps, Undo undo) : undo_(std::move(undo)) {
    steps_.reserve(most_steps);
  }

  RollbackLog(const RollbackLog&) = delete;
  RollbackLog& operator=(const RollbackLog&) = delete;
  RollbackLog(RollbackLog&&) = delete;
  RollbackLog& operator=(RollbackLog&&) = delete;

  ~RollbackLog() {
    for (const Step& step : std::views::reverse(steps_)) {
      undo_(step);
    }
  }

  /// Notes a step that was done. At most as many as the constructor was told.
  void record(Step step) noexcept { steps_.push_back(std::move(step)); }

  /// The operation is complete: nothing is undone.
  void keep() noexcept { steps_.clear(); }

 private:
  std::vector<Step> steps_;
  Undo undo_;
};

}  // namespace memstrata
