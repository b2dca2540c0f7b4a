// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "memstrata/core/bytes.hpp"

namespace memstrata::tool {

/// `bytes` for people, three to four digits with a binary unit: "6.00 GiB", "512 B".
[[nodiscard]] std::string format_bytes(Bytes bytes);

/// `count` with a comma between thousands: "134,936,133,120".
[[nodiscard]] std::string format_count(std::uint64_t count);

[[nodiscard]] inline double in_seconds(std::chrono::nanoseconds duration) noexcept {
  return std::chrono::duration<double>(duration).count();
}

/// A duration in seconds for people, with a fitting unit: "4.2 us", "18 ms", "266 s".
[[nodiscard]] std::string format_seconds(double seconds);

/// A duration in nanoseconds for people.
[[nodiscard]] std::string format_nanoseconds(double nanoseconds);

/// A share for people: 0.3664 is "36.6 %".
[[nodiscard]] std::string format_share(double share);

}  // namespace memstrata::tool
