// SPDX-License-Identifier: Apache-2.0
#include "frontend/trace/guarded_read.hpp"

#include <cstddef>
#include <exception>
#include <new>
#include <span>
#include <utility>

#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_source.hpp"

namespace memstrata::detail {
namespace {

TraceError thrown(const TraceSource& source, ErrorText reason) {
  return TraceUnavailable{.source = ErrorText::copy(source.name()),
                          .call = "TraceSource::read",
                          .code = 0,
                          .reason = std::move(reason)};
}

}  // namespace

Result<std::size_t, TraceError> guarded_read(TraceSource& source, std::span<char> buffer) {
  try {
    return source.read(buffer);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& foreign) {
    return fail(thrown(source, ErrorText::copy(foreign.what())));
  } catch (...) {
    return fail(thrown(source, "it threw something that is no std::exception"));
  }
}

}  // namespace memstrata::detail
