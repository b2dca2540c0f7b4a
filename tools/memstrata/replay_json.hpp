// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "replay_outcome.hpp"

namespace memstrata::tool {

/// The report under the names of docs/json.md. Names and meanings hold as long as `schema` does; names may be
/// added.
[[nodiscard]] nlohmann::ordered_json to_json(const ReplayOutcome& outcome);

}  // namespace memstrata::tool
