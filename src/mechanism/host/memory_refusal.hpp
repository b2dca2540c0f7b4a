// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata::host {

/// The answer to a span that is no live allocation of the allocator that is asked.
[[nodiscard]] inline ErrorText no_such_allocation() noexcept {
  return "no live allocation of this allocator has this address, size and alignment";
}

/// A request of `bytes` that makes no sense.
[[nodiscard]] inline MemoryError malformed(Bytes bytes, ErrorText reason) noexcept {
  return InvalidRequest{.tier = Tier::host, .requested = bytes, .reason = std::move(reason)};
}

/// The backing's refusal of `bytes` as an allocator reports it: what the budget or the kernel said stays what it
/// is, malformed requests are InvalidRequest, and the backing's own error is the cause where it says more.
[[nodiscard]] MemoryError refusal(VirtualMemoryError error, Bytes bytes) noexcept;

/// What an error says, as a text that a release can carry.
[[nodiscard]] ErrorText explanation(const MemoryError& error) noexcept;

/// Whether `bytes` with `alignment` can be allocated at all.
/// Errors: InvalidRequest.
[[nodiscard]] Result<void> check_shape(Bytes bytes, Bytes alignment);

/// Runs `work`, which returns a `Result<T>`; if the bookkeeping finds no memory, that is an AllocationFailed.
/// `work` throws only before its first side effect.
template <class Work>
[[nodiscard]] auto unless_out_of_memory(Bytes bytes, Work&& work) noexcept
    -> decltype(std::forward<Work>(work)()) {
  try {
    return std::forward<Work>(work)();
  } catch (const std::bad_alloc&) {
    return fail(MemoryError(AllocationFailed{
        .tier = Tier::host, .requested = bytes, .reason = "no memory for the bookkeeping"}));
  }
}

}  // namespace memstrata::host
