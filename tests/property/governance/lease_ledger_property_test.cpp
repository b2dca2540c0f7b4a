// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/lease_ledger.hpp"
#include "memstrata/governance/tier_book.hpp"

namespace memstrata {
namespace {

constexpr std::uint64_t most = TierBook::largest_figure.value;

/// What the naive books expect of a claim.
enum class Verdict : std::uint8_t { granted, exhausted, invalid };

/// Leases next to what each should hold; used is summed again for every question.
class LedgerWalk {
 public:
  explicit LedgerWalk(std::uint64_t seed) : random_(seed) {
    for (const Tier tier : all_tiers) {
      limits_.at(index_of(tier)) = 1000;
    }
  }

  void step() {
    switch (pick(10)) {
      case 0:
      case 1:
        reserve();
        return;
      case 2:
        record();
        return;
      case 3:
        grow();
        return;
      case 4:
        shrink();
        return;
      case 5:
        drop();
        return;
      case 6:
        split();
        return;
      case 7:
        absorb();
        return;
      case 8:
        set_limit();
        return;
      case 9:
        sibling();
        return;
      default:
        FAIL();
    }
  }

  void check() const {
    ASSERT_TRUE(ledger_->validate());
    for (const Tier tier : all_tiers) {
      const std::uint64_t used = model_used(tier);
      const std::uint64_t limit = limits_.at(index_of(tier));
      const TierUsage usage = ledger_->usage(tier);
      ASSERT_EQ(usage.limit.value, limit) << to_string(tier);
      ASSERT_EQ(usage.used.value, used) << to_string(tier);
      ASSERT_EQ(usage.available.value, limit > used ? limit - used : 0) << to_string(tier);
      ASSERT_EQ(usage.oversubscribed.value, used > limit ? used - limit : 0) << to_string(tier);
      ASSERT_EQ(usage.promised.value, 0U);
      ASSERT_EQ(ledger_->live_leases(tier), std::ranges::count(tiers_, tier)) << to_string(tier);
      ASSERT_EQ(ledger_->faults(tier), LedgerFaults{}) << to_string(tier);
    }
    for (std::size_t index = 0; index < leases_.size(); ++index) {
      ASSERT_EQ(leases_[index].bytes().value, held_[index]);
    }
  }

 private:
  std::uint64_t pick(std::uint64_t below) { return random_() % below; }

  Tier any_tier() { return all_tiers.at(pick(tier_count)); }

  /// Mostly small, sometimes around the limit of what can be counted or represented.
  Bytes any_bytes() {
    switch (pick(12)) {
      case 0:
        return Bytes{0};
      case 1:
        return Bytes{most - pick(3)};
      case 2:
        return Bytes{most + pick(3)};
      case 3:
        return Bytes{~std::uint64_t{0} - pick(3)};
      default:
        return Bytes{pick(700)};
    }
  }

  std::size_t any_lease() { return pick(leases_.size()); }

  [[nodiscard]] std::uint64_t model_used(Tier tier) const {
    std::uint64_t used = 0;
    for (std::size_t index = 0; index < tiers_.size(); ++index) {
      used += tiers_[index] == tier ? held_[index] : 0;
    }
    return used;
  }

  [[nodiscard]] Verdict verdict_on_claim(Tier tier, Bytes bytes) const {
    const std::uint64_t used = model_used(tier);
    const std::uint64_t sum = used + bytes.value;
    if (bytes == Bytes{}) {
      return Verdict::granted;
    }
    if (sum < used) {
      return Verdict::invalid;
    }
    if (sum > limits_.at(index_of(tier))) {
      return Verdict::exhausted;
    }
    return sum > most ? Verdict::invalid : Verdict::granted;
  }

  [[nodiscard]] Verdict verdict_on_record(Tier tier, Bytes bytes) const {
    const std::uint64_t used = model_used(tier);
    const std::uint64_t sum = used + bytes.value;
    return sum < used || sum > most ? Verdict::invalid : Verdict::granted;
  }

  void keep(MemoryLease lease, Tier tier, std::uint64_t bytes) {
    leases_.push_back(std::move(lease));
    tiers_.push_back(tier);
    held_.push_back(bytes);
  }

  void forget(std::size_t index) {
    const auto at = static_cast<std::ptrdiff_t>(index);
    leases_.erase(leases_.begin() + at);
    tiers_.erase(tiers_.begin() + at);
    held_.erase(held_.begin() + at);
  }

  void expect_refusal(const MemoryError& error, Verdict verdict, Tier tier, Bytes bytes) const {
    if (verdict == Verdict::invalid) {
      ASSERT_TRUE(std::holds_alternative<InvalidRequest>(error.kind));
      return;
    }
    ASSERT_EQ(verdict, Verdict::exhausted);
    const auto* exhausted = std::get_if<TierExhausted>(&error.kind);
    ASSERT_NE(exhausted, nullptr);
    const std::uint64_t used = model_used(tier);
    const std::uint64_t limit = limits_.at(index_of(tier));
    ASSERT_EQ(exhausted->requested, bytes);
    ASSERT_EQ(exhausted->used.value, used);
    ASSERT_EQ(exhausted->limit.value, limit);
    ASSERT_EQ(exhausted->available.value, limit > used ? limit - used : 0);
  }

