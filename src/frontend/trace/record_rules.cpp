// SPDX-License-Identifier: Apache-2.0
#include "frontend/trace/record_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "frontend/trace/line_defect.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata::detail {
namespace {

constexpr std::int64_t nanoseconds_per_ms = 1'000'000;
constexpr std::int64_t longest_span =
    static_cast<std::int64_t>(trace_largest_number) * nanoseconds_per_ms;

std::string in_ms(std::int64_t nanoseconds) {
  if (nanoseconds % nanoseconds_per_ms == 0) {
    return fmt::format("{} ms", nanoseconds / nanoseconds_per_ms);
  }
  return fmt::format("{} ns", nanoseconds);
}

std::optional<LineDefect> check_lengths(const TraceRecord& record) {
  if (record.input_tokens == 0) {
    return LineDefect{.defect = TraceDefect::empty_prompt,
                      .field = "input_length",
                      .expected = integer_between(1, trace_largest_number),
                      .found = "0"};
  }
  if (record.input_tokens > trace_largest_number) {
    return LineDefect{.defect = TraceDefect::too_large,
                      .field = "input_length",
                      .expected = integer_between(1, trace_largest_number),
                      .found = ErrorText::copy(std::to_string(record.input_tokens))};
  }
  if (record.output_tokens > trace_largest_number) {
    return LineDefect{.defect = TraceDefect::too_large,
                      .field = "output_length",
                      .expected = integer_between(0, trace_largest_number),
                      .found = ErrorText::copy(std::to_string(record.output_tokens))};
  }
  return std::nullopt;
}

std::optional<LineDefect> check_blocks(const TraceRecord& record) {
  const std::uint64_t wanted = blocks_of(record.input_tokens);
  if (!record.blocks.empty() && record.blocks.size() != wanted) {
    return LineDefect{
        .defect = TraceDefect::wrong_block_count,
        .field = "hash_ids",
        .expected = ErrorText::copy(fmt::format(
            "{} ids, one per {} of {} tokens", wanted, trace_block_tokens, record.input_tokens)),
        .found = ErrorText::copy(fmt::format("{} ids", record.blocks.size()))};
  }
  const auto absurd = std::ranges::find_if(
      record.blocks, [](std::uint64_t id) { return id > trace_largest_number; });
  if (absurd != record.blocks.end()) {
    return LineDefect{
        .defect = TraceDefect::too_large,
        .field = ErrorText::copy(fmt::format("hash_ids[{}]", absurd - record.blocks.begin())),
        .expected = integer_between(0, trace_largest_number),
        .found = ErrorText::copy(std::to_string(*absurd))};
  }
  return std::nullopt;
}

std::optional<LineDefect> check_name(ErrorText field, const std::string& name) {
  if (name.size() <= longest_name) {
    return std::nullopt;
  }
  return LineDefect{.defect = TraceDefect::too_large,
                    .field = std::move(field),
                    .expected = ErrorText::copy(fmt::format("at most {} bytes", longest_name)),
                    .found = ErrorText::copy(fmt::format("{} bytes", name.size()))};
}

// Everything that can be said of a record without the ones before it.
std::optional<LineDefect> check_alone(const TraceRecord& record) {
  if (auto defect = check_lengths(record)) {
    return defect;
  }
  if (auto defect = check_blocks(record)) {
    return defect;
  }
  if (auto defect = check_name("tenant", record.tenant)) {
    return defect;
  }
  return check_name("session", record.session);
}

}  // namespace

std::uint64_t blocks_of(std::uint64_t input_tokens) noexcept {
  return input_tokens / trace_block_tokens + (input_tokens % trace_block_tokens == 0 ? 0 : 1);
}

Result<void, LineDefect> RecordRules::accept(std::int64_t time, TraceRecord& record) {
  if (auto defect = check_time(time)) {
    return fail(*std::move(defect));
  }
  if (auto defect = check_alone(record)) {
    return fail(*std::move(defect));
  }
  if (auto defect = take_blocks(record)) {
    return fail(*std::move(defect));
  }
  if (!origin_) {
    origin_ = time;
  }
  last_ = time;
  record.arrival = std::chrono::nanoseconds(time - *origin_);
  return {};
}

std::optional<LineDefect> RecordRules::check_time(std::int64_t time) const {
  if (!origin_) {
    return std::nullopt;
  }
  if (time < last_) {
    return LineDefect{.defect = TraceDefect::time_went_back,
                      .field = "timestamp",
                      .expected = "not earlier than the record before",
                      .found = ErrorText::copy(fmt::format("{} earlier", in_ms(last_ - time)))};
  }
  if (time - *origin_ > longest_span) {
    return LineDefect{.defect = TraceDefect::too_large,
                      .field = "timestamp",
                      .expected = ErrorText::copy(
                          fmt::format("at most {} after the first record", in_ms(longest_span))),
                      .found = ErrorText::copy(fmt::format("{} after it", in_ms(time - *origin_)))};
  }
  return std::nullopt;
}

std::optional<LineDefect> RecordRules::take_blocks(const TraceRecord& record) {
  const std::size_t before = index_.size();
  std::uint32_t parent = 0;
  for (std::size_t position = 0; position < record.blocks.size(); ++position) {
    const auto fill = static_cast<std::uint32_t>(
        std::min(trace_block_tokens, record.input_tokens - position * trace_block_tokens));
    try {
      const auto [index, is_new] = index_.insert(record.blocks[position]);
      if (is_new) {
        nodes_.push_back({.parent = parent, .fill = fill});
      } else if (const Node known = nodes_[index]; known.parent != parent || known.fill != fill) {
        std::optional<LineDefect> defect;
        defect.emplace(contradiction(
            record.blocks[position], position, known, {.parent = parent, .fill = fill}));
        forget_down_to(before);
        return defect;
      }
      parent = index + 1;
    } catch (const std::bad_alloc&) {
      forget_down_to(before);
      throw;
    }
  }
  return std::nullopt;
}

LineDefect RecordRules::contradiction(std::uint64_t id,
                                      std::size_t position,
                                      Node known,
                                      Node now) const {
  ErrorText field = ErrorText::copy(fmt::format("hash_ids[{}]", position));
  if (known.parent != now.parent) {
    const auto place = [this](std::uint32_t parent) {
      return parent == 0 ? std::string("first of its prompt")
                         : fmt::format("after id {}", index_.key(parent - 1));
    };
    return {
        .defect = TraceDefect::parent_changed,
        .field = std::move(field),
        .expected = ErrorText::copy(fmt::format("id {} {}, as before", id, place(known.parent))),
        .found = ErrorText::copy(place(now.parent))};
  }
  return {
      .defect = TraceDefect::fill_changed,
      .field = std::move(field),
      .expected = ErrorText::copy(fmt::format("id {} with {} tokens, as before", id, known.fill)),
      .found = ErrorText::copy(fmt::format("{} tokens", now.fill))};
}

void RecordRules::forget_down_to(std::size_t size) noexcept {
  nodes_.resize(std::min(nodes_.size(), size));
  while (index_.size() > size) {
    index_.pop();
  }
}

}  // namespace memstrata::detail
