// SPDX-License-Identifier: Apache-2.0
#include "frontend/trace/line_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "frontend/trace/guarded_read.hpp"
#include "frontend/trace/line_defect.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_source.hpp"

namespace memstrata::detail {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{64} * 1024;
constexpr std::size_t idle_line_bytes = std::size_t{1024} * 1024;
constexpr std::size_t shown_of_long_line = 256;
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

std::optional<LineDefect> line_defect(const Line& line, Bytes longest) {
  switch (line.state) {
    case Line::State::whole:
    case Line::State::end:
      return std::nullopt;
    case Line::State::unterminated:
      return LineDefect{.defect = TraceDefect::unterminated_line,
                        .field = {},
                        .expected = "a line end behind the last line",
                        .found = ErrorText::copy(
                            fmt::format("the end of the text behind {}", printable(line.text)))};
    case Line::State::too_long:
      return LineDefect{
          .defect = TraceDefect::line_too_long,
          .field = {},
          .expected = ErrorText::copy(fmt::format("at most {} bytes in a line", longest.value)),
          .found = ErrorText::copy(fmt::format("more, beginning with {}", printable(line.text)))};
  }
  std::unreachable();
}

LineReader::LineReader(std::unique_ptr<TraceSource> source, Bytes longest)
    : source_(std::move(source)), longest_(longest.value), buffer_(buffer_bytes) {}

TracePlace LineReader::place() const {
  return {.source = ErrorText::copy(source_->name()),
          .line = std::max<std::uint64_t>(lines_, 1),
          .offset = line_offset_};
}

Result<Line, TraceError> LineReader::next() {
  while (true) {
    MEMSTRATA_TRY(Line line, any_line());
    if (line.number == 1 && line.text.starts_with(byte_order_mark)) {
      line.text.remove_prefix(byte_order_mark.size());
    }
    if (line.state == Line::State::whole && line.text.ends_with('\r')) {
      line.text.remove_suffix(1);
    }
    const bool can_be_passed_over =
        line.state == Line::State::whole || line.state == Line::State::unterminated;
    if (!can_be_passed_over || !is_blank(line.text)) {
      return line;
    }
  }
}

Result<Line, TraceError> LineReader::any_line() {
  if (kept_.capacity() > idle_line_bytes) {
    kept_ = std::string();
  }
  kept_.clear();
  line_offset_ = consumed_;
  Line line{.state = Line::State::whole, .text = {}, .number = lines_ + 1, .offset = line_offset_};
  bool is_first_piece = true;
  while (true) {
    if (begin_ == end_) {
      MEMSTRATA_TRY(const std::size_t count, fill());
      if (count == 0) {
        if (is_first_piece) {
          line.state = Line::State::end;
          return line;
        }
        line.state = line.state == Line::State::too_long ? line.state : Line::State::unterminated;
        break;
      }
    }
    const std::string_view rest(buffer_.data() + begin_, end_ - begin_);
    const std::size_t length = std::min(rest.find('\n'), rest.size());
    const bool is_last_piece = length < rest.size();
    const std::string_view piece = rest.substr(0, length);
    begin_ += length + (is_last_piece ? 1 : 0);
    consumed_ += Bytes{length + (is_last_piece ? 1U : 0U)};
    if (is_first_piece && is_last_piece && length <= longest_) {
      ++lines_;
      line.text = piece;
      return line;
    }
    is_first_piece = false;
    keep(piece, line);
    if (is_last_piece) {
      break;
    }
  }
  ++lines_;
  line.text = kept_;
  return line;
}

void LineReader::keep(std::string_view piece, Line& line) {
  if (line.state == Line::State::too_long) {
    return;
  }
  if (kept_.size() + piece.size() <= longest_) {
    kept_ += piece;
    return;
  }
  line.state = Line::State::too_long;
  kept_ += piece.substr(0, shown_of_long_line);
  kept_.resize(std::min(kept_.size(), shown_of_long_line));
}

Result<std::size_t, TraceError> LineReader::fill() {
  begin_ = 0;
  end_ = 0;
  MEMSTRATA_TRY(end_, guarded_read(*source_, buffer_));
  return end_;
}

}  // namespace memstrata::detail
