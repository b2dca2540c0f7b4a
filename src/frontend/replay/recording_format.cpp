// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/recording_format.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "frontend/replay/call_recorder.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::replay_detail {
namespace {

/// Reads blank-separated numbers from a line; after a failure every read gives 0 and `is_good` is false.
class FieldReader {
 public:
  explicit FieldReader(std::string_view line) noexcept : rest_(line) {}

  [[nodiscard]] std::string_view word() noexcept {
    const std::size_t start = rest_.find_first_not_of(' ');
    if (start == std::string_view::npos) {
      good_ = false;
      return {};
    }
    rest_.remove_prefix(start);
    const std::string_view found = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(found.size());
    return found;
  }

  template <class T>
  [[nodiscard]] T number() noexcept {
    const std::string_view text = word();
    T value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
      good_ = false;
      return 0;
    }
    return value;
  }

  /// An enumerator below `count`.
  template <class Enum>
  [[nodiscard]] Enum choice(std::uint8_t count) noexcept {
    const auto value = number<std::uint8_t>();
    if (value >= count) {
      good_ = false;
      return Enum{};
    }
    return static_cast<Enum>(value);
  }

  /// Whether every read succeeded and nothing is left.
  [[nodiscard]] bool is_finished() const noexcept {
    return good_ && rest_.find_first_not_of(' ') == std::string_view::npos;
  }

 private:
  std::string_view rest_;
  bool good_ = true;
};

constexpr std::uint8_t kind_count =
    std::to_underlying(host::SystemCallKind::raise_descriptor_limit) + 1;
constexpr std::uint8_t protection_count = std::to_underlying(host::Protection::read_write) + 1;
constexpr std::uint8_t placement_count = std::to_underlying(host::Placement::if_vacant) + 1;
constexpr std::uint8_t advice_count = std::to_underlying(host::Advice::huge_pages) + 1;

std::optional<host::SystemCallKind> kind_named(std::string_view name) noexcept {
  for (std::uint8_t number = 0; number < kind_count; ++number) {
    const auto kind = static_cast<host::SystemCallKind>(number);
    if (name == host::function_name(kind)) {
      return kind;
    }
  }
  return std::nullopt;
}

}  // namespace

void append_line(std::string& text, const RecordedStep& step) {
  const auto out = std::back_inserter(text);
  switch (step.kind) {
    case RecordedStep::Kind::call:
      fmt::format_to(out,
                     "s {} {} {} {} {} {} {:d} {} {} {} {}\n",
                     host::function_name(step.call.kind),
                     std::to_underlying(step.call.kind),
                     std::to_underlying(step.call.protection),
                     std::to_underlying(step.call.placement),
                     std::to_underlying(step.call.advice),
                     step.call.descriptor,
                     step.call.sealable,
                     step.call.address,
                     step.call.length,
                     step.call.offset,
                     step.answer);
      return;
    case RecordedStep::Kind::fill:
      fmt::format_to(out,
                     "f {} {} {} {} {}\n",
                     step.to,
                     step.size.value,
                     step.owner,
                     step.row.value,
                     step.offset.value);
      return;
    case RecordedStep::Kind::copy:
      fmt::format_to(out, "c {} {} {}\n", step.to, step.size.value, step.from);
      return;
  }
  std::unreachable();
}

void append_summary(std::string& text, const RecordingSummary& summary, std::size_t steps) {
  fmt::format_to(
      std::back_inserter(text), "e {} {} {}\n", steps, summary.wall.count(), summary.checksum);
}

std::optional<RecordedStep> parse_step(std::string_view line) {
  FieldReader fields(line);
  const std::string_view letter = fields.word();
  RecordedStep step{};
  if (letter == "s") {
    step.kind = RecordedStep::Kind::call;
    const auto named = kind_named(fields.word());
    step.call.kind = fields.choice<host::SystemCallKind>(kind_count);
    step.call.protection = fields.choice<host::Protection>(protection_count);
    step.call.placement = fields.choice<host::Placement>(placement_count);
    step.call.advice = fields.choice<host::Advice>(advice_count);
    step.call.descriptor = fields.number<std::int32_t>();
    step.call.sealable = fields.number<std::uint8_t>() != 0;
    step.call.address = fields.number<std::uint64_t>();
    step.call.length = fields.number<std::uint64_t>();
    step.call.offset = fields.number<std::uint64_t>();
    step.answer = fields.number<std::uint64_t>();
    if (!named ||
        host::function_name(*named) != std::string_view(host::function_name(step.call.kind))) {
      return std::nullopt;
    }
  } else if (letter == "f") {
    step.kind = RecordedStep::Kind::fill;
    step.to = fields.number<std::uint64_t>();
    step.size = Bytes{fields.number<std::uint64_t>()};
    step.owner = fields.number<std::uint64_t>();
    step.row = Bytes{fields.number<std::uint64_t>()};
    step.offset = Bytes{fields.number<std::uint64_t>()};
    constexpr std::uint64_t word = sizeof(std::uint64_t);
    if (step.row == Bytes{} || (step.row.value | step.size.value | step.offset.value) % word != 0) {
      return std::nullopt;
    }
  } else if (letter == "c") {
    step.kind = RecordedStep::Kind::copy;
    step.to = fields.number<std::uint64_t>();
    step.size = Bytes{fields.number<std::uint64_t>()};
    step.from = fields.number<std::uint64_t>();
  } else {
    return std::nullopt;
  }
  return fields.is_finished() ? std::optional(step) : std::nullopt;
}

std::optional<ParsedSummary> parse_summary(std::string_view line) {
  FieldReader fields(line);
  if (fields.word() != "e") {
    return std::nullopt;
  }
  ParsedSummary parsed{};
  parsed.steps = fields.number<std::size_t>();
  parsed.summary.wall = std::chrono::nanoseconds(fields.number<std::int64_t>());
  parsed.summary.checksum = fields.number<std::uint64_t>();
  return fields.is_finished() ? std::optional(parsed) : std::nullopt;
}

}  // namespace memstrata::replay_detail
