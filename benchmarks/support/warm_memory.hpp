// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "memstrata/core/bytes.hpp"

namespace memstrata::bench {

enum class PageKind : std::uint8_t { ordinary, huge };

/// Populates and unmaps `size` bytes, so that the kernel owns that many backed free pages right now. A guest gives
/// freed pages back to its hypervisor within seconds, and fresh ones cost up to twenty times as much; a case that
/// measures memory therefore runs this before each side. Stops the program if the memory is not there.
void warm_memory(Bytes size, PageKind kind);

}  // namespace memstrata::bench
