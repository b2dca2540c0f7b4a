// SPDX-License-Identifier: Apache-2.0
#include "trace_error_exit.hpp"

#include <ostream>
#include <string_view>
#include <variant>

#include "command_line.hpp"
#include "exit_code.hpp"
#include "memstrata/core/error/trace_error.hpp"

namespace memstrata::tool {

int report_trace_failure(std::ostream& err, std::string_view command, const TraceError& error) {
  const bool is_output = std::holds_alternative<TraceNotWritten>(error.kind);
  return report_failure(err, command, error.message(), is_output ? exit_could_not_run : exit_usage);
}

}  // namespace memstrata::tool
