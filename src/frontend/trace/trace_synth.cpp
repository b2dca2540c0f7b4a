// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/trace/trace_synth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata {
namespace {

// A distribution by its quantiles at every sixteenth, with straight lines between them.
using Quantiles = std::array<std::uint32_t, 17>;

// Tokens of the first message of a session: short questions, and documents in the tail.
constexpr Quantiles first_message =
    {16, 40, 70, 110, 150, 200, 260, 330, 420, 530, 680, 880, 1150, 1500, 2000, 2900, 5000};
// Tokens of a later message.
constexpr Quantiles later_message =
    {6, 12, 18, 26, 36, 48, 62, 78, 96, 120, 150, 190, 240, 310, 420, 650, 1400};
// Generated tokens.
constexpr Quantiles answer =
    {4, 20, 45, 70, 95, 120, 145, 170, 200, 230, 260, 300, 340, 390, 450, 540, 800};
// 1000 times the exponential distribution with mean 1; the last value makes the mean of the straight lines right.
constexpr Quantiles exponential =
    {0, 65, 134, 208, 288, 375, 470, 575, 693, 827, 981, 1163, 1386, 1674, 2079, 2773, 4773};

// System prompts by tenant, repeating; the shortest is below one block, so that nothing of it can be shared.
constexpr std::array<std::uint64_t, 4> system_tokens = {1600, 1100, 700, 300};

constexpr std::uint64_t shortest_prompt_limit = 1024;
constexpr std::uint64_t largest_option = 1'000'000'000;
constexpr std::uint64_t largest_prompt_limit = 1'000'000;
constexpr std::uint64_t largest_tenants = 1000;
constexpr std::uint64_t ms_per_token = 50;   // How fast a user sees the answer: 20 tokens a second.
constexpr std::uint64_t reading_ms = 9'000;  // Mean time before the next message.
constexpr std::uint64_t burst_gap_ms = 40;   // Mean distance of sessions inside a burst.
constexpr std::uint64_t percent_in_burst = 70;  // Sessions that follow the one before in a burst.
constexpr std::uint64_t percent_another_turn = 66;
constexpr std::uint64_t percent_again =
    12;  // Turns that ask for another answer to the same prompt.
constexpr std::uint64_t most_turns = 12;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}

  // 0 to `count` - 1.
  [[nodiscard]] std::uint64_t below(std::uint64_t count) { return (engine_() >> 11U) % count; }

  [[nodiscard]] bool percent(std::uint64_t chance) { return below(100) < chance; }

  [[nodiscard]] std::uint64_t draw(const Quantiles& quantiles) {
    constexpr std::uint64_t one = 1ULL << 16;
    const std::uint64_t point = below((quantiles.size() - 1) * one);
    const std::uint64_t low = quantiles.at(point / one);
    const std::uint64_t high = quantiles.at(point / one + 1);
    return low + (high - low) * (point % one) / one;
  }

  [[nodiscard]] std::uint64_t exponential_ms(std::uint64_t mean) {
    return mean * draw(exponential) / 1000;
  }

 private:
  std::mt19937_64 engine_;
};

// One conversation, at its next turn.
struct Session {
  std::uint64_t at_ms = 0;
  std::uint64_t number = 0;
  std::uint64_t tenant = 0;
  std::uint64_t turns = 0;  // Turns made.
  std::uint64_t prompt = 0;
  std::uint64_t answer = 0;
  std::vector<std::uint64_t> blocks;  // Of the last prompt.
};

struct Later {
  [[nodiscard]] bool operator()(const Session& a, const Session& b) const noexcept {
    return std::pair(a.at_ms, a.number) > std::pair(b.at_ms, b.number);
  }
};

TraceSynthOptions within_range(TraceSynthOptions options) {
  options.sessions = std::clamp<std::uint64_t>(options.sessions, 1, largest_option);
  options.scale = std::clamp<std::uint64_t>(options.scale, 1, largest_option / options.sessions);
  options.session_gap_ms = std::min(options.session_gap_ms, largest_option);
  options.max_input_tokens =
      std::clamp(options.max_input_tokens, shortest_prompt_limit, largest_prompt_limit);
  options.tenants = std::clamp<std::uint64_t>(options.tenants, 1, largest_tenants);
  return options;
}

}  // namespace

class TraceSynth::State {
 public:
  explicit State(const TraceSynthOptions& options)
      : options_(within_range(options)),
        dice_(options_.seed),
        system_blocks_(options_.tenants),
        sessions_left_(options_.sessions * options_.scale) {
    for (std::uint64_t tenant = 0; tenant < options_.tenants; ++tenant) {
      weight_ += weight_of(tenant);
    }
  }

  [[nodiscard]] std::optional<TraceRecord> next();

 private:
  // The n-th tenant has 1/n of the sessions of the first.
  [[nodiscard]] static std::uint64_t weight_of(std::uint64_t tenant) noexcept {
    return largest_option / (tenant + 1);
  }

