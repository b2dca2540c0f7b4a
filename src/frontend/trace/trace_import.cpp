// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/trace/trace_import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

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
#include "memstrata/frontend/trace/trace_writer.hpp"

namespace memstrata {
namespace {

using detail::ContentKey;
using detail::JsonLine;
using detail::Line;
using detail::LineDefect;

// Milliseconds since 1970 to the year 2200: clocks of services fit, and their nanoseconds fit into 63 bits.
constexpr std::uint64_t largest_log_time = 7'258'118'400'000;

struct HashKey {
  [[nodiscard]] std::size_t operator()(ContentKey key) const noexcept { return key.low; }
};

std::string_view bytes_of(const std::vector<std::uint64_t>& words) {
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(std::uint64_t)};
}

// Numbers the blocks of prompts: equal numbers for equal content behind equal content.
class BlockNumbers {
 public:
  // The keys of the blocks of one prompt, each with everything before it.
  [[nodiscard]] std::vector<ContentKey> keys_of(const JsonLine& line, std::uint64_t input_tokens) {
    std::vector<ContentKey> keys;
    ContentKey parent;
    for (std::uint64_t block = 0; block < detail::blocks_of(input_tokens); ++block) {
      const std::uint64_t first = block * trace_block_tokens;
      const std::uint64_t fill = std::min(trace_block_tokens, input_tokens - first);
      words_.assign({parent.high, parent.low, fill});
      if (line.token_ids) {
        const auto tokens = std::span(*line.token_ids).subspan(first, fill);
        words_.insert(words_.end(), tokens.begin(), tokens.end());
      } else {
        const ContentKey content = (*line.block_hashes)[block];
        words_.insert(words_.end(), {content.high, content.low});
      }
      parent = detail::content_key(bytes_of(words_));
      keys.push_back(parent);
    }
    return keys;
  }

  // The numbers of `keys`, in order of first appearance.
  [[nodiscard]] std::vector<std::uint64_t> number(const std::vector<ContentKey>& keys) {
    std::vector<std::uint64_t> ids;
    ids.reserve(keys.size());
    for (const ContentKey key : keys) {
      ids.push_back(numbers_.try_emplace(key, numbers_.size()).first->second);
    }
    return ids;
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return numbers_.size(); }

 private:
  std::unordered_map<ContentKey, std::uint64_t, HashKey> numbers_;
  std::vector<std::uint64_t> words_;
};

LineDefect wrong_count(ErrorText field, std::string_view expected, std::string_view found) {
  return {.defect = TraceDefect::wrong_block_count,
          .field = std::move(field),
          .expected = ErrorText::copy(expected),
          .found = ErrorText::copy(found)};
}

std::optional<LineDefect> check_fields(const JsonLine& line) {
  if (line.defect) {
    return line.defect;
  }
  if (!line.timestamp) {
    return detail::missing_field("timestamp", detail::integer_between(0, largest_log_time));
  }
  if (!line.output_length) {
    return detail::missing_field("output_length", detail::integer_between(0, trace_largest_number));
  }
  if (line.token_ids.has_value() == line.block_hashes.has_value()) {
    return line.token_ids
               ? LineDefect{.defect = TraceDefect::repeated_field,
                            .field = "token_ids",
                            .expected = "either token_ids or block_hashes",
                            .found = "both"}
               : detail::missing_field("token_ids", "token_ids, or input_length and block_hashes");
  }
  if (line.block_hashes && !line.input_length) {
    return detail::missing_field("input_length", detail::integer_between(1, trace_largest_number));
  }
  return std::nullopt;
}

// The tokens of the prompt, once the fields are known to be there.
Result<std::uint64_t, LineDefect> input_tokens_of(const JsonLine& line) {
  const std::uint64_t tokens =
      line.token_ids ? line.token_ids->size() : line.input_length.value_or(0);
  if (tokens == 0) {
    return fail(
        LineDefect{.defect = TraceDefect::empty_prompt,
                   .field = line.token_ids ? ErrorText("token_ids") : ErrorText("input_length"),
                   .expected = "a prompt of at least one token",
                   .found = "an empty one"});
  }
  if (line.input_length.value_or(tokens) != tokens) {
    return fail(wrong_count("token_ids",
                            fmt::format("{} tokens, as input_length says", *line.input_length),
                            fmt::format("{} tokens", tokens)));
  }
  if (line.block_hashes && line.block_hashes->size() != detail::blocks_of(tokens)) {
    return fail(wrong_count("block_hashes",
                            fmt::format("{} hashes, one per {} of {} tokens",
                                        detail::blocks_of(tokens),
                                        trace_block_tokens,
                                        tokens),
                            fmt::format("{} hashes", line.block_hashes->size())));
  }
  return tokens;
}

class Import {
 public:
  Import(std::unique_ptr<TraceSource> source,
         std::ostream& out,
         std::string out_name,
         const TraceImportOptions& options)
      : lines_(std::move(source), options.max_line),
        writer_(
            out,
            std::move(out_name),
            {.unit = TraceTimeUnit::milliseconds, .synthetic = false, .made_by = options.made_by}),
        options_(options) {}

