// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/tier_book.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {
namespace {

/// Readings of the words that may be disturbed by a limit change before the reader queues for the mutex instead.
constexpr int undisturbed_attempts = 16;

/// What is used when `available` is left under `ceiling`; zero in the instants before an excess is dropped.
Bytes used_of(std::int64_t ceiling, std::int64_t available) noexcept {
  return Bytes{static_cast<std::uint64_t>(std::max(ceiling - available, std::int64_t{0}))};
}

}  // namespace

TierUsage TierBook::usage() const noexcept {
  const Figures now = figures();
  return {.limit = now.limit,
          .used = now.used,
          .promised = Bytes{},
          .available = saturating_sub(now.limit, now.used),
          .oversubscribed = saturating_sub(now.used, now.limit)};
}

TierBook::Figures TierBook::figures() const noexcept {
  for (int attempt = 0; attempt < undisturbed_attempts; ++attempt) {
    const std::uint64_t before = epoch_.load(std::memory_order_acquire);
    const Figures read = read_words();
    // The acquiring loads of `read_words` keep the load below behind them: the same even epoch on both sides means
    // that no limit was being stored in between.
    if (before % 2 == 0 && epoch_.load(std::memory_order_relaxed) == before) {
      return read;
    }
  }
  const MutexLock lock(limit_mutex_);
  return read_words();
}

TierBook::Figures TierBook::read_words() const noexcept {
  const Bytes limit{limit_.load(std::memory_order_acquire)};
  const std::int64_t ceiling = ceiling_.load(std::memory_order_acquire);
  const std::int64_t available = unmarked(available_.load(std::memory_order_acquire));
  return {.limit = limit, .used = used_of(ceiling, available)};
}

LedgerFaults TierBook::faults() const noexcept {
  return {.count = fault_count_.load(std::memory_order_relaxed),
          .bytes = Bytes{fault_bytes_.load(std::memory_order_relaxed)}};
}

bool TierBook::validate() const {
  const Bytes limit{limit_.load(std::memory_order_acquire)};
  const std::int64_t ceiling = ceiling_.load(std::memory_order_acquire);
  const std::int64_t available = available_.load(std::memory_order_acquire);
  const bool words_agree = ceiling == ceiling_of(limit) && available <= ceiling &&
                           used_of(ceiling, available) <= largest_figure;
  const TierUsage read = usage();
  return words_agree && read.limit == limit && read.used == used_of(ceiling, available) &&
         epoch_.load(std::memory_order_acquire) % 2 == 0 && references() > 0;
}

std::optional<TierBook::Refusal> TierBook::claim(Bytes bytes) {
  do {
    const bool is_paused = available_.load(std::memory_order_acquire) < lowest_unmarked;
    if (is_paused && wait_for_resume()) {
      continue;
    }
    const auto [limit, used] = figures();
    if (is_paused) {
      return Refusal{.reason = Refusal::Reason::paused_by_caller, .limit = limit, .used = used};
    }
    const auto sum = checked_add(used, bytes);
    if (sum && *sum > limit) {
      return Refusal{.reason = Refusal::Reason::exhausted, .limit = limit, .used = used};
    }
    if (!sum || *sum > largest_figure) {
      return Refusal{.reason = Refusal::Reason::unrepresentable, .limit = limit, .used = used};
    }
    // There is room at this instant; whoever loses it to another claim looks again.
  } while (!try_claim_at_once(bytes));
  return std::nullopt;
}

bool TierBook::wait_for_resume() {
  // Only the thread itself stores its own id, so that equality cannot be stale.
  if (pauser_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    return false;
  }
  const MutexLock lock(gate_);
  return true;
}

