// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

namespace memstrata::bench {

/// Runs every body in a thread of its own, each on its own processor where there are enough, all from the same
/// moment, and returns what the bodies returned. A body measures itself.
[[nodiscard]] std::vector<double> run_together(const std::vector<std::function<double()>>& bodies);

/// The processors that this process may use.
[[nodiscard]] int usable_processors() noexcept;

}  // namespace memstrata::bench
