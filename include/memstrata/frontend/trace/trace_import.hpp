// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_source.hpp"

namespace memstrata {

/// How a log of a service becomes a trace.
struct TraceImportOptions {
  /// Count bad lines and go on, instead of stopping at the first.
  bool skip_bad = false;
  /// A longer line is bad.
  Bytes max_line = 64_MiB;
  /// What the first line of the trace says about its origin.
  std::string made_by = "memstrata trace import";
};

/// What an import did.
struct TraceImportSummary {
  std::uint64_t records = 0;
  std::uint64_t skipped = 0;
  std::uint64_t input_tokens = 0;
  std::uint64_t block_refs = 0;
  std::uint64_t unique_blocks = 0;
};

/// Reads one JSON object per line (`timestamp`, `output_length`, and either `token_ids` or `input_length` with
/// `block_hashes`; `tenant` and `session` if known; docs/trace-format.md) and writes our own format to `out`.
/// Ids are numbered in order of first appearance, so no content can be recovered from the result. Two blocks get
/// the same id if their content and everything before it agree: XXH3 with 128 bits over the parent and the block.
/// Time stamps are integer milliseconds from any origin; the first request becomes 0.
///
/// `source` is read as it is (see `open_trace_source`). On error `out` may hold a part of the trace.
/// Errors: those of `TraceReader::next` about the input and of `TraceWriter` about the output.
/// Cost: about 100 bytes of memory per different block.
[[nodiscard]] Result<TraceImportSummary, TraceError> import_trace(
    std::unique_ptr<TraceSource> source,
    std::ostream& out,
    std::string out_name,
    const TraceImportOptions& options = {});

}  // namespace memstrata