  void reserve() {
    const Tier tier = any_tier();
    const Bytes bytes = any_bytes();
    const Verdict verdict = verdict_on_claim(tier, bytes);
    auto lease = ledger_->lease(tier, bytes, MemoryRole::kv_cache, HolderId{1});
    ASSERT_EQ(lease.has_value(), verdict == Verdict::granted);
    if (lease) {
      keep(std::move(*lease), tier, bytes.value);
    } else {
      expect_refusal(lease.error(), verdict, tier, bytes);
    }
  }

  void record() {
    const Tier tier = any_tier();
    const Bytes bytes = any_bytes();
    const Verdict verdict = verdict_on_record(tier, bytes);
    auto lease = ledger_->record_committed(tier, bytes, MemoryRole::kv_cache, HolderId{1});
    ASSERT_EQ(lease.has_value(), verdict == Verdict::granted);
    if (lease) {
      keep(std::move(*lease), tier, bytes.value);
    } else {
      expect_refusal(lease.error(), verdict, tier, bytes);
    }
  }

  void grow() {
    if (leases_.empty()) {
      return;
    }
    const std::size_t index = any_lease();
    const Bytes extra = any_bytes();
    const Verdict verdict = verdict_on_claim(tiers_[index], extra);
    const auto grown = leases_[index].grow(extra);
    ASSERT_EQ(grown.has_value(), verdict == Verdict::granted);
    if (grown) {
      held_[index] += extra.value;
    } else {
      expect_refusal(grown.error(), verdict, tiers_[index], extra);
    }
  }

  void shrink() {
    if (leases_.empty()) {
      return;
    }
    const std::size_t index = any_lease();
    const Bytes at_most = any_bytes();
    const std::uint64_t expected = std::min(at_most.value, held_[index]);
    ASSERT_EQ(leases_[index].shrink(at_most).value, expected);
    held_[index] -= expected;
  }

  void drop() {
    if (!leases_.empty()) {
      forget(any_lease());
    }
  }

  void split() {
    if (leases_.empty()) {
      return;
    }
    const std::size_t index = any_lease();
    const Bytes part = any_bytes();
    auto cut = leases_[index].split(part);
    ASSERT_EQ(cut.has_value(), part.value <= held_[index]);
    if (cut) {
      held_[index] -= part.value;
      const Tier tier = tiers_[index];
      keep(std::move(*cut), tier, part.value);
    }
  }

  void absorb() {
    if (leases_.empty()) {
      return;
    }
    const std::size_t into = any_lease();
    const std::size_t from = any_lease();
    const bool possible = into != from && tiers_[into] == tiers_[from];
    ASSERT_EQ(leases_[into].absorb(leases_[from]).has_value(), possible);
    if (possible) {
      held_[into] += held_[from];
      held_[from] = 0;
      forget(from);
    }
  }

  void sibling() {
    if (leases_.empty()) {
      return;
    }
    const std::size_t index = any_lease();
    const Bytes bytes = any_bytes();
    const Tier tier = tiers_[index];
    const Verdict verdict = verdict_on_claim(tier, bytes);
    auto lease = leases_[index].reserve_sibling(bytes);
    ASSERT_EQ(lease.has_value(), verdict == Verdict::granted);
    if (lease) {
      keep(std::move(*lease), tier, bytes.value);
    }
  }

  void set_limit() {
    const Tier tier = any_tier();
    const Bytes limit = pick(4) == 0 ? any_bytes() : Bytes{500 + pick(3000)};
    if (pick(2) == 0) {
      ledger_->set_limit(tier, limit);
      limits_.at(index_of(tier)) = limit.value;
      return;
    }
    LeaseLimitGuard guard(ledger_, tier);
    const auto changed = guard.try_set_limit(limit);
    const std::uint64_t used = model_used(tier);
    ASSERT_EQ(changed.has_value(), used <= limit.value);
    if (changed) {
      limits_.at(index_of(tier)) = limit.value;
    } else {
      ASSERT_EQ(changed.error().value, used);
    }
  }

  std::mt19937_64 random_;
  std::shared_ptr<LeaseLedger> ledger_ =
      LeaseLedger::create(DeviceKey::device(0), TierLimits::all(Bytes{1000}));
  std::array<std::uint64_t, tier_count> limits_{};
  std::vector<MemoryLease> leases_;
  std::vector<Tier> tiers_;
  std::vector<std::uint64_t> held_;
};

// The sum of all live leases is what is used, whatever was asked in whatever order.
TEST(LeaseLedgerWalk, AgreesWithNaiveBooksAfterEveryStep) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment here
  const bool soak = std::getenv("MEMSTRATA_SOAK") != nullptr;
  const std::uint64_t seeds = soak ? 1000 : 64;

  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    LedgerWalk walk(seed);
    for (int step = 0; step < 4000; ++step) {
      walk.step();
      walk.check();
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace memstrata
