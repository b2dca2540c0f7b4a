// SPDX-License-Identifier: Apache-2.0
#include "memstrata/contract/release.hpp"

#include <variant>

#include "memstrata/core/bytes.hpp"

namespace memstrata {

Bytes MechanismRelease::unmapped_bytes() const noexcept {
  if (const auto* complete = std::get_if<Complete>(&kind_)) {
    return complete->unmapped;
  }
  if (const auto* partial = std::get_if<Partial>(&kind_)) {
    return partial->unmapped;
  }
  return Bytes{};
}

}  // namespace memstrata
