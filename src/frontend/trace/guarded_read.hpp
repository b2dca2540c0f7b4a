// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_source.hpp"

namespace memstrata::detail {

/// `source.read(buffer)`, where the source may be foreign code: what it throws becomes TraceUnavailable. Only
/// std::bad_alloc goes on; it is caught where the place in the trace is known.
[[nodiscard]] Result<std::size_t, TraceError> guarded_read(TraceSource& source,
                                                           std::span<char> buffer);

}  // namespace memstrata::detail
