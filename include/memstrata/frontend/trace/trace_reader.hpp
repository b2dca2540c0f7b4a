// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"
#include "memstrata/frontend/trace/trace_source.hpp"

namespace memstrata {

/// How a trace is read.
struct TraceReadOptions {
  /// Count bad records and go on, instead of stopping at the first.
  bool skip_bad = false;
  /// Read this many good records and then report the end; nothing behind them is looked at.
  std::optional<std::uint64_t> max_records = std::nullopt;
  /// A longer line is a bad record; its rest is passed over without being kept.
  Bytes max_line = 64_MiB;
};

/// Reads a trace record by record: Mooncake JSONL, Azure LLM CSV or our own JSONL, plain or compressed, told apart
/// by content. A record is returned only if it is good: in order of arrival, numbers in range, one id per block,
/// and every id with the parent and the fill that it had before.
///
/// Memory: one line, one archive window and about 24 bytes per different id. Single-threaded.
class TraceReader {
 public:
  /// Opens `path`, or standard input for `-`, and finds out the format.
  /// Errors: TraceUnavailable, UnknownTraceFormat, BrokenTraceArchive, EmptyTrace; BadTraceRecord if the first
  /// line announces a version that is not known.
  [[nodiscard]] static Result<TraceReader, TraceError> open(std::string_view path,
                                                            const TraceReadOptions& options = {});

  /// Reads from `stream`, which must outlive the reader; `name` is what errors show. Errors as for `open`.
  [[nodiscard]] static Result<TraceReader, TraceError> from(std::istream& stream,
                                                            std::string name,
                                                            const TraceReadOptions& options = {});

  /// Reads the text of `source`; archives are not looked for (see `decompress`). Errors as for `open`.
  [[nodiscard]] static Result<TraceReader, TraceError> from(std::unique_ptr<TraceSource> source,
                                                            const TraceReadOptions& options = {});

  TraceReader(TraceReader&& other) noexcept;
  TraceReader& operator=(TraceReader&& other) noexcept;
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;
  ~TraceReader();

  [[nodiscard]] TraceFormat format() const noexcept;
  /// The name that errors show: the path, or `<stdin>`.
  [[nodiscard]] std::string_view name() const noexcept;
  /// What the first line of our own format says; all empty for other formats.
  [[nodiscard]] const TraceHeader& header() const noexcept;
  /// Good records returned so far.
  [[nodiscard]] std::uint64_t records() const noexcept;
  /// Bad records skipped so far.
  [[nodiscard]] std::uint64_t skipped() const noexcept;
  /// Text consumed so far, after decompression; for a progress display.
  [[nodiscard]] Bytes consumed() const noexcept;

  /// The next record, or nothing at the end.
  /// On BadTraceRecord (never with `skip_bad`) the reader stands behind that line and another call goes on there;
  /// the bad record has left no mark. Every other error is final: the next call reports it again.
  /// Errors: BadTraceRecord; EmptyTrace at the end if no record was good; BrokenTraceArchive; TraceUnavailable;
  ///         TraceTooLarge.
  [[nodiscard]] Result<std::optional<TraceRecord>, TraceError> next();

 private:
  class State;
  explicit TraceReader(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
};

/// Everything that `reader` still has, for those who need the whole trace at once. Stops at the first error.
[[nodiscard]] Result<std::vector<TraceRecord>, TraceError> read_all(TraceReader& reader);

}  // namespace memstrata
