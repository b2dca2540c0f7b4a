// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>

#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata {

/// Writes a trace in our own format: what it accepts, `TraceReader` reads back unchanged.
/// Arrivals count from the first record, which is written as 0. Single-threaded.
class TraceWriter {
 public:
  /// Writes to `stream`, which must outlive the writer; `name` is what errors show. Nothing is written yet.
  TraceWriter(std::ostream& stream, std::string name, TraceHeader header = {});
  TraceWriter(TraceWriter&& other) noexcept;
  TraceWriter& operator=(TraceWriter&& other) noexcept;
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;
  ~TraceWriter();

  /// Good records written so far.
  [[nodiscard]] std::uint64_t records() const noexcept;

  /// Writes one line (and the header before the first). A record without blocks is written without ids.
  /// On BadTraceRecord nothing was written and the writer goes on; on another error the text may be cut.
  /// Errors: BadTraceRecord for a record that a reader would refuse, or whose arrival is no whole number of the
  ///         header's unit; TraceTooLarge; TraceNotWritten.
  [[nodiscard]] Result<void, TraceError> write(const TraceRecord& record);

  /// Flushes the stream. Errors: EmptyTrace if no record was written; TraceNotWritten.
  [[nodiscard]] Result<void, TraceError> finish();

 private:
  class State;

  std::unique_ptr<State> state_;
};

}  // namespace memstrata
