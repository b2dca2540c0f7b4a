// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <vector>

#include "replay_rig.hpp"

namespace memstrata::test {
namespace {

using std::chrono::seconds;

// Prefill takes no time and a token takes 1 s. A, B and C are full blocks, c is a partly filled one.
//   R0 at 0 s: 1,024 tokens [A B], 2 generated.   R1 at 1 s: 1,024 [A B], 1 generated: a whole-prompt hit.
//   R2 at 5 s: 600 [C c], 1 generated.            R3 at 6 s: 1,024 [A B], 1 generated.
std::vector<TraceRecord> first_trace() {
  return {record(seconds(0), 1'024, 2, {1, 2}),
          record(seconds(1), 1'024, 1, {1, 2}),
          record(seconds(5), 600, 1, {3, 4}),
          record(seconds(6), 1'024, 1, {1, 2})};
}

// Limit 5 g.
// 0 s: R0 makes A and B, 4 g, its own part is empty. 1 s: its token needs 1 g: 5 g. R1 hits A and B and needs nothing.
// 2 s: R0's token fits its granule; R0 is complete: 4 g. R1's token 1 g: 5 g; it is complete: 4 g idle.
// 5 s: R2 needs C and 1 g (600 tokens end in the third granule): 3 g, 1 is free; B goes (stamped like A, but
//   deeper): 5 g. 6 s: R2's token fits; R2 is complete: 4 g idle (A, C). R3 hits A and needs 2 g for B, 1 is free; A
//   cannot go for it, C goes though it was used later: 4 g. 7 s: its token takes 1 g.
// hits: R1 2, R3 1. saved: A and B for R0 and R1 at 1 s. reserved: 2 x 5 g (the context is 1,026 tokens).
// live tokens: 1,026 + 1,024 at 2 s. live bytes: A and B and R0's 2 tokens.
// held in g s: [0,1) 4, [1,2) 5, [2,5) all idle, [5,6) 3, [6,7) 4 = 16.
// live in token s: 1,024 + 1,025 + 600 + 1,024 = 3,673.
TEST(ReplayFirstTrace, VirtualCountsAsWorkedOutByHand) {
  const auto result = replayed(first_trace(), toy_options(ReplayPolicy::virtual_memory, g * 5));

  expect_counters(result,
                  {.completed = 4,
                   .refused = 0,
                   .preempted = 0,
                   .preempted_requests = 0,
                   .peak_concurrent = 2,
                   .peak_live_tokens = 2'050,
                   .wait = {},
                   .peak_reserved = g * 10,
                   .peak_committed = g * 5,
                   .peak_live = tokens(1'026),
                   .peak_cached = g * 4,
                   .copied = {},
                   .shared_saved = g * 4,
                   .hit_blocks = 3,
                   .hit_tokens = 1'536,
                   .mapped_blocks = 3,
                   .block_refs = 8,
                   .waste_ratio = 16.0 * 256 / 3'673,
                   .end = seconds(7)});
}

// Limit 80 p; a block is 32 p.
// 0 s: A and B, 64 p. 1 s: R0's token 1 p: 65. R1 needs nothing. 2 s: R0 is complete: 64; R1's token 1 p: 65;
//   complete: 64 idle.
// 5 s: R2: C and 6 p for 88 tokens: 38 p, 16 are free; B goes: 70 p. 6 s: its token fits (89 of 96);
//   complete: 64 p idle (A, C). R3 hits A, needs 32 p, 16 are free: C goes: 64 p. 7 s: 1 p.
// live tokens: 1,026 + 1,024 at 2 s. live bytes: A, B and R0's 2 tokens. reserved: the pool spans the limit.
// held in p s: 64 + 65 + (idle from 2 to 5) + 38 + 64 = 231. live in token s: 1,024 + 1,025 + 600 + 1,024 = 3,673.
TEST(ReplayFirstTrace, PagedCountsAsWorkedOutByHand) {
  const auto result = replayed(first_trace(), toy_options(ReplayPolicy::paged, p * 80));

  expect_counters(result,
                  {.completed = 4,
                   .refused = 0,
                   .preempted = 0,
                   .preempted_requests = 0,
                   .peak_concurrent = 2,
                   .peak_live_tokens = 2'050,
                   .wait = {},
                   .peak_reserved = p * 80,
                   .peak_committed = p * 70,
                   .peak_live = tokens(1'026),
                   .peak_cached = p * 64,
                   .copied = {},
                   .shared_saved = p * 64,
                   .hit_blocks = 3,
                   .hit_tokens = 1'536,
                   .mapped_blocks = 3,
                   .block_refs = 8,
                   .waste_ratio = 231.0 * 16 / 3'673,
                   .end = seconds(7)});
}

// Limit 16 g; the largest need alone is 4 g + 8 g.
// 0 s: R0 4 g. 1 s: its token doubles 1,024 to 2,048 tokens: 12 g while 1,024 tokens are copied, then 8 g. R1: 4 g,
//   12 g. 2 s: R0 is complete: 4 g. R1's token doubles: 12 g, then 8 g; complete. 5 s: R2 3 g. 6 s: its token doubles to 1,200 tokens, 5 g: 8 g, then 5 g; complete.
//   R3: 4 g. 7 s: 12 g, then 8 g.
// copied: 1,024 + 1,024 + 600 + 1,024 tokens. reserved: 8 g + 4 g at 1 s.
// held in g s: [0,1) 4, [1,2) 12, [5,6) 3, [6,7) 4 = 23.
// live in token s: 1,024 + (1,025 + 1,024) + 600 + 1,024 = 4,697.
TEST(ReplayFirstTrace, ReallocCountsAsWorkedOutByHand) {
  const auto result = replayed(first_trace(), toy_options(ReplayPolicy::realloc, g * 16));

  expect_counters(result,
                  {.completed = 4,
                   .refused = 0,
                   .preempted = 0,
                   .preempted_requests = 0,
                   .peak_concurrent = 2,
                   .peak_live_tokens = 2'050,
                   .wait = {},
                   .peak_reserved = g * 12,
                   .peak_committed = g * 12,
                   .peak_live = tokens(2'050),
                   .peak_cached = {},
                   .copied = tokens(3'672),
                   .shared_saved = {},
                   .hit_blocks = 0,
                   .hit_tokens = 0,
                   .mapped_blocks = 0,
                   .block_refs = 8,
                   .waste_ratio = 23.0 * 256 / 4'697,
                   .end = seconds(7)});
}

// Limit 10 g; the largest need alone is 5 g + 5 g.
// 0 s: R0 4 g. 1 s: its token needs a block of 5 g beside the old one: 9 g, then 5 g. R1: 4 g: 9 g. 2 s: R0's token
//   needs 5 g: 14 g; the latest admission, R1, goes: 10 g, then 5 g. R0 is complete: 0. R1 is back: 4 g. 3 s: 9 g, then
//   5 g; complete. 5 s: R2 3 g. 6 s: 6 g, then 3 g; complete: 0. R3: 4 g. 7 s: 9 g, then 5 g.
// copied: 1,024 + 1,025 + 1,024 + 600 + 1,024 tokens. live tokens: 1,025 + 1,024 at 1 s.
// held in g s: 4 + 9 + 4 + 3 + 4 = 24. live in token s: 1,024 + (1,025 + 1,024) + 1,024 + 600 +
//   1,024 = 5,721.
TEST(ReplayFirstTrace, ConcatCountsAsWorkedOutByHand) {
  const auto result = replayed(first_trace(), toy_options(ReplayPolicy::concat, g * 10));

  expect_counters(result,
                  {.completed = 4,
                   .refused = 0,
                   .preempted = 1,
                   .preempted_requests = 1,
                   .peak_concurrent = 2,
                   .peak_live_tokens = 2'049,
                   .wait = {},
                   .peak_reserved = g * 9,
                   .peak_committed = g * 10,
                   .peak_live = tokens(2'049),
                   .peak_cached = {},
                   .copied = tokens(4'697),
                   .shared_saved = {},
                   .hit_blocks = 0,
                   .hit_tokens = 0,
                   .mapped_blocks = 0,
                   .block_refs = 8,
                   .waste_ratio = 24.0 * 256 / 5'721,
                   .end = seconds(7)});
}

// Limit 5 g: one slot of 1,026 tokens. R0 holds it from 0 to 2 s, R1 from 2 to 3 s, R2 from 5 to 6 s, R3 from 6 to 7 s.
// waits: 0, 1, 0, 0 s. held in g s: 5 slots' seconds of 5 g. live in token s: 1,024 + 1,025 + 1,024 + 600 + 1,024.
TEST(ReplayFirstTrace, ReserveMaxCountsAsWorkedOutByHand) {
  const auto result = replayed(first_trace(), toy_options(ReplayPolicy::reserve_max, g * 5));

  expect_counters(result,
                  {.completed = 4,
                   .refused = 0,
                   .preempted = 0,
                   .preempted_requests = 0,
                   .peak_concurrent = 1,
                   .peak_live_tokens = 1'026,
                   .wait = {.p50 = seconds(0), .p95 = seconds(1), .p99 = seconds(1)},
                   .peak_reserved = g * 5,
                   .peak_committed = g * 5,
                   .peak_live = tokens(1'026),
                   .peak_cached = g * 5,
                   .copied = {},
                   .shared_saved = {},
                   .hit_blocks = 0,
                   .hit_tokens = 0,
                   .mapped_blocks = 0,
                   .block_refs = 8,
                   .waste_ratio = 25.0 * 256 / 4'697,
                   .end = seconds(7)});
}

}  // namespace
}  // namespace memstrata::test
