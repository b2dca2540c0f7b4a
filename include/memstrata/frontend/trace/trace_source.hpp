// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// Where the bytes of a trace come from. Single-threaded.
class TraceSource {
 public:
  TraceSource() = default;
  TraceSource(const TraceSource&) = delete;
  TraceSource& operator=(const TraceSource&) = delete;
  TraceSource(TraceSource&&) = delete;
  TraceSource& operator=(TraceSource&&) = delete;
  virtual ~TraceSource() = default;

  /// Fills the beginning of `buffer` (never empty) and says how much; 0 is the end, and stays so.
  /// Errors: TraceUnavailable, BrokenTraceArchive.
  [[nodiscard]] virtual Result<std::size_t, TraceError> read(std::span<char> buffer) = 0;
  /// The name that errors show.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
};

/// The file `path`, or standard input for `-`. A `.gz` or `.zst` archive is recognised by its first bytes, not by
/// its name, and comes out as text; several archives one after the other are one text.
/// Errors: TraceUnavailable with call and errno; BrokenTraceArchive.
[[nodiscard]] Result<std::unique_ptr<TraceSource>, TraceError> open_trace_source(
    std::string_view path);

/// The bytes of `stream`, which must outlive the source; archives are recognised likewise.
/// Errors: TraceUnavailable; BrokenTraceArchive.
[[nodiscard]] Result<std::unique_ptr<TraceSource>, TraceError> make_trace_source(
    std::istream& stream,
    std::string name);

/// `inner` as it is, or what is in it if it is an archive. Cost: one window of memory for an archive, at most
/// 128 MiB.
[[nodiscard]] Result<std::unique_ptr<TraceSource>, TraceError> decompress(
    std::unique_ptr<TraceSource> inner);

}  // namespace memstrata
