// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

namespace memstrata {

/// Why bytes are wanted. A value; equality and hash include `step_scoped`.
class MemoryRole {
 public:
  enum class Kind : std::uint8_t { kv_cache, workspace, weights, activation };

  static const MemoryRole kv_cache;
  static const MemoryRole weights;
  static const MemoryRole activation;

  /// Scratch memory; `step_scoped` if it is empty again after each step of the model.
  [[nodiscard]] static constexpr MemoryRole workspace(bool step_scoped) noexcept {
    return {Kind::workspace, step_scoped};
  }

  [[nodiscard]] constexpr Kind kind() const noexcept { return kind_; }

  [[nodiscard]] constexpr bool is_step_scoped() const noexcept { return step_scoped_; }

  [[nodiscard]] friend constexpr bool operator==(MemoryRole, MemoryRole) noexcept = default;

 private:
  constexpr MemoryRole(Kind kind, bool step_scoped) noexcept
      : kind_(kind), step_scoped_(step_scoped) {}

  Kind kind_;
  bool step_scoped_;
};

inline constexpr MemoryRole MemoryRole::kv_cache{MemoryRole::Kind::kv_cache, false};
inline constexpr MemoryRole MemoryRole::weights{MemoryRole::Kind::weights, false};
inline constexpr MemoryRole MemoryRole::activation{MemoryRole::Kind::activation, false};

/// The stable name for messages and reports, e.g. `kv_cache` or `workspace(step_scoped)`.
[[nodiscard]] constexpr std::string_view to_string(MemoryRole role) noexcept {
  switch (role.kind()) {
    case MemoryRole::Kind::kv_cache:
      return "kv_cache";
    case MemoryRole::Kind::workspace:
      return role.is_step_scoped() ? "workspace(step_scoped)" : "workspace";
    case MemoryRole::Kind::weights:
      return "weights";
    case MemoryRole::Kind::activation:
      return "activation";
  }
  std::unreachable();
}

}  // namespace memstrata

template <>
struct std::hash<memstrata::MemoryRole> {
  [[nodiscard]] std::size_t operator()(memstrata::MemoryRole role) const noexcept {
    return static_cast<std::size_t>(std::to_underlying(role.kind())) * 2U +
           (role.is_step_scoped() ? 1U : 0U);
  }
};
