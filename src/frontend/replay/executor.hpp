// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frontend/replay/replay_input.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"

namespace memstrata::replay_detail {

/// A request enters memory.
struct AdmitStep {
  std::uint64_t request;
  std::uint64_t incarnation;
  std::uint64_t tokens;    ///< Prompt and the tokens generated before a preemption.
  std::uint64_t capacity;  ///< Tokens of room.
  std::span<const BlockIndex>
      path;            ///< Its full prompt blocks, whether the policy shares them or not.
  std::uint64_t hits;  ///< How many of them are present; the rest is made now.
};

/// A request gets room for one more token, which exists from now on.
struct GrowStep {
  std::uint64_t request;
  std::uint64_t tokens;    ///< With the new one.
  std::uint64_t capacity;  ///< Tokens of room from now on.
};

/// What real memory adds to a report.
struct ExecutionFigures {
  std::optional<Bytes> peak_kernel;
  std::optional<Bytes> peak_leased;
  std::vector<KernelSample> kernel_samples;
  ReplayOps op_ns;
  ReplayVerify verify;
  ReplayReleases releases;
  Bytes final_leased;
  std::uint64_t violations = 0;
  std::vector<std::string> violation_texts;
};

/// Does to memory what the engine decided. The engine has made sure that the bytes fit the limit, less what is in
/// quarantine; a step that fails all the same ends the run, and destruction gives everything back. Single-threaded.
class ReplayExecutor {
 public:
  ReplayExecutor() = default;
  ReplayExecutor(const ReplayExecutor&) = delete;
  ReplayExecutor& operator=(const ReplayExecutor&) = delete;
  ReplayExecutor(ReplayExecutor&&) = delete;
  ReplayExecutor& operator=(ReplayExecutor&&) = delete;
  virtual ~ReplayExecutor() = default;

  [[nodiscard]] virtual Result<void, ReplayError> admit(const AdmitStep& step) = 0;
  [[nodiscard]] virtual Result<void, ReplayError> grow(const GrowStep& step) = 0;
  /// A request is complete: its bytes are checked, if that is wanted, and its own part is to be released.
  [[nodiscard]] virtual Result<void, ReplayError> finish(std::uint64_t request) = 0;
  /// A request loses its own part unread.
  [[nodiscard]] virtual Result<void, ReplayError> preempt(std::uint64_t request) = 0;
  /// An idle block goes.
  [[nodiscard]] virtual Result<void, ReplayError> evict(BlockIndex block) = 0;
  /// The device step that is under way ends: what was given up before is released. Returns what was not, and stays
  /// charged: the limit is lower by so much.
  virtual Bytes end_step() = 0;
  /// After each step that changed what is held: the engine's own figure, to be compared. Ends the device step too and
  /// returns the same.
  virtual Bytes observe(Bytes committed) = 0;
  /// Whether the device is lost. The step that found out has failed; of the others only `end` and `figures` may follow.
  [[nodiscard]] virtual bool is_device_lost() const noexcept = 0;
  /// Everything goes, at the end of the trace or after the loss of the device.
  [[nodiscard]] virtual Result<void, ReplayError> end() = 0;

  [[nodiscard]] virtual ExecutionFigures figures() = 0;
};

}  // namespace memstrata::replay_detail
