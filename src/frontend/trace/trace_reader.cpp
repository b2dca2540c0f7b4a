// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/trace/trace_reader.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <istream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/trace/azure_row.hpp"
#include "frontend/trace/json_line.hpp"
#include "frontend/trace/line_defect.hpp"
#include "frontend/trace/line_reader.hpp"
#include "frontend/trace/record_rules.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"
#include "memstrata/frontend/trace/trace_source.hpp"

namespace memstrata {

using detail::JsonLine;
using detail::Line;
using detail::LineDefect;
using detail::LineKind;

class TraceReader::State {
 public:
  State(std::unique_ptr<TraceSource> source, const TraceReadOptions& options)
      : lines_(std::move(source), options.max_line), options_(options) {}

  [[nodiscard]] Result<void, TraceError> begin();
  [[nodiscard]] Result<std::optional<TraceRecord>, TraceError> next();

  [[nodiscard]] TraceError too_large() const;

  [[nodiscard]] TraceFormat format() const noexcept { return format_; }

  [[nodiscard]] const TraceHeader& header() const noexcept { return header_; }

  [[nodiscard]] const detail::LineReader& lines() const noexcept { return lines_; }

  [[nodiscard]] std::uint64_t records() const noexcept { return records_; }

  [[nodiscard]] std::uint64_t skipped() const noexcept { return skipped_; }

 private:
  /// A record whose time is not yet counted from the first.
  struct Arrived {
    std::int64_t time = 0;
    TraceRecord record;
  };

  [[nodiscard]] Result<void, TraceError> begin_json(const Line& line);
  [[nodiscard]] Result<std::optional<TraceRecord>, TraceError> read_next();
  [[nodiscard]] Result<TraceRecord, LineDefect> read_record(const Line& line);
  [[nodiscard]] Result<Arrived, LineDefect> parse(const Line& line) const;
  [[nodiscard]] Result<Arrived, LineDefect> parse_json(std::string_view text) const;
  [[nodiscard]] std::optional<LineDefect> take_header(const JsonLine& line);

  [[nodiscard]] ErrorText source_name() const { return ErrorText::copy(lines_.source().name()); }

