// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <type_traits>
#include <utility>

#include "memstrata/core/error/memory_error.hpp"

namespace memstrata {

/// A value or the reason why there is none. Functions that return one are `[[nodiscard]]`.
template <class T, class E = MemoryError>
using Result = std::expected<T, E>;

/// The failed result that carries `error`, which may be an error or one of its alternatives.
template <class E>
[[nodiscard]] constexpr std::unexpected<std::remove_cvref_t<E>> fail(E&& error) {
  return std::unexpected<std::remove_cvref_t<E>>(std::forward<E>(error));
}

}  // namespace memstrata

// `result` is a name made from the line, so that two uses in one block do not collide.
#define MEMSTRATA_DETAIL_JOIN2(a, b) a##b
#define MEMSTRATA_DETAIL_JOIN(a, b) MEMSTRATA_DETAIL_JOIN2(a, b)

/// `MEMSTRATA_TRY(auto value, expression)`: declares `value` from the result of `expression`, or returns its
/// error from the enclosing function.
#define MEMSTRATA_TRY(declaration, ...) \
  MEMSTRATA_DETAIL_TRY(MEMSTRATA_DETAIL_JOIN(memstrata_result_, __LINE__), declaration, __VA_ARGS__)
#define MEMSTRATA_DETAIL_TRY(result, declaration, ...)   \
  auto result = __VA_ARGS__;                             \
  if (!result.has_value()) {                             \
    return ::memstrata::fail(std::move(result).error()); \
  }                                                      \
  declaration = std::move(result).value()

/// Returns the error of a `Result<void, E>` from the enclosing function, if there is one.
#define MEMSTRATA_TRY_VOID(...)                                               \
  do {                                                                        \
    if (auto memstrata_result = __VA_ARGS__; !memstrata_result.has_value()) { \
      return ::memstrata::fail(std::move(memstrata_result).error());          \
    }                                                                         \
  } while (false)
