// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "frontend/replay/names.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/find_limit.hpp"

namespace memstrata {
namespace {

constexpr std::array metrics{LimitMetric::wait_p50,
                             LimitMetric::wait_p95,
                             LimitMetric::wait_p99,
                             LimitMetric::preempted,
                             LimitMetric::refused};

struct TimeUnit {
  std::string_view name;
  double nanoseconds;
};

constexpr std::array units{TimeUnit{.name = "ns", .nanoseconds = 1},
                           TimeUnit{.name = "us", .nanoseconds = 1e3},
                           TimeUnit{.name = "ms", .nanoseconds = 1e6},
                           TimeUnit{.name = "s", .nanoseconds = 1e9},
                           TimeUnit{.name = "min", .nanoseconds = 60e9}};

/// Reads one condition from left to right and remembers where it stands.
class ConditionReader {
 public:
  explicit ConditionReader(std::string_view text) : text_(text) {}

  [[nodiscard]] Result<LimitCondition, ReplayError> read() {
    MEMSTRATA_TRY(const LimitMetric metric, read_metric());
    skip_blanks();
    if (!text_.substr(at_).starts_with("<=")) {
      return fail(expected("<="));
    }
    at_ += 2;
    skip_blanks();
    const bool is_wait = metric != LimitMetric::preempted && metric != LimitMetric::refused;
    MEMSTRATA_TRY(const std::uint64_t bound, is_wait ? read_time() : read_count());
    skip_blanks();
    if (at_ != text_.size()) {
      return fail(expected("the end"));
    }
    return LimitCondition{.metric = metric, .bound = bound};
  }

 private:
  [[nodiscard]] ReplayError expected(const char* what) const {
    return BadCondition{.text = ErrorText::copy(text_),
                        .column = at_ + 1,
                        .expected = ErrorText::copy(std::string_view(what))};
  }

  void skip_blanks() noexcept {
    while (at_ < text_.size() && text_[at_] == ' ') {
      ++at_;
    }
  }

  /// Letters, digits and underscores from here on.
  [[nodiscard]] std::string_view word() const noexcept {
    std::size_t end = at_;
    while (end < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '_')) {
      ++end;
    }
    return text_.substr(at_, end - at_);
  }

  [[nodiscard]] Result<LimitMetric, ReplayError> read_metric() {
    skip_blanks();
    const std::string_view name = word();
    for (const LimitMetric metric : metrics) {
      if (replay_detail::same_name(to_string(metric), name)) {
        at_ += name.size();
        return metric;
      }
    }
    return fail(expected("wait_p50, wait_p95, wait_p99, preempted or refused"));
  }

  [[nodiscard]] Result<std::uint64_t, ReplayError> read_count() {
    std::uint64_t count = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), count);
    if (error != std::errc()) {
      return fail(expected("a whole number"));
    }
    at_ = static_cast<std::size_t>(end - text_.data());
    return count;
  }

  [[nodiscard]] Result<std::uint64_t, ReplayError> read_time() {
    double number = 0;
    const auto [end, error] = std::from_chars(
        text_.data() + at_, text_.data() + text_.size(), number, std::chars_format::fixed);
    if (error != std::errc() || !(number >= 0)) {
      return fail(expected("a time such as 5s or 250ms"));
    }
    const std::size_t start = at_;
    at_ = static_cast<std::size_t>(end - text_.data());
    const std::string_view name = word();
    for (const TimeUnit& unit : units) {
      if (unit.name == name) {
        constexpr double most = 9.2e18;  // 290 years, the end of simulated time
        if (number * unit.nanoseconds > most) {
          at_ = start;
          return fail(expected("a time of at most 290 years"));
        }
        at_ += name.size();
        return static_cast<std::uint64_t>(std::llround(number * unit.nanoseconds));
      }
    }
    return fail(expected("a unit of time: ns, us, ms, s or min"));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<LimitCondition, ReplayError> parse_limit_condition(std::string_view text) {
  return ConditionReader(text).read();
}

}  // namespace memstrata
