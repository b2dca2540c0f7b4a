// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "memstrata/core/check.hpp"
#include "memstrata/core/lifecycle.hpp"

namespace memstrata::detail {

/// What a mechanism is doing, at one instant.
struct GateFigures {
  MechanismLifecycle lifecycle;
  std::uint32_t
      calls;  ///< Calls of the allocator, its capabilities or a view operation that have not ended.
  std::uint32_t queued;  ///< Prepared releases that are not settled.
  std::uint32_t live;    ///< Allocations with an owner.

  [[nodiscard]] std::uint64_t active_operations() const noexcept {
    return std::uint64_t{calls} + queued;
  }

  [[nodiscard]] bool quiet() const noexcept { return calls == 0 && queued == 0 && live == 0; }

  friend bool operator==(const GateFigures&, const GateFigures&) = default;
};

/// The lifecycle of a mechanism and the counts that go with it, in one word: whoever begins an operation checks the
/// lifecycle and counts himself in one step, and a reader sees figures that were true together. Thread-safe.
///
/// Order: everything done before an operation ends is seen by whoever reads that it has ended.
class MechanismGate {
 public:
  /// The most that the word can count. Every record is live, queued or in quarantine, so that the table of records
  /// bounds the first two; calls are bounded by threads and by how deeply they re-enter.
  static constexpr std::uint64_t most_live = (std::uint64_t{1} << 24U) - 1;
  static constexpr std::uint64_t most_calls = (std::uint64_t{1} << 14U) - 1;

  /// Counts a call if the mechanism is active; otherwise the lifecycle that refused it.
  [[nodiscard]] std::optional<MechanismLifecycle> begin_call() noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    do {
      if (lifecycle_of(word) != MechanismLifecycle::active) [[unlikely]] {
        return lifecycle_of(word);
      }
      MEMSTRATA_VERIFY(calls_of(word) < most_calls,
                       "too many calls in flight on one mechanism",
                       calls_of(word),
                       most_calls);
    } while (!word_.compare_exchange_weak(
        word, word + one_call, std::memory_order_acquire, std::memory_order_relaxed));
    return std::nullopt;
  }

  /// Counts a call that tears something down, whatever the lifecycle is; the caller keeps it from changing to lost.
  void begin_teardown() noexcept {
    const std::uint64_t before = word_.fetch_add(one_call, std::memory_order_acquire);
    MEMSTRATA_VERIFY(calls_of(before) < most_calls,
                     "too many calls in flight on one mechanism",
                     calls_of(before),
                     most_calls);
  }

  void end_call() noexcept { word_.fetch_sub(one_call, std::memory_order_release); }

  /// A call ends and has made an allocation.
  void end_call_live() noexcept { word_.fetch_add(one_live - one_call, std::memory_order_release); }

  /// A live allocation becomes a prepared release, if the lifecycle still permits releases.
  [[nodiscard]] std::optional<MechanismLifecycle> queue_live() noexcept {
    return move_if_releasable(one_queued - one_live);
  }

  /// A live allocation leaves for quarantine, if the lifecycle still permits releases.
  [[nodiscard]] std::optional<MechanismLifecycle> drop_live() noexcept {
    return move_if_releasable(std::uint64_t{0} - one_live);
  }

  /// A record in quarantine becomes a prepared release, if the lifecycle still permits releases.
  [[nodiscard]] std::optional<MechanismLifecycle> queue_reclaimed() noexcept {
    return move_if_releasable(one_queued);
  }

  /// `count` prepared releases are settled.
  void settle(std::uint64_t count) noexcept {
    word_.fetch_sub(one_queued * count, std::memory_order_release);
  }

  /// The lifecycle after an event that is always allowed.
  MechanismLifecycle apply(MechanismEvent event) noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    MechanismLifecycle after{};
    do {
      after = next(lifecycle_of(word), event).value_or(lifecycle_of(word));
    } while (!word_.compare_exchange_weak(
        word, with(word, after), std::memory_order_acq_rel, std::memory_order_relaxed));
    return after;
  }

  /// A mechanism of a lost device without operations ends: it owns nothing any more.
  void terminate() noexcept {
    word_.store(with(0, MechanismLifecycle::terminated), std::memory_order_release);
  }

  [[nodiscard]] MechanismLifecycle lifecycle() const noexcept {
    return lifecycle_of(word_.load(std::memory_order_acquire));
  }

  [[nodiscard]] GateFigures figures() const noexcept {
    const std::uint64_t word = word_.load(std::memory_order_acquire);
    return {.lifecycle = lifecycle_of(word),
            .calls = static_cast<std::uint32_t>(calls_of(word)),
            .queued = static_cast<std::uint32_t>((word >> queued_shift) & most_live),
            .live = static_cast<std::uint32_t>(word & most_live)};
  }

 private:
  // From below: 24 bits live, 24 bits queued, 14 bits calls, 2 bits lifecycle.
  static constexpr unsigned queued_shift = 24;
  static constexpr unsigned calls_shift = 48;
  static constexpr unsigned lifecycle_shift = 62;
  static constexpr std::uint64_t one_live = 1;
  static constexpr std::uint64_t one_queued = std::uint64_t{1} << queued_shift;
  static constexpr std::uint64_t one_call = std::uint64_t{1} << calls_shift;

  [[nodiscard]] static MechanismLifecycle lifecycle_of(std::uint64_t word) noexcept {
    return static_cast<MechanismLifecycle>(word >> lifecycle_shift);
  }

  [[nodiscard]] static std::uint64_t calls_of(std::uint64_t word) noexcept {
    return (word >> calls_shift) & most_calls;
  }

  [[nodiscard]] static std::uint64_t with(std::uint64_t word,
                                          MechanismLifecycle lifecycle) noexcept {
    constexpr std::uint64_t counts = (std::uint64_t{1} << lifecycle_shift) - 1;
    return (word & counts) | (std::uint64_t{std::to_underlying(lifecycle)} << lifecycle_shift);
  }

  [[nodiscard]] std::optional<MechanismLifecycle> move_if_releasable(
      std::uint64_t change) noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    do {
      const MechanismLifecycle lifecycle = lifecycle_of(word);
      if (lifecycle != MechanismLifecycle::active && lifecycle != MechanismLifecycle::retired)
          [[unlikely]] {
        return lifecycle;
      }
    } while (!word_.compare_exchange_weak(
        word, word + change, std::memory_order_acq_rel, std::memory_order_relaxed));
    return std::nullopt;
  }

  std::atomic<std::uint64_t> word_{0};
};

}  // namespace memstrata::detail
