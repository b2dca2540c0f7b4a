// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "frontend/replay/block_cache.hpp"
#include "frontend/replay/executor.hpp"
#include "frontend/replay/holding.hpp"
#include "frontend/replay/meters.hpp"
#include "frontend/replay/replay_input.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"

namespace memstrata::replay_detail {

/// The discrete event simulation of one policy by the rules R1 to R12. It decides; an executor, if there is one,
/// does to real memory what was decided. Single-threaded; O(log n) per event.
class ReplayEngine {
 public:
  /// `input`, `options` and `executor` outlive the engine; `executor` may be null. `options` are checked and
  /// name a context.
  ReplayEngine(const ReplayInput& input,
               const ReplayOptions& options,
               ReplayPolicy policy,
               ReplayExecutor* executor);

  /// Runs the trace to its end, or until the device is lost: the result is then that of the part. Called once.
  /// Errors: those of the executor; BadReplayOption if the simulated time does not fit 290 years.
  [[nodiscard]] Result<PolicyResult, ReplayError> run(const ReplayProgress& progress);

 private:
  /// What is known of a request over its whole life.
  struct Request {
    std::int64_t first_admission_ns = -1;
    std::uint64_t generated = 0;  ///< Tokens generated so far; kept over a preemption.
    std::uint32_t incarnation = 0;
    std::uint64_t completions_at_preemption = 0;
    bool was_alone = false;  ///< Nothing else ran when it was preempted last.
  };

  /// A request that is admitted and not finished.
  struct Running {
    std::uint64_t sequence = 0;  ///< Order of admission; 0 if the place is free.
    std::uint32_t request = 0;
    std::int64_t ready_ns = 0;
    std::uint64_t generated_before = 0;  ///< Tokens generated before this admission.
    std::uint64_t granted =
        0;  ///< Generated tokens that have room; the last one may not exist yet.
    std::uint64_t capacity = 0;  ///< Tokens of room.
    Bytes held;                  ///< Its own physical bytes.
    Bytes reserved;
  };

  enum class EventKind : std::uint8_t { completion = 0, growth = 1 };

  struct Event {
    std::int64_t time_ns;
    EventKind kind;
    std::uint64_t sequence;
    std::uint32_t place;

    [[nodiscard]] bool operator>(const Event& other) const noexcept {
      if (time_ns != other.time_ns) {
        return time_ns > other.time_ns;
      }
      return kind != other.kind ? kind > other.kind : sequence > other.sequence;
    }
  };

  using Outcome = Result<void, ReplayError>;

  [[nodiscard]] Outcome run_instant();
  void drop_outdated_events();
  [[nodiscard]] std::int64_t next_instant();
  void schedule(std::uint32_t place);
  void pop_event();

  [[nodiscard]] Outcome complete(std::uint32_t place);
  [[nodiscard]] Outcome grow(std::uint32_t place);
  [[nodiscard]] Outcome preempt_latest();
  void arrive();
  [[nodiscard]] Outcome admit_from_queue();
  [[nodiscard]] Result<bool, ReplayError> try_admit(std::uint32_t request);
  [[nodiscard]] Outcome start(std::uint32_t request, std::size_t hits, Bytes held);
  [[nodiscard]] std::int64_t hold_path(std::uint32_t request, std::size_t hits);
  void use(BlockIndex block, std::size_t depth) noexcept;
  void unuse(BlockIndex block, std::size_t depth) noexcept;
  void refuse(std::uint32_t request, Bytes needed);
  [[nodiscard]] Bytes alone(std::uint32_t request) const noexcept;
  [[nodiscard]] Bytes budget() const noexcept;
  void count_hits(std::uint32_t request, std::size_t hits);
  void leave(std::uint32_t place);
  [[nodiscard]] Outcome evict_until(Bytes needed);
  [[nodiscard]] Outcome evict_one();
  [[nodiscard]] Outcome trim_cache();
  [[nodiscard]] bool fits(Bytes bytes) const noexcept;
  [[nodiscard]] Bytes idle_on(std::span<const BlockIndex> path, std::size_t hits) const noexcept;
  void take(Bytes bytes);
  void give(Bytes bytes) noexcept;
  void note();
  [[nodiscard]] std::int64_t after(std::int64_t start_ns,
                                   std::uint64_t tokens,
                                   std::uint64_t per_second);
  [[nodiscard]] std::uint64_t tokens_of(std::uint32_t request) const noexcept;
  [[nodiscard]] std::uint64_t initial_capacity(std::uint32_t request) const noexcept;
  [[nodiscard]] std::uint64_t full_blocks_of(std::uint32_t request) const noexcept;
  [[nodiscard]] Outcome close(const ReplayProgress& progress);
  void report_progress(const ReplayProgress& progress);

  const ReplayInput& input_;
  const ReplayOptions& options_;
  ReplayExecutor* executor_;
  Holding holding_;
  Bytes limit_;
  Bytes withheld_;  // by releases that did not complete
  BlockCache cache_;
  ReplayMeters meters_;
  ReplayState state_;
  PolicyResult result_;

  std::vector<Request> requests_;
  std::vector<Running> running_;
  std::vector<std::uint32_t> free_places_;
  std::vector<Event> events_;  // a heap; entries of places that were left are outdated

  struct Admission {
    std::uint64_t sequence;
    std::uint32_t place;
  };

  std::vector<Admission> admissions_;  // latest last; entries of places that were left are outdated
  std::deque<std::uint32_t> queue_;
  std::vector<std::int64_t> waits_;
  std::size_t next_arrival_ = 0;
  std::uint64_t next_sequence_ = 1;
  std::uint64_t idle_slots_ = 0;
  std::uint64_t preempted_ = 0;  // sequence of the latest preemption
  std::int64_t now_ns_ = 0;
  std::uint64_t last_progress_ = 0;
  bool admission_may_succeed_ = false;
  bool time_overflow_ = false;
  bool device_lost_ = false;
};

}  // namespace memstrata::replay_detail
