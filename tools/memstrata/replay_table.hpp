// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "replay_outcome.hpp"
#include "table.hpp"

namespace memstrata::tool {

/// One column per policy, one row per figure, in groups. After a search for a limit the figures are those at the
/// limit that was found, and the first group says which.
[[nodiscard]] Table comparison_table(const ReplayOutcome& outcome);

/// What was replayed and how: label and value.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> facts_of(
    const ReplayOutcome& outcome);

/// After a search for a limit, the sentence with the answer; else empty.
[[nodiscard]] std::string limit_sentence(const ReplayOutcome& outcome);

/// Facts, table, notes and the tier sentence, as wide as the terminal behind `out`.
void print_replay(const ReplayOutcome& outcome, std::ostream& out);

}  // namespace memstrata::tool
