// SPDX-License-Identifier: Apache-2.0
// Inputs that are made to exhaust memory or stack. Each runs in a child process with 2 GB of address space.

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_reader.hpp"
#include "memstrata/frontend/trace/trace_source.hpp"
#include "unit/frontend/trace/trace_texts.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMSTRATA_TEST_HAS_SHADOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MEMSTRATA_TEST_HAS_SHADOW 1
#endif
#endif

namespace memstrata {
namespace {

#if defined(MEMSTRATA_TEST_HAS_SHADOW)
constexpr bool has_shadow = true;
#else
constexpr bool has_shadow = false;
#endif

constexpr std::uint64_t address_space = 2'000'000'000;

// `begin`, then `middle` again and again up to `bytes`, then `end`.
class LongSource final : public TraceSource {
 public:
  LongSource(std::string begin, std::string middle, std::uint64_t bytes, std::string end)
      : part_(std::move(begin)), middle_(std::move(middle)), end_(std::move(end)), left_(bytes) {
    while (middle_.size() < 32'768) {
      middle_ += middle_;
    }
  }

  [[nodiscard]] Result<std::size_t, TraceError> read(std::span<char> buffer) override {
    if (given_ == part_.size()) {
      given_ = 0;
      if (left_ > 0) {
        part_ = middle_;
        left_ -= std::min<std::uint64_t>(left_, part_.size());
      } else {
        part_ = std::exchange(end_, std::string());
      }
    }
    const std::size_t count = part_.copy(buffer.data(), buffer.size(), given_);
    given_ += count;
    return count;
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "long"; }

 private:
  std::string part_;
  std::string middle_;
  std::string end_;
  std::uint64_t left_;
  std::size_t given_ = 0;
};

// Ends the process with 0 after printing the error that `source` gives.
[[noreturn]] void read_in_little_memory(std::unique_ptr<TraceSource> source) {
  const rlimit limit{.rlim_cur = address_space, .rlim_max = address_space};
  if (setrlimit(RLIMIT_AS, &limit) != 0) {
    std::exit(3);
  }
  const test::Outcome outcome = test::read_source(std::move(source));
  if (!outcome.error) {
    std::exit(4);
  }
  std::cerr << outcome.error->message() << '\n';
  std::exit(0);
}

struct Bomb {
  const char* name;
  const char* begin;
  const char* middle;
  std::uint64_t bytes;
  const char* end;
  const char* message;  ///< A part of the error, as a regular expression.
};

constexpr std::uint64_t mb = 1'000'000;

std::ostream& operator<<(std::ostream& out, const Bomb& bomb) {
  return out << bomb.name;
}

class TraceBomb : public testing::TestWithParam<Bomb> {};

TEST_P(TraceBomb, IsAClearErrorWithinTwoGigabytes) {
  if (has_shadow) {
    GTEST_SKIP() << "a sanitizer's shadow memory needs more address space than the limit allows";
  }
  const Bomb& bomb = GetParam();

  EXPECT_EXIT(read_in_little_memory(
                  std::make_unique<LongSource>(bomb.begin, bomb.middle, bomb.bytes, bomb.end)),
              testing::ExitedWithCode(0),
              bomb.message);
}

INSTANTIATE_TEST_SUITE_P(
    Reader,
    TraceBomb,
    testing::Values(
        Bomb{"Line", "{\"x\": \"", "a", 300 * mb, "\"}\n", "long line 1 .* at most 67108864 bytes"},
        Bomb{"LineWithoutEnd", "{", " ", 300 * mb, "", "long line 1 .* at most 67108864 bytes"},
        Bomb{"Zeros", "", "0", 300 * mb, "", "long is no trace"},
        Bomb{"Text", "{\"x\": \"", "a", 66 * mb, "", "expected a line end"},
        Bomb{"OpenText", "{\"x\": \"", "a", 66 * mb, "\n", "expected one object of JSON"},
        Bomb{"Escapes", "{\"x\": \"", "\\u0001", 20 * mb, "\n", "expected one object of JSON"},
        Bomb{"Lists", "{\"x\": ", "[", 66 * mb, "\n", "at most 64 nested lists"},
        Bomb{"Objects", "", "{\"a\":", 66 * mb, "\n", "at most 64 nested lists"},
        Bomb{"Digits", "{\"timestamp\": ", "9", 66 * mb, "}\n", "timestamp: expected an integer"},
        Bomb{"Ids", "{\"hash_ids\": [", "1,", 66 * mb, "1]}\n", "at most 4194304 blocks"},
        Bomb{"Keys",
             "{\"a\": 0",
             ",\"timestamp\":1",
             66 * mb,
             "}\n",
             "timestamp: expected it once"},
        Bomb{"BlankLines", "", "\n", 30 * mb, "", "long holds no record"}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace memstrata
