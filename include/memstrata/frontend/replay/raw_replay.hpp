// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// What executing a recording took.
struct RawReplay {
  std::uint64_t calls = 0;           ///< System calls.
  std::uint64_t fills = 0;           ///< Fills and copies.
  Bytes filled;                      ///< Bytes written by them.
  std::uint64_t checksum = 0;        ///< Of the list of fills; equals that of the recorded run.
  std::chrono::nanoseconds wall{0};  ///< Executing the list; reading the file is outside.
  std::chrono::nanoseconds recorded{
      0};  ///< What the recorded run took, without its checks and samples.
};

/// Executes the system calls and fills that a real replay wrote to `path`, with nothing around them: no budget,
/// no buffers, no engine. The whole list is read before the clock starts. Everything it took is given back.
/// Errors: RecordingFailed if the file cannot be read; BadRecording with the line; ExecutionFailed with call and
/// code if a call that had succeeded is refused now.
[[nodiscard]] Result<RawReplay, ReplayError> run_raw_replay(const std::string& path);

}  // namespace memstrata
