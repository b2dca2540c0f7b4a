// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace memstrata {

/// Where time comes from; nothing else in the library reads it. Thread-safe.
class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  Clock(Clock&&) = delete;
  Clock& operator=(Clock&&) = delete;
  virtual ~Clock() = default;

  /// Time since some fixed start; never goes back.
  [[nodiscard]] virtual std::chrono::nanoseconds now() const noexcept = 0;
};

/// The machine's monotonic clock. Lives as long as the program.
[[nodiscard]] const Clock& steady_clock() noexcept;

/// A clock that stands still until it is told. Single-threaded.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] std::chrono::nanoseconds now() const noexcept override { return now_; }

  void advance(std::chrono::nanoseconds by) noexcept { now_ += by; }

 private:
  std::chrono::nanoseconds now_{0};
};

}  // namespace memstrata
