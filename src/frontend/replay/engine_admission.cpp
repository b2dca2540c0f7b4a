// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "frontend/replay/engine.hpp"
#include "frontend/replay/replay_input.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata::replay_detail {
std::uint64_t ReplayEngine::full_blocks_of(std::uint32_t request) const noexcept {
  return holding_.shares() ? input_.request(request).full_blocks : 0;
}

// A request that outgrew the budget all alone would outgrow it again from where it stands. It comes back with the
// capacity that doubling from its prompt would have given it, which R9 has measured.
std::uint64_t ReplayEngine::initial_capacity(std::uint32_t request) const noexcept {
  const std::uint64_t capacity = holding_.initial_capacity(tokens_of(request));
  return requests_[request].was_alone
             ? holding_.doubled_capacity(input_.request(request).input, capacity)
             : capacity;
}

// R9: what can never fit is refused at arrival, with both numbers.
void ReplayEngine::arrive() {
  while (next_arrival_ < input_.size() && input_.request(next_arrival_).arrival_ns <= now_ns_) {
    const auto index = static_cast<std::uint32_t>(next_arrival_++);
    if (const Bytes needed = alone(index); needed > budget()) {
      refuse(index, needed);
      continue;
    }
    admission_may_succeed_ = admission_may_succeed_ || queue_.empty();
    queue_.push_back(index);
  }
  state_.queued = queue_.size();
}

Bytes ReplayEngine::alone(std::uint32_t request) const noexcept {
  const InputRequest& asked = input_.request(request);
  return holding_.alone(full_blocks_of(request), asked.input, asked.output);
}

void ReplayEngine::refuse(std::uint32_t request, Bytes needed) {
  ++result_.refused;
  if (result_.refusals.size() < most_listed) {
    result_.refusals.push_back({.request = request, .needed = needed, .limit = budget()});
  }
}

// R7: strictly first come. Nothing but a completion, a preemption or an arrival at an empty queue can make the
// head fit that did not fit before, so other instants do not ask.
ReplayEngine::Outcome ReplayEngine::admit_from_queue() {
  if (!admission_may_succeed_) {
    meters_.note(state_);
    return {};
  }
  admission_may_succeed_ = false;
  while (!queue_.empty()) {
    const std::uint32_t head = queue_.front();
    const Request& request = requests_[head];
    if (request.incarnation > 0 && request.completions_at_preemption == result_.completed &&
        state_.running > 0) {
      break;  // R8: not before a completion, unless nothing runs
    }
    // R9 once more, if what is in quarantine has grown since the arrival.
    const Bytes needed = withheld_ == Bytes{} ? Bytes{} : alone(head);
    if (needed > budget()) {
      refuse(head, needed);
    } else {
      MEMSTRATA_TRY(const bool admitted, try_admit(head));
      if (!admitted && (state_.running > 0 || withheld_ == Bytes{})) {
        break;
      }
      if (!admitted) {
        continue;  // evictions went into quarantine: what is left may be too little for ever
      }
    }
    queue_.pop_front();
    state_.queued = queue_.size();
  }
  MEMSTRATA_VERIFY(
      queue_.empty() || state_.running > 0, "the head waits although nothing runs", queue_.size());
  meters_.note(state_);
  return {};
}

// Idle bytes that the hits themselves hold: they cannot be evicted for this request.
Bytes ReplayEngine::idle_on(std::span<const BlockIndex> path, std::size_t hits) const noexcept {
  Bytes idle;
  for (std::size_t depth = 0; depth < hits; ++depth) {
    if (cache_.users(path[depth]) == 0) {
      idle += holding_.object(depth);
    }
  }
  return idle;
}

Result<bool, ReplayError> ReplayEngine::try_admit(std::uint32_t request) {
  if (holding_.has_slots()) {
    if (idle_slots_ == 0 && !fits(holding_.slot())) {
      return false;
    }
    MEMSTRATA_TRY_VOID(start(request, 0, holding_.slot()));
    return true;
  }
  const auto path = holding_.shares() ? input_.path(request) : std::span<const BlockIndex>();
  const std::size_t hits = cache_.hit_run(path);
  const Bytes own = holding_.private_bytes(full_blocks_of(request), initial_capacity(request));
  Bytes needed = own;
  for (std::size_t depth = hits; depth < path.size(); ++depth) {
    needed += holding_.object(depth);
  }
  const Bytes evictable = state_.cached - idle_on(path, hits);
  if (needed > saturating_add(saturating_sub(budget(), state_.committed), evictable)) {
    return false;
  }
  for (std::size_t depth = 0; depth < hits; ++depth) {
    use(path[depth], depth);
  }
  MEMSTRATA_TRY_VOID(evict_until(needed));
  if (!fits(needed)) {
    MEMSTRATA_VERIFY(withheld_ != Bytes{}, "eviction freed less than was counted", needed.value);
    for (std::size_t depth = 0; depth < hits; ++depth) {
      unuse(path[depth], depth);
    }
    return false;
  }
  MEMSTRATA_TRY_VOID(start(request, hits, own));
  return true;
}

