// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace memstrata::host {

/// Lets one thread after the other work on one object. Unlike a `Mutex` it may be held across system calls and
/// calls of a governor: it protects one object's steps and never a table, so nobody waits who does not want that
/// very object. A governor that is called by its holder must not come back to the same object. Thread-safe.
class Turn {
 public:
  /// Waits until it is this thread's turn.
  void take() noexcept {
    // Acquire pairs with release in `give`: the next one sees all that the one before did to the object.
    while (taken_.test_and_set(std::memory_order_acquire)) {
      taken_.wait(true, std::memory_order_relaxed);
    }
  }

  void give() noexcept {
    taken_.clear(std::memory_order_release);
    taken_.notify_one();
  }

 private:
  std::atomic_flag taken_;
};

/// Has the turn for a scope. Single-threaded.
class TurnGuard {
 public:
  explicit TurnGuard(Turn& turn) noexcept : turn_(turn) { turn_.take(); }

  TurnGuard(const TurnGuard&) = delete;
  TurnGuard& operator=(const TurnGuard&) = delete;
  TurnGuard(TurnGuard&&) = delete;
  TurnGuard& operator=(TurnGuard&&) = delete;

  ~TurnGuard() { turn_.give(); }

 private:
  Turn& turn_;
};

}  // namespace memstrata::host
