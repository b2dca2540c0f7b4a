// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <vector>

#include "replay_rig.hpp"

namespace memstrata::test {
namespace {

using std::chrono::seconds;

// Prefill takes no time, 256 tokens per second, so that "t" = 1/256 s is one token. B to F are full blocks.
//   R0 at 0 s: 256 tokens [a], 512 generated.      R1 at 0 s: 512 [B], 256 generated.
//   R2 at 0.25 s: 2,048 [C D E F], 1 generated: it can never fit.
//   R3 at 0.5 s: 512 [B], nothing generated: a whole-prompt hit that is complete at once.
std::vector<TraceRecord> third_trace() {
  return {record(seconds(0), 256, 512, {1}),
          record(seconds(0), 512, 256, {2}),
          record(milliseconds(250), 2'048, 1, {3, 4, 5, 6}),
          record(milliseconds(500), 512, 0, {2})};
}

ReplayOptions third_options(ReplayPolicy policy, Bytes limit) {
  ReplayOptions options = toy_options(policy, limit);
  options.decode_tps = 256;
  return options;
}

// Tokens that exist times t, shared ones once: R0 256 + k for k = 0 to 511: 261,888. R1 from 512 on, 256 tokens:
// 512 x 256 + 32,640 = 163,712.
constexpr double live_of_r0 = 261'888;
constexpr double live_of_r1 = 163'712;

// Limit 4 g.
// 0 s: R0 1 g, R1 makes B: 3 g. 1 t: R0's token 1 g: 4 g. R1's token 1 g: R1 itself, the latest, goes: B idle. It may
//   not come back before a completion. 64 t: R2 needs 9 g alone: refused. 128 t: R3 waits behind R1. 257 t: R0's 513th
//   token 1 g: B goes: 3 g. 2 s: R0 is complete: 0. R1 makes B again, 2 g; R3 hits it, needs nothing and is complete.
//   1 t later: R1's token 1 g: 3 g. 3 s: complete.
// waits: 0, 0, 1.5 s. reserved: two times the context of 2,049 tokens, 9 g. saved: B for R1 and R3.
// live tokens: 512 + 512 at 2 s. live bytes: 257 + 512 tokens at 1 t.
// held in g t: 3 + 256 x 2 + 255 x 3 + 2 + 255 x 3 = 2,047. live in token t: R0, R1's 512 for 1 t, R1 again.
TEST(ReplayThirdTrace, VirtualCountsAsWorkedOutByHand) {
  const auto result = replayed(third_trace(), third_options(ReplayPolicy::virtual_memory, g * 4));

  expect_counters(
      result,
      {.completed = 3,
       .refused = 1,
       .preempted = 1,
       .preempted_requests = 1,
       .peak_concurrent = 2,
       .peak_live_tokens = 1'024,
       .wait = {.p50 = seconds(0), .p95 = milliseconds(1'500), .p99 = milliseconds(1'500)},
       .peak_reserved = g * 18,
       .peak_committed = g * 4,
       .peak_live = tokens(769),
       .peak_cached = g * 2,
       .copied = {},
       .shared_saved = g * 2,
       .hit_blocks = 1,
       .hit_tokens = 512,
       .mapped_blocks = 1,
       .block_refs = 3,
       .waste_ratio = 2'047.0 * 256 / (live_of_r0 + 512 + live_of_r1),
       .end = seconds(3)});
  ASSERT_EQ(result.refusals.size(), 1U);
  EXPECT_EQ(result.refusals.front(),
            (RefusedRequest{.request = 2, .needed = g * 9, .limit = g * 4}));
}

// Limit 64 p; B is 32 p.
// 0 s: R0 16 p, B: 48 p. After k tokens of both: 48 + 2 x ceil(k / 16) p, which fills the limit from k = 113 on. 128 t:
//   R3 hits B and is complete at once. 129 t: R0's token asks for 1 p: R1, the latest, goes with 128 tokens generated:
//   B idle. R0 takes 16 + ceil(k / 16) p; 257 t: B goes. 2 s: R0 is complete. R1 is back with 640 tokens: 40 p, and
//   complete 128 t later.
// live tokens: 384 + 640 + 512 at 128 t; live bytes: B once.
// held in p t: k = 0 to 128: 129 x 48 + 2 x 576 = 7,344; k = 129 to 511: 383 x 16 + 7,840 = 13,968; then 128 x 40 + 568
//   = 5,688: 27,000.
// live in token t: R0; R1 512 + k for k = 0 to 128: 74,304; R1 again 640 + m for m = 0 to 127: 90,048.
TEST(ReplayThirdTrace, PagedCountsAsWorkedOutByHand) {
  const auto result = replayed(third_trace(), third_options(ReplayPolicy::paged, p * 64));

  expect_counters(result,
                  {.completed = 3,
                   .refused = 1,
                   .preempted = 1,
                   .preempted_requests = 1,
                   .peak_concurrent = 3,
                   .peak_live_tokens = 1'536,
                   .wait = {},
                   .peak_reserved = p * 64,
                   .peak_committed = p * 64,
                   .peak_live = tokens(1'024),
                   .peak_cached = p * 32,
                   .copied = {},
                   .shared_saved = p * 32,
                   .hit_blocks = 1,
                   .hit_tokens = 512,
                   .mapped_blocks = 1,
                   .block_refs = 3,
                   .waste_ratio = 27'000.0 * 16 / (live_of_r0 + 74'304 + 90'048),
                   .end = milliseconds(2'500)});
}

// Limit 6 g: R0 alone needs 2 g + 4 g, R1 the same, R2 8 g + 16 g.
// 0 s: R0 1 g, R1 2 g. 1 t: R0 doubles to 512 tokens: 5 g, then 4 g. R1 asks for 4 g: R1 itself goes: 2 g. R3 waits
//   behind it. 257 t: R0 doubles to 1,024: 6 g, then 4 g. 2 s: complete: 0. R1 2 g, R3 2 g and complete. 1 t later: R1
//   doubles: 6 g, then 4 g. 3 s: complete.
// copied tokens: 256 + 512 + 512. held in g t: 3 + 256 x 2 + 255 x 4 + 2 + 255 x 4 = 2,557.
TEST(ReplayThirdTrace, ReallocCountsAsWorkedOutByHand) {
  const auto result = replayed(third_trace(), third_options(ReplayPolicy::realloc, g * 6));

  expect_counters(
      result,
      {.completed = 3,
       .refused = 1,
       .preempted = 1,
       .preempted_requests = 1,
       .peak_concurrent = 2,
       .peak_live_tokens = 1'024,
       .wait = {.p50 = seconds(0), .p95 = milliseconds(1'500), .p99 = milliseconds(1'500)},
       .peak_reserved = g * 4,
       .peak_committed = g * 6,
       .peak_live = tokens(1'024),
       .peak_cached = {},
       .copied = tokens(1'280),
       .shared_saved = {},
       .hit_blocks = 0,
       .hit_tokens = 0,
       .mapped_blocks = 0,
       .block_refs = 3,
       .waste_ratio = 2'557.0 * 256 / (live_of_r0 + 512 + live_of_r1),
       .end = seconds(3)});
}

// Limit 6 g: R0 and R1 alone need 3 g + 3 g, R2 8 g + 9 g.
// 1 t: R0: 5 g, then 4 g; R1 asks for 3 g: R1 itself goes: 2 g. R0 then holds 2 g, from its 257th token on 3 g, and 6 g
//   for the moment of a copy. 2 s: R1 2 g, R3 2 g and complete. Then R1 3 g.
// copied tokens: R0 255 + k for k = 1 to 512: 261,888; R1 511 + m for m = 1 to 256: 163,712: each token that ever
//   existed for 1 t. held in g t: 3 + 256 x 2 + 255 x 3 + 2 + 255 x 3 = 2,047.
TEST(ReplayThirdTrace, ConcatCountsAsWorkedOutByHand) {
  const auto result = replayed(third_trace(), third_options(ReplayPolicy::concat, g * 6));

  expect_counters(
      result,
      {.completed = 3,
       .refused = 1,
       .preempted = 1,
       .preempted_requests = 1,
       .peak_concurrent = 2,
       .peak_live_tokens = 1'024,
       .wait = {.p50 = seconds(0), .p95 = milliseconds(1'500), .p99 = milliseconds(1'500)},
       .peak_reserved = g * 4,
       .peak_committed = g * 6,
       .peak_live = tokens(1'024),
       .peak_cached = {},
       .copied = tokens(261'888 + 163'712),
       .shared_saved = {},
       .hit_blocks = 0,
       .hit_tokens = 0,
       .mapped_blocks = 0,
       .block_refs = 3,
       .waste_ratio = 2'047.0 * 256 / (live_of_r0 + 512 + live_of_r1),
       .end = seconds(3)});
}

// Limit 8 g: a slot of 2,049 tokens is 9 g, so nobody ever fits. The last arrival ends the run; nothing was live.
TEST(ReplayThirdTrace, ReserveMaxCountsAsWorkedOutByHand) {
  const auto result = replayed(third_trace(), third_options(ReplayPolicy::reserve_max, g * 8));

  expect_counters(result, {.refused = 4, .waste_ratio = 1, .end = milliseconds(500)});
  ASSERT_EQ(result.refusals.size(), 4U);
  EXPECT_EQ(result.refusals.front(),
            (RefusedRequest{.request = 0, .needed = g * 9, .limit = g * 8}));
}

}  // namespace
}  // namespace memstrata::test
