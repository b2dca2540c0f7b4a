// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace memstrata {

/// How far away bytes live, fastest first; this is also the order of demotion. More tiers may follow behind
/// `disk`, so code walks `all_tiers` and never assumes a count.
enum class Tier : std::uint8_t { device = 0, host = 1, disk = 2 };

/// Every tier, in demotion order.
inline constexpr std::array all_tiers{Tier::device, Tier::host, Tier::disk};
inline constexpr std::size_t tier_count = all_tiers.size();

/// Position of a tier in tables of `tier_count` entries.
[[nodiscard]] constexpr std::size_t index_of(Tier tier) noexcept {
  return static_cast<std::size_t>(std::to_underlying(tier));
}

/// The stable name that messages, options and reports use: `device`, `host`, `disk`.
[[nodiscard]] constexpr std::string_view to_string(Tier tier) noexcept {
  switch (tier) {
    case Tier::device:
      return "device";
    case Tier::host:
      return "host";
    case Tier::disk:
      return "disk";
  }
  std::unreachable();
}

/// The tier of that name, or nothing.
[[nodiscard]] constexpr std::optional<Tier> parse_tier(std::string_view name) noexcept {
  for (const Tier tier : all_tiers) {
    if (to_string(tier) == name) {
      return tier;
    }
  }
  return std::nullopt;
}

}  // namespace memstrata
