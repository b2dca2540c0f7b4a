// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata {

/// Replays the records, in order of arrival, by the rules R1 to R17, once per policy. Two runs with the same
/// arguments give the same report but for wall times and kernel figures.
///
/// On real memory everything that was taken is given back before the call returns, also on failure.
/// Errors: BadReplayOption, BadGeometry, EmptySelection, PolicyNeedsSimulation before anything runs;
/// ExecutionFailed with the typed error of the library as cause; RecordingFailed.
/// Single-threaded; calls in parallel on different objects are fine. O(log n) per event.
[[nodiscard]] Result<ReplayReport, ReplayError> run_replay(std::span<const TraceRecord> records,
                                                           const ReplayOptions& options,
                                                           const ReplayProgress& progress = {});

}  // namespace memstrata
