// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/trace/trace_format.hpp"

#include <string_view>
#include <utility>

namespace memstrata {

std::string_view to_string(TraceFormat format) noexcept {
  switch (format) {
    case TraceFormat::mooncake:
      return "mooncake";
    case TraceFormat::azure:
      return "azure";
    case TraceFormat::memstrata:
      return "memstrata";
  }
  std::unreachable();
}

std::string_view to_string(TraceTimeUnit unit) noexcept {
  switch (unit) {
    case TraceTimeUnit::milliseconds:
      return "ms";
    case TraceTimeUnit::microseconds:
      return "us";
    case TraceTimeUnit::nanoseconds:
      return "ns";
  }
  std::unreachable();
}

}  // namespace memstrata
