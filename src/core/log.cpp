// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/log.hpp"

#include <atomic>

namespace memstrata {
namespace {

// Acquire and release: whoever sees a sink also sees what was set up for it before.
constinit std::atomic<LogSink> current{nullptr};

}  // namespace

LogSink set_log_sink(LogSink sink) noexcept {
  return current.exchange(sink, std::memory_order_acq_rel);
}

LogSink log_sink() noexcept {
  return current.load(std::memory_order_acquire);
}

}  // namespace memstrata