  [[nodiscard]] std::uint64_t draw_tenant();
  void begin_session();
  void number_blocks(Session& session);
  void go_on(Session session);

  TraceSynthOptions options_;
  Dice dice_;
  std::priority_queue<Session, std::vector<Session>, Later> open_;
  std::vector<std::vector<std::uint64_t>> system_blocks_;  // By tenant: full blocks of its prompt.
  std::uint64_t weight_ = 0;
  std::uint64_t sessions_left_;
  std::uint64_t sessions_begun_ = 0;
  std::uint64_t next_start_ms_ = 0;
  std::uint64_t next_block_ = 0;
};

std::uint64_t TraceSynth::State::draw_tenant() {
  std::uint64_t ticket = dice_.below(weight_);
  std::uint64_t tenant = 0;
  while (ticket >= weight_of(tenant)) {
    ticket -= weight_of(tenant);
    ++tenant;
  }
  return tenant;
}

void TraceSynth::State::begin_session() {
  Session session;
  session.at_ms = next_start_ms_;
  session.number = sessions_begun_++;
  session.tenant = draw_tenant();
  session.prompt =
      std::min(options_.max_input_tokens,
               system_tokens.at(session.tenant % system_tokens.size()) + dice_.draw(first_message));
  open_.push(std::move(session));
  --sessions_left_;
  // Bursts: most sessions follow closely, the others after so long that the mean is what was asked for.
  const std::uint64_t pause = options_.session_gap_ms * 100 / (100 - percent_in_burst);
  next_start_ms_ += dice_.percent(percent_in_burst)
                        ? dice_.exponential_ms(std::min(burst_gap_ms, options_.session_gap_ms))
                        : dice_.exponential_ms(pause);
}

void TraceSynth::State::number_blocks(Session& session) {
  std::vector<std::uint64_t>& blocks = session.blocks;
  const std::uint64_t full = session.prompt / trace_block_tokens;
  const std::uint64_t wanted = full + (session.prompt % trace_block_tokens == 0 ? 0 : 1);
  std::vector<std::uint64_t>& system = system_blocks_[session.tenant];
  const std::uint64_t shared =
      system_tokens.at(session.tenant % system_tokens.size()) / trace_block_tokens;
  while (blocks.size() < wanted) {
    const std::size_t position = blocks.size();
    if (position < shared && position < full) {
      if (position == system.size()) {
        system.push_back(next_block_++);
      }
      blocks.push_back(system[position]);
    } else {
      blocks.push_back(next_block_++);
    }
  }
}

void TraceSynth::State::go_on(Session session) {
  ++session.turns;
  if (session.turns == most_turns || !dice_.percent(percent_another_turn)) {
    return;
  }
  session.at_ms += session.answer * ms_per_token + dice_.exponential_ms(reading_ms) + 1;
  if (!dice_.percent(percent_again)) {
    // The last block of this prompt goes on with the answer, so it becomes another one, unless it was full.
    session.blocks.resize(session.prompt / trace_block_tokens);
    session.prompt += session.answer + dice_.draw(later_message);
  }
  if (session.prompt <= options_.max_input_tokens) {
    open_.push(std::move(session));
  }
}

std::optional<TraceRecord> TraceSynth::State::next() {
  while (sessions_left_ > 0 && (open_.empty() || next_start_ms_ <= open_.top().at_ms)) {
    begin_session();
  }
  if (open_.empty()) {
    return std::nullopt;
  }
  Session session = open_.top();
  open_.pop();
  session.answer = dice_.draw(answer);
  number_blocks(session);
  TraceRecord record;
  record.arrival = std::chrono::milliseconds(session.at_ms);
  record.input_tokens = session.prompt;
  record.output_tokens = session.answer;
  record.blocks = session.blocks;
  record.tenant = fmt::format("t{}", session.tenant);
  record.session = fmt::format("s{}", session.number);
  go_on(std::move(session));
  return record;
}

std::string describe(const TraceSynthOptions& options) {
  const TraceSynthOptions used = within_range(options);
  return fmt::format(
      "memstrata trace synth --seed {} --sessions {} --scale {} --session-gap-ms {} "
      "--max-input-tokens {} --tenants {}",
      used.seed,
      used.sessions,
      used.scale,
      used.session_gap_ms,
      used.max_input_tokens,
      used.tenants);
}

TraceSynth::TraceSynth(const TraceSynthOptions& options)
    : state_(std::make_unique<State>(options)) {}

TraceSynth::TraceSynth(TraceSynth&& other) noexcept = default;
TraceSynth& TraceSynth::operator=(TraceSynth&& other) noexcept = default;
TraceSynth::~TraceSynth() = default;

std::optional<TraceRecord> TraceSynth::next() {
  return state_->next();
}

}  // namespace memstrata
