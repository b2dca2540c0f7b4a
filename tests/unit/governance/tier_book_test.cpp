// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/tier_book.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"

namespace memstrata {
namespace {

TEST(TierBookClaim, TakesTheLastByteAndNotOneMore) {
  TierBook book;
  book.set_limit(10_B);

  EXPECT_FALSE(book.claim(10_B).has_value());

  const auto refusal = book.claim(1_B);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, TierBook::Refusal::Reason::exhausted);
  EXPECT_EQ(refusal->limit, 10_B);
  EXPECT_EQ(refusal->used, 10_B);
}

TEST(TierBookClaim, CountsToTheLargestFigure) {
  TierBook book;
  book.set_limit(Bytes::max());

  EXPECT_FALSE(book.claim(TierBook::largest_figure).has_value());

  const auto refusal = book.claim(1_B);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, TierBook::Refusal::Reason::unrepresentable);
}

TEST(TierBookClaim, AtOnceSaysNoWithoutAChange) {
  TierBook book;
  book.set_limit(10_B);

  EXPECT_FALSE(book.try_claim_at_once(11_B));
  EXPECT_EQ(book.usage().used, 0_B);
  EXPECT_TRUE(book.try_claim_at_once(10_B));
  EXPECT_FALSE(book.try_claim_at_once(1_B));
  EXPECT_EQ(book.usage().used, 10_B);
}

TEST(TierBookPause, StopsClaimsAtOnceHoweverMuchIsLeft) {
  TierBook book;
  book.set_limit(TierBook::largest_figure);
  book.pause();

  EXPECT_FALSE(book.try_claim_at_once(1_B));
  book.resume();
  EXPECT_TRUE(book.try_claim_at_once(1_B));
}

TEST(TierBookValidate, KnowsThatAnOpenPauseIsNotAtRest) {
  TierBook book;
  book.set_limit(10_B);
  EXPECT_TRUE(book.validate());

  book.pause();
  EXPECT_FALSE(book.validate());
  book.resume();

  EXPECT_TRUE(book.validate());
}

TEST(TierBookReferences, SayWhichDropWasTheLast) {
  TierBook book;
  book.retain();

  EXPECT_EQ(book.references(), 2U);
  EXPECT_FALSE(book.drop());
  EXPECT_TRUE(book.drop());
}

TEST(LedgerFaultsForEach, NamesEveryField) {
  const LedgerFaults faults{.count = 3, .bytes = 40_B};
  std::string text;

  faults.for_each([&text](const char* name, std::uint64_t value) {
    text += std::string(name) + '=' + std::to_string(value) + ' ';
  });

  EXPECT_EQ(text, "over_release_count=3 over_release_bytes=40 ");
}

}  // namespace
}  // namespace memstrata
