// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace memstrata::replay_detail {

/// Whether two names are equal but for the case of ASCII letters.
[[nodiscard]] bool same_name(std::string_view a, std::string_view b) noexcept;

}  // namespace memstrata::replay_detail
