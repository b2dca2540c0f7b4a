// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/lease_ledger.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <expected>
#include <memory>
#include <utility>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/tier_book.hpp"

namespace memstrata {
namespace {

/// The failed result for a refused request; made in place, because a refusal is an ordinary answer.
template <class T>
Result<T> refused(const TierBook::Refusal& refusal, Tier tier, Bytes bytes, MemoryRole role) {
  switch (refusal.reason) {
    case TierBook::Refusal::Reason::exhausted:
      return Result<T>(std::unexpect,
                       TierExhausted{.tier = tier,
                                     .role = role,
                                     .requested = bytes,
                                     .used = refusal.used,
                                     .limit = refusal.limit,
                                     .available = saturating_sub(refusal.limit, refusal.used)});
    case TierBook::Refusal::Reason::unrepresentable:
      return Result<T>(std::unexpect,
                       InvalidRequest{.tier = tier,
                                      .requested = bytes,
                                      .reason = "the tier's books count at most 2^60 bytes"});
    case TierBook::Refusal::Reason::paused_by_caller:
      return Result<T>(
          std::unexpect,
          InvalidRequest{.tier = tier,
                         .requested = bytes,
                         .reason = "the calling thread holds the guard that pauses this tier"});
  }
  std::unreachable();
}

}  // namespace

std::shared_ptr<LeaseLedger> LeaseLedger::create(DeviceKey device, TierLimits limits) {
  // The owning pointers share one reference per tier, so they end like a lease and not by deletion.
  return {new LeaseLedger(device, limits), [](LeaseLedger* ledger) { ledger->drop_owner(); }};
}

LeaseLedger::LeaseLedger(DeviceKey device, TierLimits limits) noexcept
    : id_(MemoryAuthorityId::issue(device)) {
  for (const Tier tier : all_tiers) {
    book(tier).set_limit(limits[tier]);
  }
}

std::uint64_t LeaseLedger::live_leases(Tier tier) const noexcept {
  // One reference per tier stands for the owning pointers, which the caller came through.
  return book(tier).references() - 1;
}

bool LeaseLedger::validate() const {
  return std::ranges::all_of(books_, [](const TierBook& book) { return book.validate(); }) &&
         referenced_tiers_.load(std::memory_order_relaxed) == tier_count;
}

Result<MemoryLease> LeaseLedger::lease(Tier tier, Bytes bytes, MemoryRole role, HolderId holder) {
  TierBook& books = book(tier);
  if (bytes != Bytes{} && !books.try_claim_at_once(bytes)) [[unlikely]] {
    if (const auto refusal = books.claim(bytes)) {
      return refused<MemoryLease>(*refusal, tier, bytes, role);
    }
  }
  books.retain();
  return MemoryLease::adopt_retained(tier, bytes, role, holder, *this);
}

Result<MemoryLease> LeaseLedger::record_committed(Tier tier,
                                                  Bytes bytes,
                                                  MemoryRole role,
                                                  HolderId holder) {
  TierBook& books = book(tier);
  if (bytes != Bytes{}) {
    if (const auto refusal = books.record(bytes)) {
      return refused<MemoryLease>(*refusal, tier, bytes, role);
    }
  }
  books.retain();
  return MemoryLease::adopt_retained(tier, bytes, role, holder, *this);
}

Result<void> LeaseLedger::try_claim(Tier tier, Bytes bytes, MemoryRole role) {
  TierBook& books = book(tier);
  if (bytes != Bytes{} && !books.try_claim_at_once(bytes)) [[unlikely]] {
    if (const auto refusal = books.claim(bytes)) {
      return refused<void>(*refusal, tier, bytes, role);
    }
  }
  return {};
}

void LeaseLedger::release(Tier tier, Bytes bytes) noexcept {
  book(tier).release(bytes);
}

void LeaseLedger::retain(Tier tier) noexcept {
  book(tier).retain();
}

void LeaseLedger::settle(Tier tier, Bytes bytes) noexcept {
  TierBook& books = book(tier);
  if (bytes != Bytes{}) {
    books.release(bytes);
  }
  drop_reference(books);
}

void LeaseLedger::drop_owner() noexcept {
  for (TierBook& book : books_) {
    drop_reference(book);  // the last one may end this object
  }
}

void LeaseLedger::drop_tier() noexcept {
  // Acquire and release: whoever counts the last tier down sees what was done through all of them.
  if (referenced_tiers_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    delete this;
  }
}

LeaseLimitGuard::LeaseLimitGuard(std::shared_ptr<LeaseLedger> ledger, Tier tier)
    : ledger_(std::move(ledger)), tier_(tier) {
  MEMSTRATA_VERIFY(ledger_ != nullptr, "a limit guard needs a ledger");
  ledger_->book(tier_).pause();
}

LeaseLimitGuard::~LeaseLimitGuard() {
  ledger_->book(tier_).resume();
}

Result<void, Bytes> LeaseLimitGuard::try_set_limit(Bytes limit) noexcept {
  return ledger_->book(tier_).try_set_limit(limit);
}

}  // namespace memstrata
