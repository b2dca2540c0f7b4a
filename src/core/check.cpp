// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/check.hpp"

#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace memstrata {
namespace {

void write_to_standard_error(const CheckFailure& failure) noexcept {
  std::fprintf(stderr,
               "memstrata: %s:%d: %s (%s; values %" PRIu64 " and %" PRIu64 ")\n",
               failure.file,
               failure.line,
               failure.message,
               failure.expression,
               failure.first,
               failure.second);
}

// Release pairs with acquire: a handler is seen with everything that was set up before it was installed.
constinit std::atomic<AbortHandler> current_handler{&write_to_standard_error};

}  // namespace

AbortHandler set_abort_handler(AbortHandler handler) noexcept {
  return current_handler.exchange(handler == nullptr ? &write_to_standard_error : handler,
                                  std::memory_order_acq_rel);
}

namespace detail {

void check_failed(const char* expression,
                  const char* message,
                  const char* file,
                  int line,
                  std::uint64_t first,
                  std::uint64_t second) noexcept {
  current_handler.load(std::memory_order_acquire)(CheckFailure{.expression = expression,
                                                               .message = message,
                                                               .file = file,
                                                               .line = line,
                                                               .first = first,
                                                               .second = second});
  std::abort();
}

}  // namespace detail
}  // namespace memstrata
