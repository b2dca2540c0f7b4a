// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>

#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_source.hpp"

namespace memstrata::detail {

/// The text in a gzip archive, or in several one after the other, through zlib. `begin` was read from `inner`
/// already.
[[nodiscard]] Result<std::unique_ptr<TraceSource>, TraceError> make_gzip_source(
    std::unique_ptr<TraceSource> inner,
    std::string begin);

/// The text in a zstd archive, or in several one after the other, through libzstd. `begin` was read from `inner`
/// already. Windows above 128 MiB are refused.
[[nodiscard]] Result<std::unique_ptr<TraceSource>, TraceError> make_zstd_source(
    std::unique_ptr<TraceSource> inner,
    std::string begin);

}  // namespace memstrata::detail
