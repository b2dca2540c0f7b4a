// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace memstrata {

/// What a broken invariant reports before the program stops.
struct CheckFailure {
  const char* expression;
  const char* message;
  const char* file;
  int line;
  std::uint64_t first;   ///< The first value that the check names, or 0.
  std::uint64_t second;  ///< The second value that the check names, or 0.
};

/// Called once with the failure; the program aborts when it returns. Must not throw.
using AbortHandler = void (*)(const CheckFailure&) noexcept;

/// Replaces the handler and returns the one before. A null handler restores the default, which writes one line
/// to standard error. Thread-safe.
AbortHandler set_abort_handler(AbortHandler handler) noexcept;

namespace detail {

[[noreturn]] void check_failed(const char* expression,
                               const char* message,
                               const char* file,
                               int line,
                               std::uint64_t first = 0,
                               std::uint64_t second = 0) noexcept;

}  // namespace detail

}  // namespace memstrata

/// Checked in every build: going on would corrupt memory or the books.
/// `MEMSTRATA_VERIFY(condition, message[, value[, value]])`.
#define MEMSTRATA_VERIFY(condition, ...)                                                 \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      ::memstrata::detail::check_failed_at(#condition, __FILE__, __LINE__, __VA_ARGS__); \
    }                                                                                    \
  } while (false)

/// Checked in debug builds: a precondition of the caller.
#if defined(MEMSTRATA_ASSERTS) && MEMSTRATA_ASSERTS
#define MEMSTRATA_ASSERT(condition, ...) MEMSTRATA_VERIFY(condition, __VA_ARGS__)
#else
#define MEMSTRATA_ASSERT(condition, ...) static_cast<void>(0)
#endif

/// Checked in the `checked` build: whole-structure validation, too slow for debug builds.
#if defined(MEMSTRATA_SLOW_ASSERTS) && MEMSTRATA_SLOW_ASSERTS
#define MEMSTRATA_ASSERT_SLOW(condition, ...) MEMSTRATA_VERIFY(condition, __VA_ARGS__)
#else
#define MEMSTRATA_ASSERT_SLOW(condition, ...) static_cast<void>(0)
#endif

namespace memstrata::detail {

[[noreturn]] inline void check_failed_at(const char* expression,
                                         const char* file,
                                         int line,
                                         const char* message,
                                         std::uint64_t first = 0,
                                         std::uint64_t second = 0) noexcept {
  check_failed(expression, message, file, line, first, second);
}

}  // namespace memstrata::detail
