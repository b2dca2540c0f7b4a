// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"

namespace memstrata {

/// A line of a trace. Offsets count bytes of the text, after decompression.
struct TracePlace {
  ErrorText source;        ///< The file as it was named, or `<stdin>`.
  std::uint64_t line = 0;  ///< The first line is 1.
  Bytes offset;            ///< Of the first byte of the line.
};

/// What is wrong with one record of a trace.
enum class TraceDefect : std::uint8_t {
  malformed,          ///< Not an object of JSON, or not a row of three columns.
  missing_field,      ///< A field that every record must have is not there.
  repeated_field,     ///< A field is there twice.
  wrong_type,         ///< Not a list, not a text, not a time stamp.
  not_an_integer,     ///< A number with a fraction or exponent, or no number.
  negative,           ///< Below zero.
  too_large,          ///< Above what the field may hold.
  time_went_back,     ///< Earlier than the record before.
  empty_prompt,       ///< An input length of zero.
  wrong_block_count,  ///< Not one id per block of the prompt.
  parent_changed,  ///< An id follows another id than before, so that it does not stand for one prefix.
  fill_changed,       ///< An id covers another number of tokens than before.
  unterminated_line,  ///< The last line has no line end: it may be cut.
  line_too_long,      ///< Longer than the reader accepts.
  nested_too_deep,    ///< More nested lists and objects than the reader accepts.
  wrong_version,      ///< The first line announces a format or a version that is not known.
};

/// The name of the enumerator, for reports and tests.
[[nodiscard]] std::string_view to_string(TraceDefect defect) noexcept;

/// One record is bad. The only alternative that a reader can skip.
struct BadTraceRecord {
  TracePlace at;
  TraceDefect defect = TraceDefect::malformed;
  ErrorText field;     ///< Name of the field, or empty if it is the whole line.
  ErrorText expected;  ///< What would be right, with numbers.
  ErrorText found;     ///< What is there, shortened and printable.
};

/// The trace cannot be opened or read.
struct TraceUnavailable {
  ErrorText source;
  const char* call = "";  ///< The function that failed.
  int code = 0;           ///< Its `errno`, or 0.
  ErrorText reason;
};

/// The content is in none of the formats that the reader knows.
struct UnknownTraceFormat {
  ErrorText source;
  ErrorText found;  ///< The first bytes, shortened and printable.
};

/// A compressed trace is cut or damaged.
struct BrokenTraceArchive {
  ErrorText source;
  const char* codec = "";  ///< `gzip` or `zstd`.
  Bytes offset;            ///< Bytes of text that came out before the damage.
  ErrorText reason;
};

/// There is no record in the trace, or none that is good.
struct EmptyTrace {
  ErrorText source;
  std::uint64_t skipped = 0;  ///< Bad records that were skipped.
};

/// What must be remembered about the trace is more than fits: too many different ids, or no memory for them.
struct TraceTooLarge {
  TracePlace at;
  std::uint64_t distinct_blocks = 0;  ///< Ids known so far.
  ErrorText reason;
};

/// A trace could not be written.
struct TraceNotWritten {
  ErrorText target;
  std::uint64_t records = 0;  ///< Records that were handed over before.
  ErrorText reason;
};

/// Why a trace was not read, imported or written. Closed: callers match on `kind`, never on text. Movable, not
/// copyable; the alternatives can be copied.
class TraceError {
 public:
  using Kind = std::variant<BadTraceRecord,
                            TraceUnavailable,
                            UnknownTraceFormat,
                            BrokenTraceArchive,
                            EmptyTrace,
                            TraceTooLarge,
                            TraceNotWritten>;

  template <class Alternative>
    requires std::constructible_from<Kind, Alternative&&>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload): an alternative is an error
  TraceError(Alternative&& alternative) noexcept : kind(std::forward<Alternative>(alternative)) {}

  TraceError(TraceError&&) noexcept = default;
  TraceError& operator=(TraceError&&) noexcept = default;
  TraceError(const TraceError&) = delete;
  TraceError& operator=(const TraceError&) = delete;
  ~TraceError() = default;

  /// One sentence: where, which field, what was expected and found, what to do.
  [[nodiscard]] std::string message() const;

  Kind kind;
};

}  // namespace memstrata
