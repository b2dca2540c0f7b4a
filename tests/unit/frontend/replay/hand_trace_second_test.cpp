// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <vector>

#include "replay_rig.hpp"

namespace memstrata::test {
namespace {

using std::chrono::seconds;

// Prefill at 512 tokens per second, a token takes 1 s. A, B, D, E are full blocks; small letters are partly filled.
//   R0 at 0 s: 512 tokens [A], 3 generated.         R1 at 0 s: 1,024 [A B], 1 generated.
//   R2 at 0 s: 700 [A x], 2 generated.              R3 at 0 s: 1,500 [D E y], 1 generated.
//   R4 at 0.5 s: 100 [z], 1 generated: it would often fit but must not overtake R3.
std::vector<TraceRecord> second_trace() {
  return {record(seconds(0), 512, 3, {1}),
          record(seconds(0), 1'024, 1, {1, 2}),
          record(seconds(0), 700, 2, {1, 3}),
          record(seconds(0), 1'500, 1, {4, 5, 6}),
          record(milliseconds(500), 100, 1, {7})};
}

ReplayOptions second_options(ReplayPolicy policy, Bytes limit) {
  ReplayOptions options = toy_options(policy, limit);
  options.prefill_tps = 512;
  return options;
}

/// Exact times such as 4.3671875 s: the prefill of 188 tokens takes 0.3671875 s, of 700 1.3671875 s, of 1,500
/// 2.9296875 s, of 100 0.1953125 s, of 701 1.369140625 s.
nanoseconds at(double time) {
  return nanoseconds(static_cast<std::int64_t>(time * 1e9));
}

// Limit 6 g; R3 alone needs exactly that.
// 0 s: R0 makes A (2 g, ready at 1 s). R1 hits A, makes B: 4 g, ready at 1 s. R2 hits A, 1 g for its 188 tokens: 5 g; it
//   would be ready at 0.367 s but A is not before 1 s. R3 needs 6 g: it waits, and R4 behind it.
// 2 s: R0's token 1 g: 6 g. R1's token 1 g: nothing is idle, the latest admission, R2, goes: 5 g, then 6 g. R1 is
//   complete: 5 g, B idle. R2 is back with a hit on A: 6 g, ready at 2.367 s.
// 3 s, 4 s: R0's tokens fit; it is complete: 5 g. 3.367 s and 4.367 s: R2's tokens fit; it is complete: 4 g idle. R3
//   now fits if all goes: 6 g. It is ready at 7.297 s and complete at 8.297 s: 4 g idle. R4: 1 g, complete at 9.492 s.
// hits: R1 1, R2 1 (its second admission does not count). saved: A for three, 2 x 2 g.
// live tokens: 513 + 1,024 + 700 at 2 s. live bytes: R3's 1,501 tokens. reserved: three times the context of 1,501.
// held in g s: 5 x 2 + 4 x 2 + 3 x 0.3671875 + 6 x 3.9296875 + 1 x 1.1953125 = 43.875.
// live in token s: 1,212 x 2 + 701 + 702 x 0.3671875 + 703 x 0.6328125 + 701 x 0.3671875 + 1,500 x 3.9296875 +
//   100 x 1.1953125 = 10,099.09375.
TEST(ReplaySecondTrace, VirtualCountsAsWorkedOutByHand) {
  const auto result = replayed(second_trace(), second_options(ReplayPolicy::virtual_memory, g * 6));

  expect_counters(result,
                  {.completed = 5,
                   .refused = 0,
                   .preempted = 1,
                   .preempted_requests = 1,
                   .peak_concurrent = 3,
                   .peak_live_tokens = 2'237,
                   .wait = {.p50 = seconds(0), .p95 = at(7.796875), .p99 = at(7.796875)},
                   .peak_reserved = g * 18,
                   .peak_committed = g * 6,
                   .peak_live = tokens(1'501),
                   .peak_cached = g * 4,
                   .copied = {},
                   .shared_saved = g * 4,
                   .hit_blocks = 2,
                   .hit_tokens = 1'024,
                   .mapped_blocks = 2,
                   .block_refs = 9,
                   .waste_ratio = 43.875 * 256 / 10'099.09375,
                   .end = at(9.4921875)});
}

// Limit 94 p; R3 alone needs exactly that (64 p and 30 p for 477 tokens).
// 0 s: A 32 p, B 32 p, R2's 188 tokens 12 p: 76 p. 2 s: R0 and R1 take 1 p each: 78 p; R1 is complete: 77 p, B
//   idle; R2's 189 tokens fit. R3 needs 94. 3 s: R2's 190 tokens fit, it is complete: 65 p. 4 s: R0 is complete: 64 p idle;
//   all goes, R3: 94 p, ready at 6.9296875 s, complete at 7.9296875 s: 64 p idle. R4: 7 p, complete at 9.125 s.
// waits: 0, 0, 0, 4, 7.4296875 s. live tokens: 513 + 1,025 + 700 at 2 s.
// held in p s: 76 x 2 + 45 + 33 + 94 x 3.9296875 + 7 x 1.1953125 = 607.7578125.
// live in token s: 1,212 x 2 + 702 + 514 + 1,500 x 3.9296875 + 100 x 1.1953125 = 9,654.0625.
TEST(ReplaySecondTrace, PagedCountsAsWorkedOutByHand) {
  const auto result = replayed(second_trace(), second_options(ReplayPolicy::paged, p * 94));

  expect_counters(result,
                  {.completed = 5,
                   .refused = 0,
                   .preempted = 0,
                   .preempted_requests = 0,
                   .peak_concurrent = 3,
                   .peak_live_tokens = 2'238,
                   .wait = {.p50 = seconds(0), .p95 = at(7.4296875), .p99 = at(7.4296875)},
                   .peak_reserved = p * 94,
                   .peak_committed = p * 94,
                   .peak_live = tokens(1'501),
                   .peak_cached = p * 64,
                   .copied = {},
                   .shared_saved = p * 64,
                   .hit_blocks = 2,
                   .hit_tokens = 1'024,
                   .mapped_blocks = 2,
                   .block_refs = 9,
                   .waste_ratio = 607.7578125 * 16 / 9'654.0625,
                   .end = at(9.125)});
}

// Limit 18 g; R3 alone needs 6 g + 12 g.
// 0 s: R0 2 g (ready at 1 s), R1 4 g (2 s), R2 3 g (1.367 s), R3 6 g (2.930 s): 15 g. 0.5 s: R4 1 g: 16 g.
// 1.695 s: R4's token doubles 100 to 200 tokens: 17 g, then 16 g; it is complete: 15 g.
// 2 s: R0 doubles to 1,024 tokens, 4 g: 19 g, so the latest, R3, goes: 9 g; 13 g, then 11 g. 2.367 s: R2 doubles to
//   1,400 tokens, 6 g: 17 g, then 14 g. 3 s: R0's token fits; R1 doubles to 2,048, 8 g: 22 g, so R2 goes with 1 token
//   generated: 8 g; 16 g, then 12 g; R1 is complete: 4 g. R2 is back with 701 tokens: 3 g, ready at 4.369 s; R3 too:
//   6 g: 13 g, ready at 5.930 s. 4 s: R0 is complete: 9 g. 5.369 s: R2 doubles to 1,402, 6 g: 15 g, then 12 g; complete:
//   6 g. 6.930 s: R3 doubles: 18 g, then 12 g; complete.
// copied tokens: 100 + 512 + 700 + 1,024 + 701 + 1,500 = 4,537. live tokens: 3,836 + R4's at 1.695 s.
// held in g s: 15 x 0.5 + 16 x 1.1953125 + 15 x 0.3046875 + 11 x 0.3671875 + 14 x 0.6328125 + 13 +
//   9 x 1.369140625 + 6 x 1.560546875 = 78.779296875.
// live in token s: 3,736 x 0.5 + 3,836 x 1.1953125 + 3,736 x 0.3046875 + 2,237 x 0.3671875 + 2,238 x 0.6328125 + 2,715
//   + 2,201 x 1.369140625 + 1,500 x 1.560546875 = 17,898.462890625.
TEST(ReplaySecondTrace, ReallocCountsAsWorkedOutByHand) {
  const auto result = replayed(second_trace(), second_options(ReplayPolicy::realloc, g * 18));

  expect_counters(result,
                  {.completed = 5,
                   .refused = 0,
                   .preempted = 2,
                   .preempted_requests = 2,
                   .peak_concurrent = 5,
                   .peak_live_tokens = 3'837,
                   .wait = {},
                   .peak_reserved = g * 16,
                   .peak_committed = g * 18,
                   .peak_live = tokens(3'837),
                   .peak_cached = {},
                   .copied = tokens(4'537),
                   .shared_saved = {},
                   .hit_blocks = 0,
                   .hit_tokens = 0,
                   .mapped_blocks = 0,
                   .block_refs = 9,
                   .waste_ratio = 78.779296875 * 256 / 17'898.462890625,
                   .end = at(6.9296875)});
}

// Limit 12 g; R3 alone needs 6 g + 6 g.
// 0 s: R0 2 g, R1 4 g, R2 3 g: 9 g; R3 waits. 2 s: R0's token: 12 g, then 10 g. 2.367 s: R2's token asks for 3 g, 13 g:
//   R2 itself, the latest, goes: 7 g. 3 s: R0: 10 g, then 7 g. R1: 12 g, then 8 g; complete: 3 g. R2 is back: 6 g, ready
//   at 4.367 s. R3: 12 g, ready at 5.930 s. 4 s: R0 asks for 3 g: R3 goes: 6 g; 9 g, then 6 g; complete: 3 g. R3 is back:
//   9 g, ready at 6.930 s. R4: 10 g, ready at 4.195 s. 5.195 s: R4: 11 g, then 10 g; complete: 9 g. 5.367 s and
//   6.367 s: R2: 12 g, then 9 g; complete: 6 g. 7.930 s: R3: 12 g, then 6 g; complete.
// waits: 0, 0, 0, 3, 3.5 s. live tokens: 514 + 700 + 1,500 at 3 s. reserved: 3 g + 3 g + 6 g at 3 s.
// copied tokens: 512 + 513 + 1,024 + 514 + 100 + 700 + 701 + 1,500 = 5,564.
// held in g s: 9 x 2 + 10 x 0.3671875 + 7 x 0.6328125 + 12 + 10 x 1.1953125 + 9 x 0.171875 + 9 + 6 x 1.5625 =
//   69.9765625.
// live in token s: 2,236 x 2 + 2,237 x 0.3671875 + 1,537 x 0.6328125 + 2,714 + 2,300 x 1.1953125 + 2,200 x 0.171875 +
//   2,201 + 1,500 x 1.5625 = 16,652.125.
TEST(ReplaySecondTrace, ConcatCountsAsWorkedOutByHand) {
  const auto result = replayed(second_trace(), second_options(ReplayPolicy::concat, g * 12));

  expect_counters(result,
                  {.completed = 5,
                   .refused = 0,
                   .preempted = 2,
                   .preempted_requests = 2,
                   .peak_concurrent = 3,
                   .peak_live_tokens = 2'714,
                   .wait = {.p50 = seconds(0), .p95 = at(3.5), .p99 = at(3.5)},
                   .peak_reserved = g * 12,
                   .peak_committed = g * 12,
                   .peak_live = tokens(2'714),
                   .peak_cached = {},
                   .copied = tokens(5'564),
                   .shared_saved = {},
                   .hit_blocks = 0,
                   .hit_tokens = 0,
                   .mapped_blocks = 0,
                   .block_refs = 9,
                   .waste_ratio = 69.9765625 * 256 / 16'652.125,
                   .end = at(7.9296875)});
}

// Limit 12 g: two slots of 1,501 tokens, 6 g each.
// R0 holds one from 0 to 4 s, then R3 until 7.930 s. R1 holds the other from 0 to 3 s, R2 from 3 s to 6.367 s, R4 until
// 7.563 s. waits: 0, 0, 3, 4, 5.8671875 s. live tokens: R2's 702 + R3's 1,500 at 6.367 s.
// held in g s: 6 x (7.9296875 + 7.5625) = 92.953125.
// live in token s: 1,536 x 2 + 1,537 + 1,214 + 2,200 x 1.3671875 + 2,201 + 1,600 x 1.1953125 + 1,500 x 0.3671875 =
//   13,495.09375.
TEST(ReplaySecondTrace, ReserveMaxCountsAsWorkedOutByHand) {
  const auto result = replayed(second_trace(), second_options(ReplayPolicy::reserve_max, g * 12));

  expect_counters(result,
                  {.completed = 5,
                   .refused = 0,
                   .preempted = 0,
                   .preempted_requests = 0,
                   .peak_concurrent = 2,
                   .peak_live_tokens = 2'202,
                   .wait = {.p50 = seconds(3), .p95 = at(5.8671875), .p99 = at(5.8671875)},
                   .peak_reserved = g * 12,
                   .peak_committed = g * 12,
                   .peak_live = tokens(2'202),
                   .peak_cached = g * 12,
                   .copied = {},
                   .shared_saved = {},
                   .hit_blocks = 0,
                   .hit_tokens = 0,
                   .mapped_blocks = 0,
                   .block_refs = 9,
                   .waste_ratio = 92.953125 * 256 / 13'495.09375,
                   .end = at(7.9296875)});
}

}  // namespace
}  // namespace memstrata::test
