// SPDX-License-Identifier: Apache-2.0
#include "frontend/trace/azure_row.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "frontend/trace/line_defect.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"

namespace memstrata::detail {
namespace {

constexpr bool is_digit(char character) noexcept {
  return character >= '0' && character <= '9';
}

// Reads a time stamp from left to right.
class TimeText {
 public:
  explicit TimeText(std::string_view text) : rest_(text) {}

  [[nodiscard]] bool empty() const noexcept { return rest_.empty(); }

  // Exactly `digits` digits.
  [[nodiscard]] std::optional<int> number(std::size_t digits) {
    if (rest_.size() < digits) {
      return std::nullopt;
    }
    int value = 0;
    for (const char character : rest_.substr(0, digits)) {
      if (!is_digit(character)) {
        return std::nullopt;
      }
      value = value * 10 + (character - '0');
    }
    rest_.remove_prefix(digits);
    return value;
  }

  [[nodiscard]] bool one_of(std::string_view characters) {
    if (rest_.empty() || characters.find(rest_.front()) == std::string_view::npos) {
      return false;
    }
    rest_.remove_prefix(1);
    return true;
  }

  // One to nine digits, as nanoseconds.
  [[nodiscard]] std::optional<std::int64_t> fraction() {
    constexpr std::size_t most = 9;
    std::size_t digits = 0;
    std::int64_t value = 0;
    while (digits < rest_.size() && is_digit(rest_[digits])) {
      if (digits == most) {
        return std::nullopt;
      }
      value = value * 10 + (rest_[digits] - '0');
      ++digits;
    }
    if (digits == 0) {
      return std::nullopt;
    }
    rest_.remove_prefix(digits);
    for (; digits < most; ++digits) {
      value *= 10;
    }
    return value;
  }

 private:
  std::string_view rest_;
};

std::optional<std::chrono::sys_days> parse_date(TimeText& text) {
  const auto year = text.number(4);
  if (!year || *year < 1970 || *year > 2200 || !text.one_of("-")) {
    return std::nullopt;
  }
  const auto month = text.number(2);
  if (!month || !text.one_of("-")) {
    return std::nullopt;
  }
  const auto day = text.number(2);
  if (!day) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date(std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day)));
  return date.ok() ? std::optional(std::chrono::sys_days(date)) : std::nullopt;
}

std::optional<std::chrono::minutes> parse_hours_and_minutes(TimeText& text) {
  const auto hours = text.number(2);
  if (!hours || *hours > 23 || !text.one_of(":")) {
    return std::nullopt;
  }
  const auto minutes = text.number(2);
  if (!minutes || *minutes > 59) {
    return std::nullopt;
  }
  return std::chrono::hours(*hours) + std::chrono::minutes(*minutes);
}

// What stands behind the time: nothing, `Z`, or the distance from UTC.
std::optional<std::chrono::minutes> parse_zone(TimeText& text) {
  if (text.empty() || text.one_of("Z")) {
    return std::chrono::minutes(0);
  }
  if (text.one_of("+")) {
    return parse_hours_and_minutes(text);
  }
  if (!text.one_of("-")) {
    return std::nullopt;
  }
  const auto west = parse_hours_and_minutes(text);
  return west ? std::optional(-*west) : std::nullopt;
}

std::optional<std::int64_t> parse_time(std::string_view column) {
  TimeText text(column);
  const auto date = parse_date(text);
  if (!date || !text.one_of(" T")) {
    return std::nullopt;
  }
  const auto clock = parse_hours_and_minutes(text);
  if (!clock || !text.one_of(":")) {
    return std::nullopt;
  }
  const auto seconds = text.number(2);
  if (!seconds || *seconds > 59) {
    return std::nullopt;
  }
  std::int64_t fraction = 0;
  if (text.one_of(".")) {
    const auto digits = text.fraction();
    if (!digits) {
      return std::nullopt;
    }
    fraction = *digits;
  }
  const auto zone = parse_zone(text);
  if (!zone || !text.empty()) {
    return std::nullopt;
  }
  const std::chrono::nanoseconds time =
      date->time_since_epoch() + *clock - *zone + std::chrono::seconds(*seconds);
  return time.count() + fraction;
}

Result<std::uint64_t, LineDefect> parse_tokens(std::string_view column,
                                               ErrorText field,
                                               std::uint64_t least) {
  const auto refuse = [&](TraceDefect defect) {
    return fail(LineDefect{.defect = defect,
                           .field = std::move(field),
                           .expected = integer_between(least, trace_largest_number),
                           .found = ErrorText::copy(printable(column))});
  };
  const bool is_negative = column.starts_with('-');
  const std::string_view digits = column.substr(is_negative ? 1 : 0);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return refuse(TraceDefect::not_an_integer);
  }
  if (is_negative) {
    return refuse(TraceDefect::negative);
  }
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ec != std::errc() || value > trace_largest_number) {
    return refuse(TraceDefect::too_large);
  }
  return value;
}

}  // namespace

Result<AzureRow, LineDefect> parse_azure_row(std::string_view row) {
  constexpr std::size_t columns = 3;
  std::array<std::string_view, columns> column;
  std::size_t found = 0;
  for (std::size_t begin = 0; begin <= row.size(); ++found) {
    const std::size_t comma = row.find(',', begin);
    const std::size_t end = comma == std::string_view::npos ? row.size() : comma;
    if (found < columns) {
      column.at(found) = row.substr(begin, end - begin);
    }
    begin = end + 1;
  }
  if (found != columns) {
    return fail(
        LineDefect{.defect = TraceDefect::malformed,
                   .field = {},
                   .expected = "three columns separated by commas",
                   .found = ErrorText::copy(fmt::format("{} in {}", found, printable(row)))});
  }
  const auto time = parse_time(column[0]);
  if (!time) {
    return fail(LineDefect{.defect = TraceDefect::wrong_type,
                           .field = "TIMESTAMP",
                           .expected = "a time like 2023-11-16 18:15:46.6805900",
                           .found = ErrorText::copy(printable(column[0]))});
  }
  MEMSTRATA_TRY(const std::uint64_t context, parse_tokens(column[1], "ContextTokens", 1));
  MEMSTRATA_TRY(const std::uint64_t generated, parse_tokens(column[2], "GeneratedTokens", 0));
  return AzureRow{.time_ns = *time, .context_tokens = context, .generated_tokens = generated};
}

}  // namespace memstrata::detail
