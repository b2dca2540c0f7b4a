// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/frontend/replay/geometry.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"

namespace memstrata {

/// Findings of one kind that a report lists; the others are only counted.
inline constexpr std::size_t most_listed = 16;

/// Nearest-rank percentiles of first admission - arrival over the completed requests.
struct ReplayWait {
  std::chrono::nanoseconds p50{0};
  std::chrono::nanoseconds p95{0};
  std::chrono::nanoseconds p99{0};

  friend bool operator==(const ReplayWait&, const ReplayWait&) = default;
};

/// Byte counters of one policy (R11, R12).
struct ReplayBytes {
  Bytes peak_reserved;   ///< Address space.
  Bytes peak_leased;     ///< What the budget was charged.
  Bytes peak_committed;  ///< Physical bytes held.
  Bytes peak_live;    ///< Bytes of the tokens of admitted, unfinished requests; shared tokens once.
  Bytes peak_cached;  ///< The idle part of committed.
  std::optional<Bytes> peak_kernel;  ///< What the kernel showed; nothing in the simulation.
  Bytes copied;                      ///< Bytes moved because the policy moves or splits.
  Bytes shared_saved;  ///< Peak of: shared units counted per request minus counted once.

  friend bool operator==(const ReplayBytes&, const ReplayBytes&) = default;
};

/// What we hold and what the kernel shows, at one instant.
struct KernelSample {
  Bytes committed;
  Bytes kernel;
};

/// Prefix hits (R3, R4).
struct ReplayPrefix {
  std::uint64_t hit_blocks = 0;
  std::uint64_t hit_tokens = 0;
  std::uint64_t mapped_blocks = 0;  ///< Hit blocks that were shared without copying.
  std::uint64_t block_refs =
      0;  ///< Block references of the requests that were admitted, partly filled ones too.
  double hit_ratio_blocks = 0;  ///< `hit_blocks` / `block_refs`, or 0.
  bool has_ids = false;         ///< Whether the trace has block ids at all.
  bool partial =
      false;  ///< Whether sliding layers stay private, so that a hit is a partial one (R16).

  friend bool operator==(const ReplayPrefix&, const ReplayPrefix&) = default;
};

/// Wall time of one kind of call, nearest rank.
struct OpTimes {
  std::uint64_t calls = 0;
  std::uint64_t p50_ns = 0;
  std::uint64_t p99_ns = 0;
  std::uint64_t max_ns = 0;
};

/// Wall times of the library's calls on real memory; fills and checks are outside.
struct ReplayOps {
  OpTimes reserve;
  OpTimes commit;
  OpTimes grow;
  OpTimes share;
  OpTimes release;
};

/// One place where memory did not hold what had been written.
struct ReplayMismatch {
  std::uint64_t request;               ///< Number of the request in the selection, from 0.
  std::uint64_t incarnation;           ///< How often the request had been preempted before.
  std::optional<std::uint64_t> block;  ///< Trace id of the block, or nothing for private bytes.
  Bytes offset;                        ///< In the owner: the block, or the request's private bytes.
  Bytes sequence_offset;               ///< In the request's own addresses.
  std::uint64_t expected;              ///< The 8 bytes that were written.
  std::uint64_t found;                 ///< The 8 bytes that were read.

  friend bool operator==(const ReplayMismatch&, const ReplayMismatch&) = default;
};

/// Outcome of `--verify` and `--corrupt`.
struct ReplayVerify {
  Bytes bytes_checked;
  std::uint64_t mismatches = 0;  ///< 8-byte words that differ.
  std::uint64_t writes = 0;      ///< Writes so far, as `--corrupt` counts them.
  bool corrupted =
      false;  ///< Whether the bit of `--corrupt` was flipped in memory that was read again.
  std::vector<ReplayMismatch> first;  ///< The first mismatches, at most `most_listed`.

