// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"

namespace memstrata::host {

/// What the kernel holds for one backing. Resident set size would count a shared page once per mapping and an
/// idle prefix not at all; this counts each physical byte once.
struct KernelFigure {
  Bytes anonymous;     ///< `Anonymous:` of the mappings of our reservations.
  Bytes prefix_files;  ///< Blocks of our prefix files.

  [[nodiscard]] Bytes total() const noexcept { return saturating_add(anonymous, prefix_files); }
};

/// Asks the kernel. Slow (it reads every mapping of the process) and never exact while other threads commit.
/// Thread-safe. `smaps` is the file to read, for tests.
/// Errors: Os with the call (`open`, `read`, `fstat`); a line that cannot be read is an Os error as well.
[[nodiscard]] Result<KernelFigure, VirtualMemoryError> kernel_figure(
    const PageBacking& backing,
    const std::string& smaps = "/proc/self/smaps");

}  // namespace memstrata::host
