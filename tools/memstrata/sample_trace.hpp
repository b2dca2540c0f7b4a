// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace memstrata::tool {

/// Where the sample trace that comes with the tool lies: beside the executable in the build tree, in the data
/// directory of the installation. The file may be missing; then the reader says so.
[[nodiscard]] std::string sample_trace_path();

}  // namespace memstrata::tool
