// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/clock.hpp"

#include <chrono>

namespace memstrata {
namespace {

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] std::chrono::nanoseconds now() const noexcept override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
};

}  // namespace

const Clock& steady_clock() noexcept {
  static const SteadyClock clock;
  return clock;
}

}  // namespace memstrata
