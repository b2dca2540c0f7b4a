// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "frontend/replay/executor.hpp"
#include "frontend/replay/holding.hpp"
#include "frontend/replay/replay_input.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"

namespace memstrata::replay_detail {
namespace {

constexpr std::uint64_t ns_per_second = 1'000'000'000;
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

/// The smallest value that at least `percent` of the values do not exceed. `values` is sorted and not empty.
std::chrono::nanoseconds nearest_rank(const std::vector<std::int64_t>& values,
                                      std::size_t percent) {
  const std::size_t rank = (values.size() * percent + 99) / 100;
  return std::chrono::nanoseconds(values[std::max<std::size_t>(rank, 1) - 1]);
}

}  // namespace

ReplayEngine::ReplayEngine(const ReplayInput& input,
                           const ReplayOptions& options,
                           ReplayPolicy policy,
                           ReplayExecutor* executor)
    : input_(input),
      options_(options),
      executor_(executor),
      holding_(policy, options.geometry, options.granule, options.context_tokens),
      limit_(options.limit.value_or(Bytes::max())),
      cache_(holding_.shares() ? input.block_count() : 0),
      requests_(input.size()) {
  result_.policy = policy;
  result_.prefix.has_ids = input.has_ids();
  result_.prefix.partial =
      holding_.shares() && input.has_ids() && options.geometry.sliding_layers != 0;
}

Result<PolicyResult, ReplayError> ReplayEngine::run(const ReplayProgress& progress) {
  for (std::int64_t instant = next_instant(); instant != never; instant = next_instant()) {
    meters_.advance(state_, instant);
    now_ns_ = instant;
    if (auto done = run_instant(); !done) {
      if (executor_ == nullptr || !executor_->is_device_lost()) {
        return fail(std::move(done).error());
      }
      device_lost_ = true;
      break;
    }
    if (time_overflow_) {
      return fail(ReplayError(
          BadReplayOption{.option = "decode-tps",
                          .value = ErrorText::copy(fmt::format("{}", options_.decode_tps)),
                          .expected = "speeds at which the simulated time ends within 290 years"}));
    }
    report_progress(progress);
  }
  MEMSTRATA_TRY_VOID(close(progress));
  return std::move(result_);
}

void ReplayEngine::report_progress(const ReplayProgress& progress) {
  const std::uint64_t finished = result_.completed + result_.refused;
  const std::uint64_t step = std::max<std::uint64_t>(input_.size() / 200, 1);
  if (progress && finished >= last_progress_ + step) {
    last_progress_ = finished;
    progress(result_.policy, finished, input_.size());
  }
}

std::int64_t ReplayEngine::next_instant() {
  drop_outdated_events();
  const std::int64_t event = events_.empty() ? never : events_.front().time_ns;
  const std::int64_t arrival =
      next_arrival_ < input_.size() ? input_.request(next_arrival_).arrival_ns : never;
  return std::min(event, arrival);
}

void ReplayEngine::pop_event() {
  std::ranges::pop_heap(events_, std::greater<>());
  events_.pop_back();
}

void ReplayEngine::drop_outdated_events() {
  while (!events_.empty() && running_[events_.front().place].sequence != events_.front().sequence) {
    pop_event();
  }
}

// R1: completions, growth, arrivals, admissions. A request is complete as soon as its last token exists, and then its
// completion comes before the growth of younger requests. A request that is admitted and ready at once has its first
// event at this same instant, which then runs again.
ReplayEngine::Outcome ReplayEngine::run_instant() {
  drop_outdated_events();
  while (!events_.empty() && events_.front().time_ns == now_ns_) {
    const Event event = events_.front();
    pop_event();
    if (event.kind == EventKind::completion) {
      MEMSTRATA_TRY_VOID(complete(event.place));
    } else {
      MEMSTRATA_TRY_VOID(grow(event.place));
    }
    drop_outdated_events();
  }
  arrive();
  return admit_from_queue();
}

std::int64_t ReplayEngine::after(std::int64_t start_ns,
                                 std::uint64_t tokens,
                                 std::uint64_t per_second) {
  std::uint64_t scaled = 0;
  std::int64_t end = 0;
  if (__builtin_mul_overflow(tokens, ns_per_second, &scaled) ||
      __builtin_add_overflow(start_ns, scaled / per_second, &end) || end == never) {
    time_overflow_ = true;
    return start_ns;
  }
  return end;
}

// The pending event of a request: its next token, or its completion once the last one exists.
void ReplayEngine::schedule(std::uint32_t place) {
  const Running& running = running_[place];
  const std::uint64_t generated = requests_[running.request].generated;
  const bool complete = generated >= input_.request(running.request).output;
  const std::uint64_t steps = generated - running.generated_before + (complete ? 0 : 1);
  events_.push_back({.time_ns = after(running.ready_ns, steps, options_.decode_tps),
                     .kind = complete ? EventKind::completion : EventKind::growth,
                     .sequence = running.sequence,
                     .place = place});
  std::ranges::push_heap(events_, std::greater<>());
}

std::uint64_t ReplayEngine::tokens_of(std::uint32_t request) const noexcept {
  return input_.request(request).input + requests_[request].generated;
}

ReplayEngine::Outcome ReplayEngine::complete(std::uint32_t place) {
  const std::uint32_t request = running_[place].request;
  if (executor_ != nullptr) {
    MEMSTRATA_TRY_VOID(executor_->finish(request));
  }
  if (holding_.shares()) {
    cache_.stamp(input_.path(request));
  }
  leave(place);
  waits_.push_back(requests_[request].first_admission_ns - input_.request(request).arrival_ns);
  ++result_.completed;
  admission_may_succeed_ = true;
  MEMSTRATA_TRY_VOID(trim_cache());
  note();
  return {};
}

// R8: while the room is missing and the asking request still runs, the latest admission goes.
ReplayEngine::Outcome ReplayEngine::grow(std::uint32_t place) {
  const std::uint32_t request = running_[place].request;
  const std::uint64_t sequence = running_[place].sequence;
  const std::uint64_t tokens = tokens_of(request);
  const GrowthCost cost =
      holding_.growth(full_blocks_of(request), tokens, running_[place].capacity);
  while (!fits(cost.taken)) {
    MEMSTRATA_TRY_VOID(evict_until(cost.taken));
    if (fits(cost.taken)) {
      break;
    }
    MEMSTRATA_TRY_VOID(preempt_latest());
    if (running_[place].sequence != sequence) {
      return {};
    }
  }
  Running& running = running_[place];
  running.capacity = cost.capacity;
  if (cost.taken != Bytes{}) {
    take(cost.taken);
    meters_.note(state_);  // old and new are held together
    running.held += cost.taken;
    result_.bytes.copied += cost.copied;
  }
  if (executor_ != nullptr) {
    MEMSTRATA_TRY_VOID(
        executor_->grow({.request = request, .tokens = tokens + 1, .capacity = running.capacity}));
  }
  if (cost.taken != Bytes{}) {
    give(cost.returned);
    running.held -= cost.returned;
    state_.reserved -= running.reserved;
    running.reserved = holding_.reserved(full_blocks_of(request), running.capacity);
    state_.reserved += running.reserved;
  }
  state_.live += holding_.live_token(tokens);
  ++state_.live_tokens;
  ++requests_[request].generated;
  schedule(place);
  note();
  return {};
}

ReplayEngine::Outcome ReplayEngine::preempt_latest() {
  while (running_[admissions_.back().place].sequence != admissions_.back().sequence) {
    admissions_.pop_back();
  }
  const std::uint32_t place = admissions_.back().place;
  admissions_.pop_back();
  const std::uint32_t request = running_[place].request;
  if (executor_ != nullptr) {
    MEMSTRATA_TRY_VOID(executor_->preempt(request));
  }
  leave(place);
  Request& victim = requests_[request];
  ++result_.preempted;
  if (victim.incarnation == 0) {
    ++result_.preempted_requests;
  }
  ++victim.incarnation;
  victim.completions_at_preemption = result_.completed;
  victim.was_alone = state_.running == 0;
  queue_.push_front(request);
  state_.queued = queue_.size();
  admission_may_succeed_ = true;
  MEMSTRATA_TRY_VOID(trim_cache());
  note();
  return {};
}

// A request gives back its own part; its full prompt blocks stay, perhaps idle.
void ReplayEngine::leave(std::uint32_t place) {
  Running& running = running_[place];
  const std::uint64_t tokens = tokens_of(running.request);
  if (holding_.shares()) {
    const auto path = input_.path(running.request);
    for (std::size_t depth = 0; depth < path.size(); ++depth) {
      unuse(path[depth], depth);
    }
  }
  if (holding_.has_slots()) {
    ++idle_slots_;
    state_.cached += running.held;
  } else {
    give(running.held);
    state_.reserved -= running.reserved;
  }
  state_.live -= holding_.live_private(full_blocks_of(running.request), tokens);
  state_.live_tokens -= tokens;
  --state_.running;
  running = Running{};
  free_places_.push_back(place);
}

void ReplayEngine::take(Bytes bytes) {
  state_.committed += bytes;
  if (holding_.has_pool()) {
    // The pool spans the whole budget; without one it is as large as it ever had to be.
    state_.reserved = options_.limit ? limit_ : std::max(state_.reserved, state_.committed);
  }
  if (state_.committed > budget()) {
    ++result_.violations;
    if (result_.violation_texts.size() < most_listed) {
      result_.violation_texts.push_back(
          fmt::format("{} bytes are committed, above the limit of {} less {} in quarantine",
                      state_.committed.value,
                      limit_.value,
                      withheld_.value));
    }
  }
}

void ReplayEngine::give(Bytes bytes) noexcept {
  state_.committed -= bytes;
}

// What is in quarantine is charged, so that it cannot be had.
Bytes ReplayEngine::budget() const noexcept {
  return saturating_sub(limit_, withheld_);
}

bool ReplayEngine::fits(Bytes bytes) const noexcept {
  return bytes <= saturating_sub(budget(), state_.committed);
}

void ReplayEngine::note() {
  meters_.note(state_);
  if (executor_ != nullptr) {
    withheld_ = executor_->observe(state_.committed);
  }
}

ReplayEngine::Outcome ReplayEngine::close(const ReplayProgress& progress) {
  MEMSTRATA_VERIFY(
      device_lost_ || (queue_.empty() && state_.running == 0 && state_.live == Bytes{}),
      "a replay ends with unfinished requests",
      queue_.size(),
      state_.running);
  meters_.finish(state_, now_ns_, result_);
  if (!waits_.empty()) {
    std::ranges::sort(waits_);
    result_.wait = {.p50 = nearest_rank(waits_, 50),
                    .p95 = nearest_rank(waits_, 95),
                    .p99 = nearest_rank(waits_, 99)};
  }
  ReplayPrefix& prefix = result_.prefix;
  prefix.hit_ratio_blocks = prefix.block_refs == 0 ? 0.0
                                                   : static_cast<double>(prefix.hit_blocks) /
                                                         static_cast<double>(prefix.block_refs);
  result_.end = std::chrono::nanoseconds(now_ns_);
  if (progress) {
    progress(result_.policy, result_.completed + result_.refused, input_.size());
  }
  if (executor_ != nullptr) {
    MEMSTRATA_TRY_VOID(executor_->end());
  }
  return {};
}

}  // namespace memstrata::replay_detail
