// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): POSIX, not C
#include <sys/time.h>

#include <atomic>
#include <cstdint>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/governance/tier_book.hpp"

// Other threads meet each other in the middle of an operation only where processors are free. A signal does so
// everywhere: it runs its half of the test between two instructions of the other half.

namespace memstrata {
namespace {

constexpr int wanted_interruptions = 3000;
constexpr std::int64_t most_steps = 50'000'000;

std::atomic<TierBook*> book_to_disturb{nullptr};
std::atomic<void (*)(TierBook&)> disturbance{nullptr};
std::atomic<int> interruptions{0};

void on_signal(int /*number*/) {
  interruptions.fetch_add(1);
  disturbance.load()(*book_to_disturb.load());
}

/// While it lives, `disturb` runs on `book` in the middle of what this thread does.
class Interrupted {
 public:
  Interrupted(TierBook& book, void (*disturb)(TierBook&)) {
    book_to_disturb = &book;
    disturbance = disturb;
    interruptions = 0;
    struct sigaction action{};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, &before_);
    // A prime number of microseconds, so that it falls into step with no loop.
    set_timer(17);
  }

  Interrupted(const Interrupted&) = delete;
  Interrupted& operator=(const Interrupted&) = delete;
  Interrupted(Interrupted&&) = delete;
  Interrupted& operator=(Interrupted&&) = delete;

  ~Interrupted() {
    set_timer(0);
    sigaction(SIGALRM, &before_, nullptr);
  }

 private:
  static void set_timer(int microseconds) {
    itimerval every{};
    every.it_interval.tv_usec = microseconds;
    every.it_value.tv_usec = microseconds;
    setitimer(ITIMER_REAL, &every, nullptr);
  }

  struct sigaction before_{};
};

/// Calls `step` until it was interrupted often enough, or for good.
template <class Step>
void repeat(Step step) {
  for (std::int64_t number = 0; number < most_steps && interruptions < wanted_interruptions;
       ++number) {
    step(number);
  }
}

std::atomic<bool> disturber_holds{false};

/// Takes a byte and gives it back in turn, without a lock.
void claim_or_release(TierBook& book) {
  if (disturber_holds) {
    book.release(1_B);
    disturber_holds = false;
  } else {
    disturber_holds = book.try_claim_at_once(1_B);
  }
}

Bytes held_by_disturber() {
  return disturber_holds ? 1_B : 0_B;
}

// Governor defect D1: neither a claim nor a release is overwritten by what falls into its middle.
TEST(TierBookInterrupted, LosesNothingInTheMiddleOfClaimsAndReleases) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer holds signals back until the next call of the C library";
#endif
  TierBook book;
  book.set_limit(100_B);
  disturber_holds = false;
  {
    const Interrupted interrupted(book, claim_or_release);
    repeat([&book](std::int64_t) {
      if (book.try_claim_at_once(3_B)) {
        book.release(3_B);
      }
    });
  }

  EXPECT_GT(interruptions, 0);
  EXPECT_EQ(book.usage().used, held_by_disturber());
  EXPECT_EQ(book.faults(), LedgerFaults{});
}

// A release that waited for the limit change it interrupts would never end.
TEST(TierBookInterrupted, WaitsForNothingInTheMiddleOfLimitChanges) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer holds signals back until the next call of the C library";
#endif
  TierBook book;
  book.set_limit(100_B);
  disturber_holds = false;
  {
    const Interrupted interrupted(book, claim_or_release);
    repeat([&book](std::int64_t number) { book.set_limit(number % 2 == 0 ? 200_B : 100_B); });
  }

  EXPECT_GT(interruptions, 0);
  EXPECT_EQ(book.usage().used, held_by_disturber());
  EXPECT_EQ(book.faults(), LedgerFaults{});
  EXPECT_TRUE(book.validate());
}

std::atomic<int> changes_allowed{0};
std::atomic<bool> is_high{false};

/// Changes the limit, at most once for each reading.
void change_limit(TierBook& book) {
  if (changes_allowed.exchange(0) != 0) {
    is_high = !is_high;
    book.set_limit(is_high ? 200_B : 100_B);
  }
}

// A reading that mixes two limits would show bytes that nobody holds, or hide some.
TEST(TierBookInterrupted, ReadsFiguresThatWereTrueTogetherAroundALimitChange) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer holds signals back until the next call of the C library";
#endif
  TierBook book;
  book.set_limit(100_B);
  is_high = false;
  ASSERT_TRUE(book.try_claim_at_once(50_B));
  std::int64_t torn = 0;
  {
    const Interrupted interrupted(book, change_limit);
    repeat([&book, &torn](std::int64_t) {
      changes_allowed = 1;
      const TierUsage now = book.usage();
      const bool agrees = now.used == 50_B && now.available == now.limit - 50_B &&
                          (now.limit == 100_B || now.limit == 200_B);
      torn += agrees ? 0 : 1;
    });
  }

  EXPECT_GT(interruptions, 0);
  EXPECT_EQ(torn, 0);
  EXPECT_TRUE(book.validate());
}

}  // namespace
}  // namespace memstrata
