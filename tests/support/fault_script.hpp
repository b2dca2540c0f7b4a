// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "memstrata/core/mutex.hpp"

namespace memstrata::test {

/// Counts the calls of a double by name and makes chosen ones fail. Thread-safe.
class FaultScript {
 public:
  /// The `nth` call of `operation` from now on (1 = the next) fails, once.
  void fail_nth(std::string_view operation, std::uint64_t nth) {
    const MutexLock lock(mutex_);
    const std::string name(operation);
    faults_[name].insert(calls_[name] + nth);
  }

  void fail_next(std::string_view operation) { fail_nth(operation, 1); }

  /// The `nth` call from now on fails, whichever operation it is, once.
  void fail_nth_of_any(std::uint64_t nth) {
    const MutexLock lock(mutex_);
    any_faults_.insert(log_.size() + nth);
  }

  /// Forgets the faults that have not happened; the counts stay.
  void clear_faults() {
    const MutexLock lock(mutex_);
    faults_.clear();
    any_faults_.clear();
  }

  /// The double is called: counts it and says whether it must fail.
  [[nodiscard]] bool must_fail(std::string_view operation) {
    const MutexLock lock(mutex_);
    const std::string name(operation);
    const std::uint64_t call = ++calls_[name];
    log_.push_back(name);
    const bool named = faults_[name].erase(call) != 0;
    const bool any = any_faults_.erase(log_.size()) != 0;
    return named || any;
  }

  [[nodiscard]] std::uint64_t calls(std::string_view operation) const {
    const MutexLock lock(mutex_);
    const auto found = calls_.find(std::string(operation));
    return found == calls_.end() ? 0 : found->second;
  }

  [[nodiscard]] std::uint64_t all_calls() const {
    const MutexLock lock(mutex_);
    return log_.size();
  }

  /// The names of all calls so far, in order.
  [[nodiscard]] std::vector<std::string> log() const {
    const MutexLock lock(mutex_);
    return log_;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::uint64_t> calls_ MEMSTRATA_GUARDED_BY(mutex_);
  std::map<std::string, std::set<std::uint64_t>> faults_ MEMSTRATA_GUARDED_BY(mutex_);
  std::set<std::uint64_t> any_faults_ MEMSTRATA_GUARDED_BY(mutex_);
  std::vector<std::string> log_ MEMSTRATA_GUARDED_BY(mutex_);
};

}  // namespace memstrata::test