  friend bool operator==(const ReplayVerify&, const ReplayVerify&) = default;
};

/// What a replay holds in memory; each of them is one owned allocation.
enum class ReplayAllocationKind : std::uint8_t {
  sequence,  ///< The buffer of a sequence's full-attention layers.
  sliding,   ///< The buffer of its sliding layers.
  block,     ///< A prompt block that sequences map.
  pool,      ///< The address range of all pages.
};

/// The stable name: `sequence`, `sliding`, `block`, `pool`.
[[nodiscard]] std::string_view to_string(ReplayAllocationKind kind) noexcept;

/// An allocation that was given up and not released: nobody uses it, and its bytes stay charged.
struct ReplayResidual {
  std::uint64_t release;  ///< Number of the release, from 1.
  ReplayAllocationKind kind;
  std::uint64_t request;  ///< The request that it was made for, from 0; of a pool 0.
  AllocationReleaseState state;
  QuarantineReason reason;
  DeviceAddress address;  ///< Of a block: a number that is no address.
  Bytes bytes;            ///< Of the allocation: address space, not memory.
  Bytes retained;         ///< What the binding registry says is not released, of `bytes`.
  Bytes charged;          ///< What the budget is charged for it.
};

/// The releases of a run on real memory. All zero in the simulation.
struct ReplayReleases {
  std::uint64_t queued = 0;       ///< Given to the queue.
  std::uint64_t executed = 0;     ///< Allocator called, after the device step that was under way.
  std::uint64_t released = 0;     ///< Of these: complete.
  std::uint64_t quarantined = 0;  ///< Of the queued ones: not released.
  std::uint64_t reconciled =
      0;  ///< Of the quarantined ones: given back by the kernel later after all.
  std::uint64_t injected = 0;  ///< Faults of `--inject` that happened.
  bool device_lost = false;    ///< The run ended early.
  /// Allocations that were in use when the device was lost, and what they are charged.
  std::uint64_t live = 0;
  Bytes live_charged;
  Bytes residual_charged;                 ///< What everything in quarantine is charged at the end.
  std::vector<ReplayResidual> residuals;  ///< The first `most_listed` of what is in quarantine.
};

/// A request that can never fit (R9).
struct RefusedRequest {
  std::uint64_t request;  ///< Number in the selection, from 0.
  Bytes needed;           ///< The policy's largest need for this request alone.
  Bytes limit;            ///< Less what is in quarantine.

  friend bool operator==(const RefusedRequest&, const RefusedRequest&) = default;
};

/// The state at the end of one interval of simulated time, with the maxima inside it.
struct TimeSample {
  std::chrono::nanoseconds end{0};
  Bytes live;                    ///< Largest in the interval.
  Bytes committed;               ///< Largest in the interval.
  Bytes cached;                  ///< At its end.
  Bytes reserved;                ///< Largest in the interval.
  std::uint64_t queued = 0;      ///< Largest in the interval.
  std::uint64_t running = 0;     ///< Largest in the interval.
  std::uint64_t hit_blocks = 0;  ///< Since the start.
  std::uint64_t block_refs = 0;  ///< Since the start.

  friend bool operator==(const TimeSample&, const TimeSample&) = default;
};

/// Samples of equal intervals, oldest first; at most `most_samples`, whatever the length of the run.
struct TimeSeries {
  static constexpr std::size_t most_samples = 1024;

  std::chrono::nanoseconds interval{0};
  std::vector<TimeSample> samples;

  friend bool operator==(const TimeSeries&, const TimeSeries&) = default;
};

/// What one policy did with the trace. Names and units follow the report.
struct PolicyResult {
  ReplayPolicy policy = ReplayPolicy::virtual_memory;
  std::uint64_t completed = 0;
  std::uint64_t refused = 0;
  std::uint64_t preempted = 0;           ///< Events.
  std::uint64_t preempted_requests = 0;  ///< Requests that were preempted at least once.
  std::uint64_t peak_concurrent = 0;
  std::uint64_t peak_live_tokens = 0;
  ReplayWait wait;
  ReplayBytes bytes;
  std::vector<KernelSample> kernel_samples;
  double waste_ratio =
      1;  ///< Integral of (committed - cached) / integral of live; 1 if nothing was ever live.
  ReplayPrefix prefix;
  ReplayOps op_ns;
  ReplayVerify verify;
  ReplayReleases releases;
  /// Broken promises: committed above the limit, books and memory that disagree, a kernel sample that is off by
  /// more than 2 % and 8 MiB, bytes that are held at the end. 0 in a sound run.
  std::uint64_t violations = 0;
  std::vector<std::string> violation_texts;  ///< The first `most_listed`, one sentence each.
  /// What the budget is charged after everything was released; after the loss of a device, at the loss.
  Bytes final_leased;
  std::vector<RefusedRequest> refusals;  ///< The first `most_listed`.
  TimeSeries series;
  std::chrono::nanoseconds end{0};   ///< Simulated time of the last event.
  std::chrono::nanoseconds wall{0};  ///< Real time of the run.
};

/// The answer of a replay.
struct ReplayReport {
  ReplayOptions options;  ///< As run: context filled in.
  std::uint64_t requests = 0;
  bool has_ids = false;                ///< A trace without block ids has no hits.
  std::vector<LayoutFigures> layouts;  ///< All three, by arithmetic over the selection's lengths.
  std::vector<PolicyResult> policies;  ///< In the order asked.
};

}  // namespace memstrata
