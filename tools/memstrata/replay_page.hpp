// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "replay_outcome.hpp"

namespace memstrata::tool {

/// The report as one HTML page with charts that opens without a network.
[[nodiscard]] std::string replay_page(const ReplayOutcome& outcome);

}  // namespace memstrata::tool
