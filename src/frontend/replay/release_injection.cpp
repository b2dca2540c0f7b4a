// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/replay/release_injection.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "frontend/replay/names.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {
namespace {

constexpr std::array faults{ReleaseFault::fail, ReleaseFault::midway, ReleaseFault::lose};

std::string_view without_blanks(std::string_view text) noexcept {
  const std::size_t first = std::min(text.find_first_not_of(' '), text.size());
  const std::size_t last = text.find_last_not_of(' ');
  return last == std::string_view::npos ? std::string_view() : text.substr(first, last + 1 - first);
}

ReplayError unreadable(std::string_view part, const char* expected) {
  return BadReplayOption{.option = "inject",
                         .value = ErrorText::copy(part),
                         .expected = ErrorText::copy(std::string_view(expected))};
}

Result<ReleaseInjection, ReplayError> parse_one(std::string_view part) {
  constexpr const char* form = "fail:N, midway:N or lose:N, several with commas between them";
  const std::size_t colon = part.find(':');
  if (colon == std::string_view::npos) {
    return fail(unreadable(part, form));
  }
  const std::string_view name = without_blanks(part.substr(0, colon));
  const auto* const fault = std::ranges::find_if(faults, [name](ReleaseFault candidate) {
    return replay_detail::same_name(to_string(candidate), name);
  });
  if (fault == faults.end()) {
    return fail(unreadable(part, form));
  }
  const std::string_view number = without_blanks(part.substr(colon + 1));
  ReleaseInjection injection{.fault = *fault, .release = 0};
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), injection.release);
  if (error != std::errc{} || end != number.data() + number.size() || injection.release == 0) {
    return fail(unreadable(part, "a release counted from 1, as in fail:3"));
  }
  return injection;
}

}  // namespace

std::string_view to_string(ReleaseFault fault) noexcept {
  switch (fault) {
    case ReleaseFault::fail:
      return "fail";
    case ReleaseFault::midway:
      return "midway";
    case ReleaseFault::lose:
      return "lose";
  }
  std::unreachable();
}

Result<std::vector<ReleaseInjection>, ReplayError> parse_release_injections(std::string_view text) {
  std::vector<ReleaseInjection> injections;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const std::string_view part = without_blanks(text.substr(start, comma - start));
    MEMSTRATA_TRY(const ReleaseInjection injection, parse_one(part));
    if (std::ranges::find(injections, injection.release, &ReleaseInjection::release) !=
        injections.end()) {
      return fail(unreadable(part, "each release once"));
    }
    injections.push_back(injection);
    start = comma + 1;
  }
  return injections;
}

}  // namespace memstrata
