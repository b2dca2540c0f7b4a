// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "memstrata/core/mutex.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::test {

/// How a call fails.
enum class Breakage : unsigned char {
  before,  ///< Nothing happened.
  after,  ///< It happened, in whole, and is reported as a failure: the worst case of "stopped half-way".
  hole,  ///< A replacing `mmap` that unmapped what was there and then failed; other calls: as `before`.
};

/// The real kernel, recorded, in which the calls that a test chooses fail. Thread-safe.
class BreakingSystemCalls final : public host::SystemCalls {
 public:
  /// The `nth` call from now on (1 = the next) fails as told, once.
  void break_nth(std::size_t nth, Breakage how, int error = ENOMEM) {
    const MutexLock lock(mutex_);
    at_ = calls_.size() + nth;
    until_ = at_;
    how_ = how;
    error_ = error;
  }

  /// Every call of `kind` fails until `mend`.
  void break_all(host::SystemCallKind kind, int error = ENOMEM) {
    const MutexLock lock(mutex_);
    kind_ = kind;
    error_ = error;
    how_ = Breakage::before;
  }

  /// The `nth` call from now on and all after it fail until `mend`.
  void break_from(std::size_t nth, int error = ENOMEM) {
    const MutexLock lock(mutex_);
    at_ = calls_.size() + nth;
    until_ = static_cast<std::size_t>(-1);
    how_ = Breakage::before;
    error_ = error;
  }

  void mend() {
    const MutexLock lock(mutex_);
    at_ = 0;
    until_ = 0;
    kind_.reset();
  }

  /// Whether a call failed because a test chose so, since construction.
  [[nodiscard]] bool has_broken() const {
    const MutexLock lock(mutex_);
    return broken_;
  }

  [[nodiscard]] std::vector<host::SystemCall> calls() const {
    const MutexLock lock(mutex_);
    return calls_;
  }

  void forget() {
    const MutexLock lock(mutex_);
    calls_.clear();
    at_ = 0;
    until_ = 0;
  }

  [[nodiscard]] host::SystemResult execute(const host::SystemCall& call) noexcept override {
    bool breaks = false;
    Breakage how = Breakage::before;
    int error = 0;
    {
      const MutexLock lock(mutex_);
      calls_.push_back(call);
      breaks = (calls_.size() >= at_ && calls_.size() <= until_) || kind_ == call.kind;
      broken_ = broken_ || breaks;
      how = how_;
      error = error_;
    }
    if (!breaks) {
      return real_->execute(call);
    }
    if (how == Breakage::after && may_stop_half_way(call.kind)) {
      static_cast<void>(real_->execute(call));
    }
    if (how == Breakage::hole && call.kind == host::SystemCallKind::map &&
        call.placement == host::Placement::replace) {
      static_cast<void>(real_->execute(
          {.kind = host::SystemCallKind::unmap, .address = call.address, .length = call.length}));
    }
    return {.value = 0, .error = error};
  }

 private:
  /// Calls that the kernel may have carried out in part when they fail.
  [[nodiscard]] static bool may_stop_half_way(host::SystemCallKind kind) noexcept {
    return kind == host::SystemCallKind::protect || kind == host::SystemCallKind::advise ||
           kind == host::SystemCallKind::read_file;
  }

  std::shared_ptr<host::SystemCalls> real_ = host::real_system_calls();
  mutable Mutex mutex_;
  std::vector<host::SystemCall> calls_ MEMSTRATA_GUARDED_BY(mutex_);
  std::size_t at_ MEMSTRATA_GUARDED_BY(mutex_) = 0;
  std::size_t until_ MEMSTRATA_GUARDED_BY(mutex_) = 0;
  std::optional<host::SystemCallKind> kind_ MEMSTRATA_GUARDED_BY(mutex_);
  Breakage how_ MEMSTRATA_GUARDED_BY(mutex_) = Breakage::before;
  int error_ MEMSTRATA_GUARDED_BY(mutex_) = ENOMEM;
  bool broken_ MEMSTRATA_GUARDED_BY(mutex_) = false;
};

}  // namespace memstrata::test
