// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/trace/line_defect.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_source.hpp"

namespace memstrata::detail {

/// One line of a text, without its line end (LF, or CR LF). `text` lives until the next line is read.
struct Line {
  enum class State : std::uint8_t {
    whole,
    unterminated,  ///< The last one, without a line end.
    too_long,      ///< `text` is only its beginning.
    end,           ///< There is no further line.
  };

  State state = State::end;
  std::string_view text;
  std::uint64_t number = 0;  ///< The first line is 1.
  Bytes offset;
};

/// What is wrong with a line that is cut or longer than `longest`; nothing if it is whole.
[[nodiscard]] std::optional<LineDefect> line_defect(const Line& line, Bytes longest);

/// Cuts the bytes of a source into lines. Holds one line of at most `longest` bytes and a buffer of 64 KiB.
/// Single-threaded.
class LineReader {
 public:
  LineReader(std::unique_ptr<TraceSource> source, Bytes longest);

  /// The next line. Lines that hold nothing but blanks are passed over, but counted. A byte order mark at the
  /// beginning of the text is passed over. Errors: those of the source; what it throws becomes TraceUnavailable.
  [[nodiscard]] Result<Line, TraceError> next();

  [[nodiscard]] const TraceSource& source() const noexcept { return *source_; }

  [[nodiscard]] Bytes consumed() const noexcept { return consumed_; }

  /// The line that was read last, or is being read.
  [[nodiscard]] TracePlace place() const;

 private:
  [[nodiscard]] Result<Line, TraceError> any_line();
  [[nodiscard]] Result<std::size_t, TraceError> fill();
  void keep(std::string_view piece, Line& line);

  std::unique_ptr<TraceSource> source_;
  std::uint64_t longest_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // Unread part of the buffer.
  std::size_t end_ = 0;
  std::string kept_;  // The beginning of a line that did not fit into the buffer.
  std::uint64_t lines_ = 0;
  Bytes consumed_;
  Bytes line_offset_;
};

}  // namespace memstrata::detail