  detail::LineReader lines_;
  TraceReadOptions options_;
  TraceFormat format_ = TraceFormat::mooncake;
  TraceHeader header_;
  std::optional<Line> pending_;  // The first line, if it is a record.
  detail::RecordRules rules_;
  std::uint64_t records_ = 0;
  std::uint64_t skipped_ = 0;
  std::optional<TraceError::Kind> failed_;  // The error that ended the reading.
};

namespace {

std::optional<TraceTimeUnit> unit_called(std::string_view name) {
  for (const TraceTimeUnit unit :
       {TraceTimeUnit::milliseconds, TraceTimeUnit::microseconds, TraceTimeUnit::nanoseconds}) {
    if (to_string(unit) == name) {
      return unit;
    }
  }
  return std::nullopt;
}

}  // namespace

Result<void, TraceError> TraceReader::State::begin() {
  MEMSTRATA_TRY(const Line line, lines_.next());
  if (line.state == Line::State::end) {
    return fail(TraceError(EmptyTrace{.source = source_name(), .skipped = 0}));
  }
  if (line.text.starts_with('{')) {
    return begin_json(line);
  }
  if (line.text == detail::azure_header && line.state != Line::State::too_long) {
    format_ = TraceFormat::azure;
    if (auto defect = detail::line_defect(line, options_.max_line)) {
      return fail(TraceError(detail::at_place(*std::move(defect), lines_.place())));
    }
    return {};
  }
  return fail(TraceError(UnknownTraceFormat{
      .source = source_name(), .found = ErrorText::copy(detail::printable(line.text))}));
}

Result<void, TraceError> TraceReader::State::begin_json(const Line& line) {
  pending_ = line;
  if (line.state != Line::State::whole) {
    return {};  // It is bad, whatever it holds.
  }
  const JsonLine first = detail::parse_json_line(line.text, LineKind::record, trace_largest_number);
  if (!first.is_header) {
    const bool has_our_fields = first.tenant.has_value() || first.session.has_value();
    format_ = has_our_fields ? TraceFormat::memstrata : TraceFormat::mooncake;
    return {};
  }
  format_ = TraceFormat::memstrata;
  if (auto defect = take_header(first)) {
    return fail(TraceError(detail::at_place(*std::move(defect), lines_.place())));
  }
  pending_.reset();
  return {};
}

std::optional<LineDefect> TraceReader::State::take_header(const JsonLine& line) {
  if (line.defect) {
    return line.defect;
  }
  if (line.version != trace_version) {
    return LineDefect{
        .defect = TraceDefect::wrong_version,
        .field = "memstrata_trace",
        .expected = ErrorText::copy(fmt::format("version {}", trace_version)),
        .found = ErrorText::copy(line.version ? fmt::format("version {}", *line.version) : "none")};
  }
  if (line.block_tokens && *line.block_tokens != trace_block_tokens) {
    return LineDefect{.defect = TraceDefect::wrong_version,
                      .field = "block_tokens",
                      .expected = ErrorText::copy(std::to_string(trace_block_tokens)),
                      .found = ErrorText::copy(std::to_string(*line.block_tokens))};
  }
  const auto unit = unit_called(line.time_unit.value_or("ms"));
  if (!unit) {
    return LineDefect{.defect = TraceDefect::wrong_version,
                      .field = "time_unit",
                      .expected = "ms, us or ns",
                      .found = ErrorText::copy(detail::printable(line.time_unit.value_or("")))};
  }
  header_ = {.unit = *unit,
             .synthetic = line.synthetic.value_or(false),
             .made_by = line.made_by.value_or("")};
  return std::nullopt;
}

Result<std::optional<TraceRecord>, TraceError> TraceReader::State::next() {
  if (failed_) {
    return fail(TraceError(TraceError::Kind(*failed_)));
  }
  if (options_.max_records && records_ >= *options_.max_records) {
    return std::optional<TraceRecord>();
  }
  auto result = read_next();
  if (!result && !std::holds_alternative<BadTraceRecord>(result.error().kind)) {
    failed_ = result.error().kind;
  }
  return result;
}

Result<std::optional<TraceRecord>, TraceError> TraceReader::State::read_next() {
  while (true) {
    Line line;
    if (pending_) {
      line = *std::exchange(pending_, std::nullopt);
    } else {
      MEMSTRATA_TRY(line, lines_.next());
    }
    if (line.state == Line::State::end) {
      if (records_ == 0) {
        return fail(TraceError(EmptyTrace{.source = source_name(), .skipped = skipped_}));
      }
      return std::optional<TraceRecord>();
    }
    auto record = read_record(line);
    if (record) {
      ++records_;
      return std::optional(*std::move(record));
    }
    if (!options_.skip_bad) {
      return fail(TraceError(detail::at_place(std::move(record).error(), lines_.place())));
    }
    ++skipped_;
  }
}

Result<TraceRecord, LineDefect> TraceReader::State::read_record(const Line& line) {
  if (auto defect = detail::line_defect(line, options_.max_line)) {
    return fail(*std::move(defect));
  }
  MEMSTRATA_TRY(Arrived arrived, parse(line));
  MEMSTRATA_TRY_VOID(rules_.accept(arrived.time, arrived.record));
  return std::move(arrived.record);
}

Result<TraceReader::State::Arrived, LineDefect> TraceReader::State::parse(const Line& line) const {
  if (format_ != TraceFormat::azure) {
    return parse_json(line.text);
  }
  MEMSTRATA_TRY(const detail::AzureRow row, detail::parse_azure_row(line.text));
  Arrived arrived{.time = row.time_ns, .record = {}};
  arrived.record.input_tokens = row.context_tokens;
  arrived.record.output_tokens = row.generated_tokens;
  return arrived;
}

Result<TraceReader::State::Arrived, LineDefect> TraceReader::State::parse_json(
    std::string_view text) const {
  const std::uint64_t largest_time = detail::largest_ticks(header_.unit);
  JsonLine line = detail::parse_json_line(text, LineKind::record, largest_time);
  if (line.defect) {
    return fail(*std::move(line.defect));
  }
  if (!line.timestamp) {
    return fail(detail::missing_field("timestamp", detail::integer_between(0, largest_time)));
  }
  if (!line.input_length) {
    return fail(
        detail::missing_field("input_length", detail::integer_between(1, trace_largest_number)));
  }
  if (!line.output_length) {
    return fail(
        detail::missing_field("output_length", detail::integer_between(0, trace_largest_number)));
  }
  if (!line.hash_ids && format_ == TraceFormat::mooncake) {
    return fail(detail::missing_field("hash_ids", "one id per block of the prompt"));
  }
  // No ids at all mean that nothing is known; an empty list says that there are none, which cannot be.
  if (line.hash_ids && line.hash_ids->empty() && *line.input_length > 0) {
    return fail(
        LineDefect{.defect = TraceDefect::wrong_block_count,
                   .field = "hash_ids",
                   .expected = ErrorText::copy(fmt::format("{} ids, one per {} of {} tokens",
                                                           detail::blocks_of(*line.input_length),
                                                           trace_block_tokens,
                                                           *line.input_length)),
                   .found = "0 ids"});
  }
  Arrived arrived{.time = detail::nanoseconds_of(*line.timestamp, header_.unit), .record = {}};
  arrived.record = {.arrival = {},
                    .input_tokens = *line.input_length,
                    .output_tokens = *line.output_length,
                    .blocks = std::move(line.hash_ids).value_or(std::vector<std::uint64_t>()),
                    .tenant = std::move(line.tenant).value_or(""),
                    .session = std::move(line.session).value_or("")};
  return arrived;
}

TraceError TraceReader::State::too_large() const {
  return TraceTooLarge{.at = lines_.place(),
                       .distinct_blocks = rules_.distinct_blocks(),
                       .reason = "there is no memory left"};
}

TraceReader::TraceReader(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}

TraceReader::TraceReader(TraceReader&& other) noexcept = default;
TraceReader& TraceReader::operator=(TraceReader&& other) noexcept = default;
TraceReader::~TraceReader() = default;

Result<TraceReader, TraceError> TraceReader::open(std::string_view path,
                                                  const TraceReadOptions& options) {
  MEMSTRATA_TRY(auto source, open_trace_source(path));
  return from(std::move(source), options);
}

Result<TraceReader, TraceError> TraceReader::from(std::istream& stream,
                                                  std::string name,
                                                  const TraceReadOptions& options) {
  MEMSTRATA_TRY(auto source, make_trace_source(stream, std::move(name)));
  return from(std::move(source), options);
}

Result<TraceReader, TraceError> TraceReader::from(std::unique_ptr<TraceSource> source,
                                                  const TraceReadOptions& options) {
  auto state = std::make_unique<State>(std::move(source), options);
  try {
    MEMSTRATA_TRY_VOID(state->begin());
  } catch (const std::exception&) {
    return fail(state->too_large());
  }
  return TraceReader(std::move(state));
}

TraceFormat TraceReader::format() const noexcept {
  return state_->format();
}

std::string_view TraceReader::name() const noexcept {
  return state_->lines().source().name();
}

const TraceHeader& TraceReader::header() const noexcept {
  return state_->header();
}

std::uint64_t TraceReader::records() const noexcept {
  return state_->records();
}

std::uint64_t TraceReader::skipped() const noexcept {
  return state_->skipped();
}

Bytes TraceReader::consumed() const noexcept {
  return state_->lines().consumed();
}

Result<std::optional<TraceRecord>, TraceError> TraceReader::next() {
  try {
    return state_->next();
  } catch (const std::exception&) {
    return fail(state_->too_large());
  }
}

Result<std::vector<TraceRecord>, TraceError> read_all(TraceReader& reader) {
  std::vector<TraceRecord> records;
  while (true) {
    MEMSTRATA_TRY(auto record, reader.next());
    if (!record) {
      return records;
    }
    try {
      records.push_back(*std::move(record));
    } catch (const std::exception&) {
      return fail(TraceError(TraceTooLarge{
          .at = {.source = ErrorText::copy(reader.name()), .line = reader.records(), .offset = {}},
          .distinct_blocks = 0,
          .reason = "there is no memory left for the records"}));
    }
  }
}

}  // namespace memstrata
