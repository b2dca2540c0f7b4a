// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "frontend/replay/call_recorder.hpp"

namespace memstrata::replay_detail {

/// First line of a recording. The format is documented in docs/replay.md.
inline constexpr std::string_view recording_header = "memstrata-replay-calls 1";

/// One step as one line, with its end.
void append_line(std::string& text, const RecordedStep& step);

/// The last line.
void append_summary(std::string& text, const RecordingSummary& summary, std::size_t steps);

/// The step that a line describes, or nothing if it is none.
[[nodiscard]] std::optional<RecordedStep> parse_step(std::string_view line);

/// What the last line says.
struct ParsedSummary {
  RecordingSummary summary;
  std::size_t steps;
};

/// The summary that a line holds, or nothing if it is none.
[[nodiscard]] std::optional<ParsedSummary> parse_summary(std::string_view line);

}  // namespace memstrata::replay_detail
