// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "frontend/replay/executor.hpp"
#include "frontend/replay/replay_input.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"

namespace memstrata::replay_detail {

/// Whether `options`, which name a context, make sense for `input`. Errors: as of `run_replay`.
[[nodiscard]] Result<void, ReplayError> check_options(const ReplayInput& input,
                                                      const ReplayOptions& options);

/// One policy; `executor` may be null. `options` were checked.
[[nodiscard]] Result<PolicyResult, ReplayError> run_policy(const ReplayInput& input,
                                                           const ReplayOptions& options,
                                                           ReplayPolicy policy,
                                                           ReplayExecutor* executor,
                                                           const ReplayProgress& progress);

}  // namespace memstrata::replay_detail
