// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <string_view>

#include "memstrata/core/error/trace_error.hpp"

namespace memstrata::tool {

/// Writes the error and returns its exit code: 3 if the output could not be written, else 2, because the trace
/// that was named cannot be used.
int report_trace_failure(std::ostream& err, std::string_view command, const TraceError& error);

}  // namespace memstrata::tool
