// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace memstrata {

/// Prompt tokens that one block id stands for in every trace format.
inline constexpr std::uint64_t trace_block_tokens = 512;

/// One request of a serving trace.
struct TraceRecord {
  std::chrono::nanoseconds arrival{0};  ///< Since the first request of the trace; never goes back.
  std::uint64_t input_tokens = 0;       ///< Prompt tokens, 1 to 2^31.
  std::uint64_t output_tokens = 0;      ///< Generated tokens, 0 to 2^31.
  /// One id per block of `trace_block_tokens` prompt tokens, the last block perhaps partly filled; an id stands
  /// for the whole prefix up to and including its block. Empty if the trace has no ids.
  std::vector<std::uint64_t> blocks;
  std::string tenant;   ///< Empty if the trace does not say.
  std::string session;  ///< Empty if the trace does not say.
};

}  // namespace memstrata
