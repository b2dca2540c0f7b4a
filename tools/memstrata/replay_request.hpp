// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/frontend/replay/find_limit.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "replay_arguments.hpp"

namespace memstrata::tool {

/// What `memstrata replay` will do: the arguments, checked and with every default but the budget of real memory
/// filled in.
struct ReplayRequest {
  std::string trace;                      ///< Path, or "-".
  std::optional<std::uint64_t> requests;  ///< Records to take; nothing: all.
  bool skip_bad = false;
  std::vector<std::uint64_t> hit_curve;  ///< Empty: the default sizes.
  ReplayOptions options;
  std::optional<LimitCondition> find_limit;
  std::string json;  ///< Empty: none.
  std::string html;  ///< Empty: none.
};

/// Checks what was typed. The error is a sentence that names the option, what is wrong and what would be right.
[[nodiscard]] std::expected<ReplayRequest, std::string> check_arguments(
    const ReplayArguments& arguments);

}  // namespace memstrata::tool
