// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/trace/trace_writer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <ios>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "frontend/trace/line_defect.hpp"
#include "frontend/trace/record_rules.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata {

using detail::LineDefect;

namespace {

// `text` in quotes with everything escaped that must be; nothing if it is no UTF-8.
std::optional<std::string> quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

LineDefect not_utf8(ErrorText field, std::string_view text) {
  return {.defect = TraceDefect::wrong_type,
          .field = std::move(field),
          .expected = "text in UTF-8",
          .found = ErrorText::copy(detail::printable(text))};
}

}  // namespace

class TraceWriter::State {
 public:
  State(std::ostream& stream, std::string name, TraceHeader header)
      : stream_(stream), name_(std::move(name)), header_(std::move(header)) {}

  [[nodiscard]] Result<void, TraceError> write(const TraceRecord& record);
  [[nodiscard]] Result<void, TraceError> finish();

  [[nodiscard]] std::uint64_t records() const noexcept { return records_; }

 private:
  [[nodiscard]] Result<std::string, LineDefect> line_of(const TraceRecord& record);
  [[nodiscard]] Result<std::string, LineDefect> header_line() const;
  [[nodiscard]] Result<void, TraceError> put(std::string_view text);
  [[nodiscard]] TraceError not_written(ErrorText reason) const;

  [[nodiscard]] TracePlace place() const {
    return {.source = ErrorText::copy(name_), .line = records_ + 2, .offset = offset_};
  }

  std::ostream& stream_;
  std::string name_;
  TraceHeader header_;
  detail::RecordRules rules_;
  std::uint64_t records_ = 0;
  Bytes offset_;
};

Result<std::string, LineDefect> TraceWriter::State::header_line() const {
  const auto made_by = quoted(header_.made_by);
  if (!made_by) {
    return fail(not_utf8("made_by", header_.made_by));
  }
  if (header_.made_by.size() > detail::longest_text) {
    return fail(LineDefect{
        .defect = TraceDefect::too_large,
        .field = "made_by",
        .expected = ErrorText::copy(fmt::format("at most {} bytes", detail::longest_text)),
        .found = ErrorText::copy(fmt::format("{} bytes", header_.made_by.size()))});
  }
  return fmt::format(R"({{"memstrata_trace":{},"time_unit":"{}","block_tokens":{},"synthetic":{},)"
                     R"("made_by":{}}})"
                     "\n",
                     trace_version,
                     to_string(header_.unit),
                     trace_block_tokens,
                     header_.synthetic,
                     *made_by);
}

Result<std::string, LineDefect> TraceWriter::State::line_of(const TraceRecord& record) {
  if (record.arrival < std::chrono::nanoseconds(0)) {
    return fail(LineDefect{.defect = TraceDefect::negative,
                           .field = "timestamp",
                           .expected = "an arrival from 0",
                           .found = ErrorText::copy(fmt::format("{} ns", record.arrival.count()))});
  }
  const auto tenant = quoted(record.tenant);
  if (!tenant) {
    return fail(not_utf8("tenant", record.tenant));
  }
  const auto session = quoted(record.session);
  if (!session) {
    return fail(not_utf8("session", record.session));
  }
  const std::int64_t unit = detail::nanoseconds_per(header_.unit);
  if (record.arrival.count() % unit != 0) {
    return fail(
        LineDefect{.defect = TraceDefect::not_an_integer,
                   .field = "timestamp",
                   .expected = ErrorText::copy(fmt::format("whole {}", to_string(header_.unit))),
                   .found = ErrorText::copy(fmt::format("{} ns", record.arrival.count()))});
  }
  TraceRecord counted = record;
  MEMSTRATA_TRY_VOID(rules_.accept(record.arrival.count(), counted));
  std::string line = fmt::format(R"({{"timestamp":{},"input_length":{},"output_length":{})",
                                 counted.arrival.count() / unit,
                                 record.input_tokens,
                                 record.output_tokens);
  if (!record.blocks.empty()) {
    fmt::format_to(std::back_inserter(line), R"(,"hash_ids":[{}])", fmt::join(record.blocks, ","));
  }
  if (!record.tenant.empty()) {
    fmt::format_to(std::back_inserter(line), R"(,"tenant":{})", *tenant);
  }
  if (!record.session.empty()) {
    fmt::format_to(std::back_inserter(line), R"(,"session":{})", *session);
  }
  line += "}\n";
  return line;
}

Result<void, TraceError> TraceWriter::State::write(const TraceRecord& record) {
  std::string text;
  if (records_ == 0) {
    auto header = header_line();
    if (!header) {
      return fail(TraceError(detail::at_place(std::move(header).error(), place())));
    }
    text = *std::move(header);
  }
  auto line = line_of(record);
  if (!line) {
    return fail(TraceError(detail::at_place(std::move(line).error(), place())));
  }
  text += *line;
  MEMSTRATA_TRY_VOID(put(text));
  ++records_;
  return {};
}

Result<void, TraceError> TraceWriter::State::put(std::string_view text) {
  try {
    stream_.write(text.data(), static_cast<std::streamsize>(text.size()));
  } catch (const std::exception& foreign) {
    return fail(not_written(ErrorText::copy(foreign.what())));
  }
  if (!stream_) {
    return fail(not_written("the stream refused the text (is the disk full?)"));
  }
  offset_ += Bytes{text.size()};
  return {};
}

Result<void, TraceError> TraceWriter::State::finish() {
  if (records_ == 0) {
    return fail(TraceError(EmptyTrace{.source = ErrorText::copy(name_), .skipped = 0}));
  }
  try {
    stream_.flush();
  } catch (const std::exception& foreign) {
    return fail(not_written(ErrorText::copy(foreign.what())));
  }
  if (!stream_) {
    return fail(not_written("the stream could not be flushed (is the disk full?)"));
  }
  return {};
}

TraceError TraceWriter::State::not_written(ErrorText reason) const {
  return TraceNotWritten{
      .target = ErrorText::copy(name_), .records = records_, .reason = std::move(reason)};
}

TraceWriter::TraceWriter(std::ostream& stream, std::string name, TraceHeader header)
    : state_(std::make_unique<State>(stream, std::move(name), std::move(header))) {}

TraceWriter::TraceWriter(TraceWriter&& other) noexcept = default;
TraceWriter& TraceWriter::operator=(TraceWriter&& other) noexcept = default;
TraceWriter::~TraceWriter() = default;

std::uint64_t TraceWriter::records() const noexcept {
  return state_->records();
}

Result<void, TraceError> TraceWriter::write(const TraceRecord& record) {
  try {
    return state_->write(record);
  } catch (const std::exception&) {
    return fail(TraceError(TraceTooLarge{
        .at = {.source = "the trace that is written", .line = state_->records() + 2, .offset = {}},
        .distinct_blocks = 0,
        .reason = "there is no memory left"}));
  }
}

Result<void, TraceError> TraceWriter::finish() {
  return state_->finish();
}

}  // namespace memstrata
