// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::replay_detail {

/// One step of a recorded run.
struct RecordedStep {
  enum class Kind : std::uint8_t { call, fill, copy };

  Kind kind;
  host::SystemCall call{};   ///< Of a call.
  std::uint64_t answer = 0;  ///< Of a call: what the kernel answered.
  std::uint64_t to = 0;      ///< Of a fill or copy: address.
  std::uint64_t from = 0;    ///< Of a copy: address.
  std::uint64_t owner = 0;   ///< Of a fill: key of the owner.
  Bytes row{};               ///< Of a fill: bytes of a row.
  Bytes offset{};            ///< Of a fill: offset in the owner.
  Bytes size{};              ///< Of a fill or copy.
};

/// What stands at the end of a recording.
struct RecordingSummary {
  std::chrono::nanoseconds wall{0};
  std::uint64_t checksum = 0;
};

/// Hands every system call on to the kernel and keeps those that succeeded, together with the fills between them.
/// `execute` is thread-safe; the rest is single-threaded.
class CallRecorder final : public host::SystemCalls {
 public:
  /// `below` makes the calls; not null.
  explicit CallRecorder(std::shared_ptr<host::SystemCalls> below) noexcept;

  [[nodiscard]] host::SystemResult execute(const host::SystemCall& call) noexcept override;

  void record(const RecordedStep& step);

  /// Switches the record of calls off and on: what only looks at memory is not part of the work.
  void pause(bool paused) noexcept { paused_.store(paused, std::memory_order_relaxed); }

  /// Whether a step was lost because there was no memory to keep it.
  [[nodiscard]] bool is_incomplete() const noexcept {
    return lost_.load(std::memory_order_relaxed);
  }

  /// Writes everything to `path`. Errors: RecordingFailed.
  [[nodiscard]] Result<void, ReplayError> write(const std::string& path,
                                                const RecordingSummary& summary);

 private:
  std::shared_ptr<host::SystemCalls> below_;
  // Relaxed: both flags only select what is kept; nothing is published through them.
  std::atomic<bool> paused_{false};
  std::atomic<bool> lost_{false};
  Mutex mutex_;
  std::vector<RecordedStep> steps_ MEMSTRATA_GUARDED_BY(mutex_);
};

}  // namespace memstrata::replay_detail
