// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"

namespace memstrata::test {

/// A pointer to host memory at an address.
[[nodiscard]] inline std::uint8_t* touch(DeviceAddress address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): host memory
  return reinterpret_cast<std::uint8_t*>(address.value());
}

inline void fill(DeviceAddress address, Bytes size, std::uint8_t value) {
  std::memset(touch(address), value, size.value);
}

/// Whether every byte of the range has this value.
[[nodiscard]] inline bool holds_only(DeviceAddress address, Bytes size, std::uint8_t value) {
  const std::uint8_t* const begin = touch(address);
  return std::all_of(
      begin, begin + size.value, [value](std::uint8_t byte) { return byte == value; });
}

}  // namespace memstrata::test
