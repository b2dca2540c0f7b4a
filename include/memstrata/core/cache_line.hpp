// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace memstrata {

/// Alignment that keeps what different threads write apart: two cache lines, because processors fetch them in pairs.
/// *Source:* Intel 64 and IA-32 Architectures Optimization Reference Manual, spatial prefetcher.
inline constexpr std::size_t line_pair = 128;

}  // namespace memstrata
