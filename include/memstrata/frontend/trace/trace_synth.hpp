// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata {

/// What kind of synthetic trace is made. Every number has a say in the result; docs/trace-format.md has the model.
struct TraceSynthOptions {
  std::uint64_t seed = 1;
  /// Sessions, before `scale`.
  std::uint64_t sessions = 96;
  /// Multiplies sessions and duration alike: the load stays, the trace gets longer.
  std::uint64_t scale = 1;
  /// Mean time between the beginnings of two sessions.
  std::uint64_t session_gap_ms = 1000;
  /// No prompt is longer; a session ends when its next prompt would be.
  std::uint64_t max_input_tokens = 4096;
  /// Tenants, each with a system prompt of its own; the first is the busiest.
  std::uint64_t tenants = 4;
};

/// The options as the tool takes them, for the first line of the trace: `memstrata trace synth --seed 1 …`.
[[nodiscard]] std::string describe(const TraceSynthOptions& options);

/// Makes a synthetic trace record by record: equal options give equal records on every machine (integers only).
/// Memory: the sessions that are open. Single-threaded.
class TraceSynth {
 public:
  /// Options out of range are brought into it: at least one session, one tenant, scale 1, 1,024 prompt tokens.
  explicit TraceSynth(const TraceSynthOptions& options);
  TraceSynth(TraceSynth&& other) noexcept;
  TraceSynth& operator=(TraceSynth&& other) noexcept;
  TraceSynth(const TraceSynth&) = delete;
  TraceSynth& operator=(const TraceSynth&) = delete;
  ~TraceSynth();

  /// The next record in order of arrival, or nothing when all sessions have ended.
  [[nodiscard]] std::optional<TraceRecord> next();

 private:
  class State;

  std::unique_ptr<State> state_;
};

}  // namespace memstrata