  [[nodiscard]] Result<TraceImportSummary, TraceError> run();
  [[nodiscard]] TraceError too_large() const;

 private:
  [[nodiscard]] Result<TraceRecord, LineDefect> read(const Line& line);
  [[nodiscard]] std::optional<LineDefect> check_time(std::uint64_t time) const;

  detail::LineReader lines_;
  TraceWriter writer_;
  const TraceImportOptions& options_;
  BlockNumbers numbers_;
  std::optional<std::uint64_t> origin_ms_;
  std::uint64_t last_ms_ = 0;
  TraceImportSummary summary_;
};

Result<TraceImportSummary, TraceError> Import::run() {
  while (true) {
    MEMSTRATA_TRY(const Line line, lines_.next());
    if (line.state == Line::State::end) {
      break;
    }
    auto record = read(line);
    if (!record && options_.skip_bad) {
      ++summary_.skipped;
      continue;
    }
    if (!record) {
      return fail(TraceError(detail::at_place(std::move(record).error(), lines_.place())));
    }
    MEMSTRATA_TRY_VOID(writer_.write(*record));
    ++summary_.records;
    summary_.input_tokens += record->input_tokens;
    summary_.block_refs += record->blocks.size();
  }
  if (summary_.records == 0) {
    return fail(TraceError(EmptyTrace{.source = ErrorText::copy(lines_.source().name()),
                                      .skipped = summary_.skipped}));
  }
  MEMSTRATA_TRY_VOID(writer_.finish());
  summary_.unique_blocks = numbers_.size();
  return summary_;
}

// Nothing is numbered, and no time is remembered, before the line is known to be good: the writer cannot refuse it.
Result<TraceRecord, LineDefect> Import::read(const Line& line) {
  if (auto defect = detail::line_defect(line, options_.max_line)) {
    return fail(*std::move(defect));
  }
  JsonLine fields = detail::parse_json_line(line.text, detail::LineKind::log, largest_log_time);
  if (auto defect = check_fields(fields)) {
    return fail(*std::move(defect));
  }
  MEMSTRATA_TRY(const std::uint64_t input_tokens, input_tokens_of(fields));
  const std::uint64_t time = fields.timestamp.value_or(0);
  if (auto defect = check_time(time)) {
    return fail(*std::move(defect));
  }
  const std::vector<ContentKey> keys = numbers_.keys_of(fields, input_tokens);
  origin_ms_ = origin_ms_.value_or(time);
  last_ms_ = time;
  TraceRecord record;
  record.arrival = std::chrono::milliseconds(time - *origin_ms_);
  record.input_tokens = input_tokens;
  record.output_tokens = fields.output_length.value_or(0);
  record.blocks = numbers_.number(keys);
  record.tenant = std::move(fields.tenant).value_or("");
  record.session = std::move(fields.session).value_or("");
  return record;
}

std::optional<LineDefect> Import::check_time(std::uint64_t time) const {
  if (!origin_ms_) {
    return std::nullopt;
  }
  if (time < last_ms_) {
    return LineDefect{.defect = TraceDefect::time_went_back,
                      .field = "timestamp",
                      .expected = ErrorText::copy(fmt::format("at least {}", last_ms_)),
                      .found = ErrorText::copy(std::to_string(time))};
  }
  if (time - *origin_ms_ > trace_largest_number) {
    return LineDefect{.defect = TraceDefect::too_large,
                      .field = "timestamp",
                      .expected = ErrorText::copy(
                          fmt::format("at most {} ms after the first line", trace_largest_number)),
                      .found = ErrorText::copy(fmt::format("{} ms after it", time - *origin_ms_))};
  }
  return std::nullopt;
}

TraceError Import::too_large() const {
  return TraceTooLarge{.at = lines_.place(),
                       .distinct_blocks = numbers_.size(),
                       .reason = "there is no memory left"};
}

}  // namespace

Result<TraceImportSummary, TraceError> import_trace(std::unique_ptr<TraceSource> source,
                                                    std::ostream& out,
                                                    std::string out_name,
                                                    const TraceImportOptions& options) {
  Import import(std::move(source), out, std::move(out_name), options);
  try {
    return import.run();
  } catch (const std::exception&) {
    return fail(import.too_large());
  }
}

}  // namespace memstrata
