// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/cache_line.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// More bytes given back than were held: a holder's error that the books survived. Both only grow.
struct LedgerFaults {
  std::uint64_t count = 0;  ///< Times that the books had to be put right.
  Bytes bytes;              ///< Sum of what was given back beyond what was held.

  [[nodiscard]] friend constexpr bool operator==(LedgerFaults, LedgerFaults) noexcept = default;

  /// Calls `field(name, value)` for each field, for text, JSON and other reporters alike.
  template <class Field>
  void for_each(Field&& field) const {
    field("over_release_count", count);
    field("over_release_bytes", bytes.value);
  }
};

/// The books of one tier: a limit and what is used of it. Thread-safe.
///
/// One signed word says what is still available; a claim takes from it by compare-and-exchange, a release adds to
/// it, a limit change adds the difference. So no update can be lost, and a negative value is usage above the
/// limit. The words that claims and releases write share one cache line with each other and with nothing else.
///
/// The books count to `largest_figure`. A limit above it is kept and reported as stated.
class TierBook {
 public:
  /// The most bytes that one tier's leases may hold together: 1 EiB.
  static constexpr Bytes largest_figure{std::uint64_t{1} << 60U};

  /// Why a claim was not granted, and the figures at the instant of the refusal.
  struct Refusal {
    enum class Reason : std::uint8_t {
      exhausted,         ///< The limit leaves too little.
      unrepresentable,   ///< The sum is above what the books can count, or above 64 bits.
      paused_by_caller,  ///< The calling thread itself holds the pause that it would wait for.
    };

    Reason reason;
    Bytes limit;
    Bytes used;
  };

  /// An empty tier whose limit is zero.
  TierBook() noexcept = default;
  TierBook(const TierBook&) = delete;
  TierBook& operator=(const TierBook&) = delete;
  TierBook(TierBook&&) = delete;
  TierBook& operator=(TierBook&&) = delete;
  ~TierBook() = default;

  /// The books at one instant. Waits for nobody but a limit change that is being stored right then.
  [[nodiscard]] TierUsage usage() const noexcept;

  [[nodiscard]] LedgerFaults faults() const noexcept;

  /// References that were retained and not yet dropped.
  [[nodiscard]] std::uint64_t references() const noexcept {
    return references_.load(std::memory_order_relaxed);
  }

  /// Recomputes the figures from the words and says whether they agree. Call it when nobody else is at work.
  [[nodiscard]] bool validate() const;

  /// Takes `bytes` if they are there at once. False says nothing but "ask `claim`".
  [[nodiscard]] bool try_claim_at_once(Bytes bytes) noexcept {
    std::int64_t available = available_.load(std::memory_order_relaxed);
    // A pause and an overdrawn tier are both negative, so one comparison finds them and the ordinary refusal.
    while (available >= 0 && static_cast<std::uint64_t>(available) >= bytes.value) {
      // Acquire and release: who gets bytes that another thread gave back sees what that thread did before.
      if (available_.compare_exchange_weak(available,
                                           available - static_cast<std::int64_t>(bytes.value),
                                           std::memory_order_acq_rel,
                                           std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  /// Takes `bytes`, or says why not; a refusal changes nothing. During a pause it waits for the pause to end.
  [[nodiscard]] std::optional<Refusal> claim(Bytes bytes);

  /// Takes `bytes` whatever the limit; never waits for a pause. Refused only if the books cannot count the sum.
  [[nodiscard]] std::optional<Refusal> record(Bytes bytes);

  /// Gives back `bytes`. What is beyond the bytes held is dropped and counted as a fault. Never waits for a pause.
  void release(Bytes bytes) noexcept {
    if (bytes > largest_figure) [[unlikely]] {
      release_absurd(bytes);
      return;
    }
    const auto amount = static_cast<std::int64_t>(bytes.value);
    const std::int64_t after = available_.fetch_add(amount, std::memory_order_acq_rel) + amount;
    // The ceiling is never below the limit that `available_` stands for: see `store_limit`.
    if (after > ceiling_.load(std::memory_order_relaxed)) [[unlikely]] {
      correct_excess();
    }
  }

  /// Sets the limit. It revokes nothing: usage above it stays and shows as oversubscription.
  void set_limit(Bytes limit) noexcept;

  /// Sets the limit if usage fits under it; otherwise changes nothing and returns the usage. Exact only while the
  /// caller holds the pause, because a claim may otherwise follow at once.
  [[nodiscard]] Result<void, Bytes> try_set_limit(Bytes limit) noexcept;

  /// Holds up new claims until `resume`. Waits for a pause of another thread to end; a thread that pauses a tier
  /// twice stops the program.
  void pause();

  /// Ends the pause of the calling thread.
  void resume() noexcept;

  /// One more reference to the object that these books are part of.
  void retain() noexcept {
    // Relaxed: only who already has a reference adds one, so there is nothing to see.
    references_.fetch_add(1, std::memory_order_relaxed);
  }

  /// Drops a reference; true if it was the last one.
  [[nodiscard]] bool drop() noexcept {
    // Acquire and release: whoever ends the object sees everything that the others did to it.
    return references_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

 private:
  /// What a pause subtracts: four times the largest figure, so that the marked and the ordinary values never meet.
  static constexpr std::int64_t pause_mark = std::int64_t{1} << 62U;
  static constexpr std::int64_t lowest_unmarked = -(std::int64_t{1} << 61U);

  [[nodiscard]] static constexpr std::int64_t unmarked(std::int64_t available) noexcept {
    return available < lowest_unmarked ? available + pause_mark : available;
  }

  [[nodiscard]] static constexpr std::int64_t ceiling_of(Bytes limit) noexcept {
    return static_cast<std::int64_t>(std::min(limit, largest_figure).value);
  }

  /// What is stated and what is used; small enough for two registers.
  struct Figures {
    Bytes limit;
    Bytes used;
  };

  [[nodiscard]] Figures figures() const noexcept MEMSTRATA_EXCLUDES(limit_mutex_);
  [[nodiscard]] Figures read_words() const noexcept;
  [[nodiscard]] bool wait_for_resume() MEMSTRATA_EXCLUDES(gate_);
  void store_limit(Bytes limit) noexcept MEMSTRATA_REQUIRES(limit_mutex_);
  void correct_excess() noexcept MEMSTRATA_EXCLUDES(limit_mutex_);
  void drop_excess() noexcept MEMSTRATA_REQUIRES(limit_mutex_);
  void release_absurd(Bytes bytes) noexcept MEMSTRATA_EXCLUDES(limit_mutex_);
  void count_fault(Bytes bytes) noexcept MEMSTRATA_REQUIRES(limit_mutex_);

  // Written by every claim and release, or read by them and written only by limit changes.
  alignas(line_pair) std::atomic<std::int64_t> available_{
      0};  // ceiling - used, minus the mark in a pause
  std::atomic<std::uint64_t> references_{1};
  std::atomic<std::int64_t> ceiling_{0};  // min(limit, largest_figure)
  std::atomic<std::uint64_t> limit_{0};   // as stated
  std::atomic<std::uint64_t> epoch_{0};   // odd while a limit is being stored

  // Touched by pauses, limit changes and faults only.
  alignas(line_pair) mutable Mutex limit_mutex_;  // a few instructions each time; innermost
  Mutex gate_;                                    // held for a whole pause, never by a release
  std::atomic<std::thread::id> pauser_;
  std::atomic<std::uint64_t> fault_count_{0};
  std::atomic<std::uint64_t> fault_bytes_{0};
};

}  // namespace memstrata
