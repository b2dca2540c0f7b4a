// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "memstrata/frontend/replay/find_limit.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "replay_request.hpp"
#include "trace_info_report.hpp"

namespace memstrata::tool {

/// Stands under every table and on every page of a replay.
inline constexpr const char* tier_sentence = "host tier; device figures come with the device tier";

/// Everything that a replay found out, for the table, the JSON and the page alike.
struct ReplayOutcome {
  ReplayRequest request;
  TraceInfo trace;
  ReplayReport report;             ///< Without policies after a search for a limit.
  std::vector<LimitFound> limits;  ///< One per policy after a search for a limit.

  /// Every policy's figures: those of the replay, or of the search at its limit.
  [[nodiscard]] std::vector<const PolicyResult*> results() const;
};

/// What the reader must know beside the figures, one sentence each: scale, missing ids, where the budget came
/// from, what was refused, what failed the check.
[[nodiscard]] std::vector<std::string> notes_of(const ReplayOutcome& outcome);

/// 1 if the run found something wrong: a mismatch, a broken promise, bytes left behind, a flipped bit that went
/// unnoticed, or a condition that no budget meets. 2 if a bit was to be flipped in a write that never came. Else 0.
[[nodiscard]] int exit_code_of(const ReplayOutcome& outcome) noexcept;

}  // namespace memstrata::tool
