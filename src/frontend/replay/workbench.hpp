// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "frontend/replay/call_recorder.hpp"
#include "frontend/replay/executor.hpp"
#include "frontend/replay/kv_pattern.hpp"
#include "frontend/replay/replay_input.hpp"
#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/replay/replay_report.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "memstrata/structure/physical_charge.hpp"

namespace memstrata::replay_detail {

/// One incarnation of a request in memory.
struct Sequence {
  std::uint64_t request = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t tokens = 0;
  std::uint64_t room = 0;            ///< Tokens of room at admission.
  std::span<const BlockIndex> path;  ///< Its full prompt blocks.
};

/// Kinds of library calls whose times are reported.
enum class TimedOp : std::uint8_t { reserve, commit, grow, share, release };

inline constexpr std::size_t timed_op_count = 5;

/// The bit that `--corrupt` flips: where it is now.
struct Corruption {
  enum class State : std::uint8_t { waiting, planted, seen };

  State state = State::waiting;
  std::optional<BlockIndex> block;  ///< Planted in a block, else in the private bytes of `request`.
  std::uint64_t request = 0;
};

/// What the real execution of every policy needs: budget, backings, pattern, clocks and the figures that come of
/// them. Single-threaded.
class Workbench {
 public:
  /// `input` and `options` outlive it. `calls` is the kernel or a double of it.
  Workbench(const ReplayInput& input,
            const ReplayOptions& options,
            std::shared_ptr<host::SystemCalls> calls);

  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;
  Workbench(Workbench&&) = delete;
  Workbench& operator=(Workbench&&) = delete;
  ~Workbench() = default;

  // --- Budget and memory ---

  [[nodiscard]] const ReplayOptions& options() const noexcept { return options_; }

  [[nodiscard]] const std::shared_ptr<MemoryGovernor>& governor() const noexcept {
    return governor_;
  }

  /// What every lease is taken for; the holder is the request or, for a prefix, the one that made it.
  [[nodiscard]] static LeaseTerms terms(std::uint64_t holder) noexcept;

  /// A backing of this granule whose memory counts in the kernel's figure from now on.
  /// Errors: those of the backing.
  [[nodiscard]] Result<std::shared_ptr<host::PageBacking>, VirtualMemoryError> make_backing(
      Bytes granule);

  /// Bytes leased now; also raises the peak.
  Bytes note_leased() noexcept;

  /// Compares the books with `committed` and the limit, and asks the kernel if a new peak calls for it.
  void observe(Bytes committed);

  /// Asks the kernel now.
  void sample_kernel();

  /// Everything was given up: the last figures. `left` is what is in quarantine or was lost with the device.
  void end(Bytes left);

  /// The context of the lost device has ended, or `failure` says what went wrong; nothing is left.
  void check_end_of_lost_device(std::optional<std::string> failure);

  void set_releases(ReplayReleases releases) { figures_.releases = std::move(releases); }

  // --- Content ---

  /// Writes `bytes` of the full-attention part of the sequence to `to`, each byte by its owner.
  void write_full(const Sequence& sequence, ByteRange bytes, std::byte* to);

  /// Writes tokens `[first, last)` of the sliding layers into their ring at `ring`.
  void write_sliding(const Sequence& sequence,
                     std::uint64_t first,
                     std::uint64_t last,
                     std::byte* ring);

  /// Copies live bytes.
  void copy(std::byte* to, const std::byte* from, Bytes size);

  /// Reads and checks `bytes` of the full-attention part.
  void check_full(const Sequence& sequence, ByteRange bytes, const std::byte* from);

  /// Reads and checks tokens `[first, last)` of the sliding layers.
  void check_sliding(const Sequence& sequence,
                     std::uint64_t first,
                     std::uint64_t last,
                     const std::byte* ring);

  /// A request's own bytes are gone unread, and its prompt blocks with them if they are not shared; or a block is
  /// gone. A bit that was planted there is planted again.
  void lost_request(std::uint64_t request, bool blocks_stay) noexcept;
  void lost_block(BlockIndex block) noexcept;

  [[nodiscard]] Bytes full_token() const noexcept { return full_token_; }

  [[nodiscard]] Bytes sliding_token() const noexcept { return sliding_token_; }

  [[nodiscard]] std::uint64_t window() const noexcept { return window_; }

  [[nodiscard]] Bytes block_bytes() const noexcept { return block_; }

  // --- Figures ---

  /// Time that is not work: checks, samples, reports.
  [[nodiscard]] std::chrono::nanoseconds idle_time() const noexcept { return idle_time_; }

  void add_idle(std::chrono::nanoseconds time) noexcept { idle_time_ += time; }

  void add_time(TimedOp op, std::chrono::nanoseconds time);

  void violation(std::string text);

  [[nodiscard]] ExecutionFigures figures();

  /// Writes the recording, if one is wanted, with the time of the work. Errors: RecordingFailed.
  [[nodiscard]] Result<void, ReplayError> write_recording(std::chrono::nanoseconds worked);

 private:
  void written(const Sequence& sequence,
               std::optional<BlockIndex> block,
               const RecordedStep& step,
               std::byte* to,
               std::uint64_t checksum);
  void found(const Sequence& sequence,
             std::optional<BlockIndex> block,
             const KvCheck& check,
             Bytes owner_to_sequence);

  const ReplayInput& input_;
  const ReplayOptions& options_;
  std::shared_ptr<CallRecorder> recorder_;  // null without a recording
  std::shared_ptr<host::SystemCalls> calls_;
  std::shared_ptr<MemoryGovernor> governor_;
  std::vector<std::shared_ptr<host::PageBacking>> backings_;
  KvPattern full_;
  KvPattern sliding_;
  Bytes full_row_;
  Bytes sliding_row_;
  Bytes full_token_;
  Bytes sliding_token_;
  Bytes block_;
  std::uint64_t window_;
  ExecutionFigures figures_;
  Corruption corruption_;
  std::array<std::vector<std::uint64_t>, timed_op_count> times_;
  std::chrono::nanoseconds idle_time_{0};
  std::uint64_t checksum_ = 0;
  Bytes peak_leased_;
  Bytes peak_kernel_;
  Bytes last_sampled_;
};

/// Adds the time of a scope to the figures of one kind of call.
class OpTimer {
 public:
  OpTimer(Workbench& bench, TimedOp op) noexcept
      : bench_(bench), start_(steady_clock().now()), op_(op) {}

  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;
  OpTimer(OpTimer&&) = delete;
  OpTimer& operator=(OpTimer&&) = delete;

  ~OpTimer() { bench_.add_time(op_, steady_clock().now() - start_); }

 private:
  Workbench& bench_;
  std::chrono::nanoseconds start_;
  TimedOp op_;
};

/// Counts the time of a scope as no work.
class IdleTimer {
 public:
  explicit IdleTimer(Workbench& bench) noexcept : bench_(bench), start_(steady_clock().now()) {}

  IdleTimer(const IdleTimer&) = delete;
  IdleTimer& operator=(const IdleTimer&) = delete;
  IdleTimer(IdleTimer&&) = delete;
  IdleTimer& operator=(IdleTimer&&) = delete;

  ~IdleTimer() { bench_.add_idle(steady_clock().now() - start_); }

 private:
  Workbench& bench_;
  std::chrono::nanoseconds start_;
};

}  // namespace memstrata::replay_detail