void ReplayEngine::use(BlockIndex block, std::size_t depth) noexcept {
  if (cache_.use(block) == 0) {
    state_.cached -= holding_.object(depth);
    state_.live += holding_.live_block();
  } else {
    state_.saved += holding_.mapped(depth);
  }
}

void ReplayEngine::unuse(BlockIndex block, std::size_t depth) noexcept {
  if (cache_.unuse(block) == 0) {
    state_.live -= holding_.live_block();
    state_.cached += holding_.object(depth);
  } else {
    state_.saved -= holding_.mapped(depth);
  }
}

// The hits are in use already. Makes the missing blocks and says when the request is ready.
std::int64_t ReplayEngine::hold_path(std::uint32_t request, std::size_t hits) {
  const auto path = holding_.shares() ? input_.path(request) : std::span<const BlockIndex>();
  std::int64_t ready = now_ns_;
  if (options_.prefill_tps) {
    const std::uint64_t missed = tokens_of(request) - hits * trace_block_tokens;
    ready = after(now_ns_, missed, *options_.prefill_tps);
  }
  if (hits > 0) {
    ready = std::max(ready, cache_.ready_ns(path[hits - 1]));
  }
  for (std::size_t depth = hits; depth < path.size(); ++depth) {
    const Bytes object = holding_.object(depth);
    cache_.create(path[depth], static_cast<std::uint32_t>(depth), ready);
    take(object);
    state_.cached += object;  // until it is in use, at once
    use(path[depth], depth);
  }
  cache_.stamp(path);
  return ready;
}

// R3: hits count once per request, at its first admission.
void ReplayEngine::count_hits(std::uint32_t request, std::size_t hits) {
  ReplayPrefix& prefix = result_.prefix;
  prefix.hit_blocks += hits;
  prefix.hit_tokens += hits * trace_block_tokens;
  prefix.mapped_blocks += holding_.mapped_blocks(hits);
  prefix.block_refs += input_.request(request).block_refs;
  state_.hit_blocks = prefix.hit_blocks;
  state_.block_refs = prefix.block_refs;
}

ReplayEngine::Outcome ReplayEngine::start(std::uint32_t request, std::size_t hits, Bytes held) {
  Request& admitted = requests_[request];
  if (admitted.first_admission_ns < 0) {
    admitted.first_admission_ns = now_ns_;
    count_hits(request, hits);
  }
  if (holding_.shares()) {
    result_.bytes.copied += holding_.seam(hits);
  }
  std::uint32_t place = 0;
  if (free_places_.empty()) {
    place = static_cast<std::uint32_t>(running_.size());
    running_.emplace_back();
  } else {
    place = free_places_.back();
    free_places_.pop_back();
  }
  Running& running = running_[place];
  const std::uint64_t tokens = tokens_of(request);
  running.sequence = next_sequence_++;
  running.request = request;
  running.ready_ns = hold_path(request, hits);
  running.generated_before = admitted.generated;
  running.capacity = initial_capacity(request);
  running.held = held;
  if (holding_.has_slots() && idle_slots_ > 0) {
    --idle_slots_;
    state_.cached -= held;
  } else {
    take(held);
    running.reserved = holding_.reserved(full_blocks_of(request), running.capacity);
    state_.reserved += running.reserved;
  }
  state_.live += holding_.live_private(full_blocks_of(request), tokens);
  state_.live_tokens += tokens;
  ++state_.running;
  admissions_.push_back({.sequence = running.sequence, .place = place});
  schedule(place);
  if (executor_ != nullptr) {
    MEMSTRATA_TRY_VOID(executor_->admit({.request = request,
                                         .incarnation = admitted.incarnation,
                                         .tokens = tokens,
                                         .capacity = running.capacity,
                                         .path = input_.path(request),
                                         .hits = hits}));
  }
  note();
  return {};
}

ReplayEngine::Outcome ReplayEngine::evict_one() {
  const auto block = cache_.evict();
  MEMSTRATA_VERIFY(
      block.has_value(), "an idle block is missing in the order of eviction", cache_.idle());
  const Bytes object = holding_.object(cache_.depth(*block));
  state_.cached -= object;
  give(object);
  return executor_ != nullptr ? executor_->evict(*block) : Outcome();
}

// R6: oldest first, only as many as the request needs.
ReplayEngine::Outcome ReplayEngine::evict_until(Bytes needed) {
  while (!fits(needed) && cache_.idle() > 0) {
    while (!fits(needed) && cache_.idle() > 0) {
      MEMSTRATA_TRY_VOID(evict_one());
    }
    if (executor_ != nullptr) {
      withheld_ = executor_->end_step();
    }
  }
  return {};
}

ReplayEngine::Outcome ReplayEngine::trim_cache() {
  while (options_.cache_blocks && cache_.idle() > *options_.cache_blocks) {
    MEMSTRATA_TRY_VOID(evict_one());
  }
  return {};
}

}  // namespace memstrata::replay_detail
