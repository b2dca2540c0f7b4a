// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>

#include "memstrata/frontend/trace/trace_format.hpp"
#include "memstrata/frontend/trace/trace_statistics.hpp"

namespace memstrata::tool {

/// What `memstrata trace info` knows about a trace.
struct TraceInfo {
  std::string path;
  TraceFormat format = TraceFormat::mooncake;
  TraceHeader header;
  std::uint64_t skipped = 0;
  TraceStatistics statistics;
};

/// The figures under the names of docs/json.md.
[[nodiscard]] nlohmann::ordered_json to_json(const TraceInfo& info);

/// The figures as tables.
void print_trace_info(const TraceInfo& info, std::ostream& out);

}  // namespace memstrata::tool
