// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "support/fault_script.hpp"

namespace memstrata::test {

/// One call that reached the books.
struct BooksCall {
  enum class Kind : std::uint8_t { claim, refusal, release, record };
  Kind kind;
  Tier tier;
  Bytes bytes;

  [[nodiscard]] friend bool operator==(const BooksCall&, const BooksCall&) = default;
};

/// Books that a third party might write: a limit per tier under one mutex, every call recorded, chosen claims
/// refused. They know a release of more than is used. Thread-safe.
class ScriptedBooks final : public LeaseAccounting {
 public:
  ScriptedBooks(std::array<Bytes, tier_count> limits, MemoryAuthorityId authority)
      : authority_(authority), limits_(limits) {}

  [[nodiscard]] Result<void> try_claim(Tier tier, Bytes bytes, MemoryRole role) override {
    const bool scripted = faults_.must_fail("claim");
    const MutexLock lock(mutex_);
    Bytes& used = used_[index_of(tier)];
    const Bytes limit = limits_[index_of(tier)];
    const auto sum = checked_add(used, bytes);
    if (scripted || !sum || *sum > limit) {
      calls_.push_back({.kind = BooksCall::Kind::refusal, .tier = tier, .bytes = bytes});
      if (!sum) {
        return fail(InvalidRequest{
            .tier = tier, .requested = bytes, .reason = "the sum does not fit into 64 bits"});
      }
      return fail(TierExhausted{.tier = tier,
                                .role = role,
                                .requested = bytes,
                                .used = used,
                                .limit = limit,
                                .available = saturating_sub(limit, used)});
    }
    used = *sum;
    peak_[index_of(tier)] = std::max(peak_[index_of(tier)], used);
    calls_.push_back({.kind = BooksCall::Kind::claim, .tier = tier, .bytes = bytes});
    return {};
  }

  void release(Tier tier, Bytes bytes) noexcept override {
    const MutexLock lock(mutex_);
    Bytes& used = used_[index_of(tier)];
    over_released_ = over_released_ || bytes > used || bytes == Bytes{};
    used = saturating_sub(used, bytes);
    calls_.push_back({.kind = BooksCall::Kind::release, .tier = tier, .bytes = bytes});
  }

  [[nodiscard]] std::optional<MemoryAuthorityId> authority() const noexcept override {
    return authority_;
  }

  /// Takes `bytes` whatever the limit.
  [[nodiscard]] Result<void> record(Tier tier, Bytes bytes) {
    const MutexLock lock(mutex_);
    const auto sum = checked_add(used_[index_of(tier)], bytes);
    if (!sum) {
      return fail(InvalidRequest{
          .tier = tier, .requested = bytes, .reason = "the sum does not fit into 64 bits"});
    }
    used_[index_of(tier)] = *sum;
    calls_.push_back({.kind = BooksCall::Kind::record, .tier = tier, .bytes = bytes});
    return {};
  }

  void set_limit(Tier tier, Bytes limit) {
    const MutexLock lock(mutex_);
    limits_[index_of(tier)] = limit;
  }

  [[nodiscard]] TierUsage usage(Tier tier) const noexcept {
    const MutexLock lock(mutex_);
    const Bytes used = used_[index_of(tier)];
    const Bytes limit = limits_[index_of(tier)];
    return {.limit = limit,
            .used = used,
            .promised = Bytes{},
            .available = saturating_sub(limit, used),
            .oversubscribed = saturating_sub(used, limit)};
  }

  [[nodiscard]] Bytes used(Tier tier) const noexcept { return usage(tier).used; }

  /// The most that was ever claimed of the tier.
  [[nodiscard]] Bytes peak(Tier tier) const noexcept {
    const MutexLock lock(mutex_);
    return peak_[index_of(tier)];
  }

  [[nodiscard]] std::vector<BooksCall> calls() const {
    const MutexLock lock(mutex_);
    return calls_;
  }

  /// How many calls of one kind there were.
  [[nodiscard]] std::uint64_t count(BooksCall::Kind kind) const {
    const MutexLock lock(mutex_);
    std::uint64_t found = 0;
    for (const BooksCall& call : calls_) {
      found += call.kind == kind ? 1U : 0U;
    }
    return found;
  }

  /// Whether somebody gave back more than was used, or nothing at all: always a defect of the caller.
  [[nodiscard]] bool over_released() const noexcept {
    const MutexLock lock(mutex_);
    return over_released_;
  }

  /// `fail_nth("claim", n)` refuses the n-th claim from now on.
  [[nodiscard]] FaultScript& faults() noexcept { return faults_; }

 private:
  FaultScript faults_;
  MemoryAuthorityId authority_;
  mutable Mutex mutex_;
  std::array<Bytes, tier_count> limits_ MEMSTRATA_GUARDED_BY(mutex_);
  std::array<Bytes, tier_count> used_ MEMSTRATA_GUARDED_BY(mutex_){};
  std::array<Bytes, tier_count> peak_ MEMSTRATA_GUARDED_BY(mutex_){};
  std::vector<BooksCall> calls_ MEMSTRATA_GUARDED_BY(mutex_);
  bool over_released_ MEMSTRATA_GUARDED_BY(mutex_) = false;
};

/// A governor written against the public contract only, over `ScriptedBooks`. Thread-safe.
class ScriptedGovernor final : public MemoryGovernor {
 public:
  /// Limits in the order device, host, disk.
  explicit ScriptedGovernor(std::array<Bytes, tier_count> limits)
      : authority_(MemoryAuthorityId::issue(DeviceKey::host())),
        books_(std::make_shared<ScriptedBooks>(limits, authority_)) {}

  /// The same limit for each tier.
  [[nodiscard]] static std::shared_ptr<ScriptedGovernor> with_limit(Bytes limit) {
    return std::make_shared<ScriptedGovernor>(std::array<Bytes, tier_count>{limit, limit, limit});
  }

  [[nodiscard]] MemoryAuthorityId authority_id() const noexcept override { return authority_; }

  [[nodiscard]] Result<MemoryLease> reserve(Tier tier,
                                            Bytes bytes,
                                            MemoryRole role,
                                            HolderId holder) override {
    if (bytes != Bytes{}) {
      MEMSTRATA_TRY_VOID(books_->try_claim(tier, bytes, role));
    }
    return MemoryLease::adopt(tier, bytes, role, holder, books_);
  }

  [[nodiscard]] Result<MemoryLease> record_committed(Tier tier,
                                                     Bytes bytes,
                                                     MemoryRole role,
                                                     HolderId holder) override {
    MEMSTRATA_TRY_VOID(books_->record(tier, bytes));
    return MemoryLease::adopt(tier, bytes, role, holder, books_);
  }

  [[nodiscard]] TierUsage usage(Tier tier) const noexcept override { return books_->usage(tier); }

  [[nodiscard]] ScriptedBooks& books() noexcept { return *books_; }

  /// The books themselves, for what outlives the governor.
  [[nodiscard]] std::shared_ptr<ScriptedBooks> share_books() const noexcept { return books_; }

 private:
  MemoryAuthorityId authority_;
  std::shared_ptr<ScriptedBooks> books_;
};

}  // namespace memstrata::test