std::optional<TierBook::Refusal> TierBook::record(Bytes bytes) {
  // The mutex keeps the ceiling still, so that the sum that is checked is the sum that is stored.
  const MutexLock lock(limit_mutex_);
  const std::int64_t ceiling = ceiling_.load(std::memory_order_relaxed);
  std::int64_t available = available_.load(std::memory_order_relaxed);
  do {
    const Bytes used = used_of(ceiling, unmarked(available));
    if (bytes > largest_figure || used + bytes > largest_figure) {
      return Refusal{.reason = Refusal::Reason::unrepresentable,
                     .limit = Bytes{limit_.load(std::memory_order_relaxed)},
                     .used = used};
    }
  } while (!available_.compare_exchange_weak(available,
                                             available - static_cast<std::int64_t>(bytes.value),
                                             std::memory_order_acq_rel,
                                             std::memory_order_relaxed));
  return std::nullopt;
}

void TierBook::set_limit(Bytes limit) noexcept {
  const MutexLock lock(limit_mutex_);
  store_limit(limit);
}

Result<void, Bytes> TierBook::try_set_limit(Bytes limit) noexcept {
  const MutexLock lock(limit_mutex_);
  const Bytes used = read_words().used;
  if (used > limit) {
    return fail(used);
  }
  store_limit(limit);
  return {};
}

void TierBook::store_limit(Bytes limit) noexcept {
  const std::int64_t next = ceiling_of(limit);
  const std::int64_t step = next - ceiling_.load(std::memory_order_relaxed);
  const std::uint64_t epoch = epoch_.load(std::memory_order_relaxed);
  // The releasing stores below keep this one before them; the last one is seen only with all of them.
  epoch_.store(epoch + 1, std::memory_order_relaxed);
  // The ceiling rises before and falls after what is available, so a release that compares the two in the middle of
  // a limit change finds no excess and waits for nobody.
  if (step > 0) {
    ceiling_.store(next, std::memory_order_release);
    available_.fetch_add(step, std::memory_order_acq_rel);
  } else {
    available_.fetch_add(step, std::memory_order_acq_rel);
    ceiling_.store(next, std::memory_order_release);
  }
  limit_.store(limit.value, std::memory_order_release);
  epoch_.store(epoch + 2, std::memory_order_release);
  drop_excess();
}

void TierBook::correct_excess() noexcept {
  const MutexLock lock(limit_mutex_);
  drop_excess();
}

void TierBook::drop_excess() noexcept {
  // A read-modify-write, so that each release is either before it and corrected here, or after it and sees the
  // ceiling that was stored before.
  const std::int64_t available = unmarked(available_.fetch_add(0, std::memory_order_acq_rel));
  const std::int64_t excess = available - ceiling_.load(std::memory_order_relaxed);
  if (excess > 0) {
    available_.fetch_sub(excess, std::memory_order_acq_rel);
    count_fault(Bytes{static_cast<std::uint64_t>(excess)});
  }
}

void TierBook::release_absurd(Bytes bytes) noexcept {
  const MutexLock lock(limit_mutex_);
  const Bytes used = read_words().used;
  available_.fetch_add(static_cast<std::int64_t>(used.value), std::memory_order_acq_rel);
  count_fault(bytes - used);
  drop_excess();
}

void TierBook::count_fault(Bytes bytes) noexcept {
  const Bytes before{fault_bytes_.load(std::memory_order_relaxed)};
  fault_bytes_.store(saturating_add(before, bytes).value, std::memory_order_relaxed);
  fault_count_.fetch_add(1, std::memory_order_relaxed);
  MEMSTRATA_ASSERT(false, "more bytes were given back than were held", bytes.value);
}

// The gate is held from here to `resume`, which the analysis cannot follow across functions.
void TierBook::pause() MEMSTRATA_NO_THREAD_SAFETY_ANALYSIS {
  const std::thread::id self = std::this_thread::get_id();
  MEMSTRATA_VERIFY(pauser_.load(std::memory_order_relaxed) != self,
                   "a thread paused the claims of a tier twice");
  gate_.lock();
  pauser_.store(self, std::memory_order_relaxed);
  available_.fetch_sub(pause_mark, std::memory_order_acq_rel);
}

void TierBook::resume() noexcept MEMSTRATA_NO_THREAD_SAFETY_ANALYSIS {
  available_.fetch_add(pause_mark, std::memory_order_acq_rel);
  pauser_.store(std::thread::id(), std::memory_order_relaxed);
  correct_excess();
  gate_.unlock();
}

}  // namespace memstrata
