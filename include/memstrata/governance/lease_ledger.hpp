// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/tier_book.hpp"

namespace memstrata {

/// A limit for every tier; zero, so that nothing can be leased, where none was set. Thread-compatible.
class TierLimits {
 public:
  constexpr TierLimits() noexcept = default;

  /// The same limit for every tier.
  [[nodiscard]] static constexpr TierLimits all(Bytes limit) noexcept {
    TierLimits limits;
    limits.values_.fill(limit);
    return limits;
  }

  /// These limits with another one for `tier`.
  [[nodiscard]] constexpr TierLimits with(Tier tier, Bytes limit) const noexcept {
    TierLimits changed = *this;
    changed.values_.at(index_of(tier)) = limit;
    return changed;
  }

  [[nodiscard]] constexpr Bytes operator[](Tier tier) const noexcept {
    return values_.at(index_of(tier));
  }

 private:
  std::array<Bytes, tier_count> values_{};
};

/// The books of one authority: for every tier a limit and the bytes that live leases hold. Thread-safe.
///
/// It only counts: it calls nobody, takes bytes from no holder and frees nothing. Tiers are independent: an
/// operation on one neither changes nor slows another, since no word is shared that operations write. A lease
/// refers to the books and keeps them alive, so governors and all owning pointers may go before the leases.
///
/// Lease and release cost four atomic read-modify-writes together: claim and give back, count and uncount.
class LeaseLedger final : public LeaseAccounting {
 public:
  /// New books with an authority identity of their own. The caller shares them with governors and leases.
  [[nodiscard]] static std::shared_ptr<LeaseLedger> create(DeviceKey device, TierLimits limits);

  LeaseLedger(const LeaseLedger&) = delete;
  LeaseLedger& operator=(const LeaseLedger&) = delete;
  LeaseLedger(LeaseLedger&&) = delete;
  LeaseLedger& operator=(LeaseLedger&&) = delete;

  /// The identity of these books, the same for their whole life.
  [[nodiscard]] MemoryAuthorityId authority_id() const noexcept { return id_; }

  [[nodiscard]] std::optional<MemoryAuthorityId> authority() const noexcept override { return id_; }

  /// The tier's books at one instant.
  [[nodiscard]] TierUsage usage(Tier tier) const noexcept { return book(tier).usage(); }

  /// What holders gave back beyond what they held. Anything above zero is an error of a holder.
  [[nodiscard]] LedgerFaults faults(Tier tier) const noexcept { return book(tier).faults(); }

  /// Leases of the tier that are alive, those of zero bytes included.
  [[nodiscard]] std::uint64_t live_leases(Tier tier) const noexcept;

  /// Recomputes every tier's figures and says whether they agree. Call it when nobody else is at work.
  [[nodiscard]] bool validate() const;

  /// A lease of `bytes`; zero bytes are always granted. During a pause of the tier it waits for the pause to end.
  /// Errors: TierExhausted with the numbers; InvalidRequest if the sum is above `TierBook::largest_figure`, or if
  /// the calling thread holds the tier's `LeaseLimitGuard`. A refusal changes nothing.
  [[nodiscard]] Result<MemoryLease> lease(Tier tier, Bytes bytes, MemoryRole role, HolderId holder);

  /// A lease for `bytes` that are taken already, whatever the limit; the excess shows as oversubscription. It
  /// waits for no pause.
  /// Errors: InvalidRequest if the sum is above `TierBook::largest_figure`; nothing changed.
  [[nodiscard]] Result<MemoryLease> record_committed(Tier tier,
                                                     Bytes bytes,
                                                     MemoryRole role,
                                                     HolderId holder);

  /// Sets the tier's limit. It revokes nothing: leases stay, and nothing is granted until usage is below it.
  void set_limit(Tier tier, Bytes limit) noexcept { book(tier).set_limit(limit); }

  [[nodiscard]] Result<void> try_claim(Tier tier, Bytes bytes, MemoryRole role) override;
  void release(Tier tier, Bytes bytes) noexcept override;
  void retain(Tier tier) noexcept override;
  void settle(Tier tier, Bytes bytes) noexcept override;

 private:
  friend class LeaseLimitGuard;

  LeaseLedger(DeviceKey device, TierLimits limits) noexcept;
  ~LeaseLedger() override = default;

  /// The owning pointers are gone: the references that stand for them end, and with the last lease the books.
  void drop_owner() noexcept;
  /// Nothing refers to one of the tiers any more; after the last one the books end.
  void drop_tier() noexcept;

  void drop_reference(TierBook& book) noexcept {
    if (book.drop()) [[unlikely]] {
      drop_tier();
    }
  }

  [[nodiscard]] TierBook& book(Tier tier) noexcept {
    MEMSTRATA_VERIFY(index_of(tier) < tier_count, "no such tier", index_of(tier));
    return books_[index_of(tier)];
  }

  [[nodiscard]] const TierBook& book(Tier tier) const noexcept {
    MEMSTRATA_VERIFY(index_of(tier) < tier_count, "no such tier", index_of(tier));
    return books_[index_of(tier)];
  }

  const MemoryAuthorityId id_;
  std::array<TierBook, tier_count> books_;
  std::atomic<std::size_t> referenced_tiers_{tier_count};  // written once per tier, at the end
};

/// Holds up new claims on one tier for a scope, so that a limit can be checked and stored as one step. Releases go
/// on. Like a lock: it stays on its thread, that thread claims nothing of the tier meanwhile, and whoever holds
/// guards of several tiers takes them in tier order. Single-threaded.
class LeaseLimitGuard {
 public:
  /// Waits for another thread's guard of the tier. Keeps the books alive.
  LeaseLimitGuard(std::shared_ptr<LeaseLedger> ledger, Tier tier);
  LeaseLimitGuard(const LeaseLimitGuard&) = delete;
  LeaseLimitGuard& operator=(const LeaseLimitGuard&) = delete;
  LeaseLimitGuard(LeaseLimitGuard&&) = delete;
  LeaseLimitGuard& operator=(LeaseLimitGuard&&) = delete;
  ~LeaseLimitGuard();

  [[nodiscard]] TierUsage usage() const noexcept { return ledger_->usage(tier_); }

  /// Sets the limit if usage fits under it. Otherwise nothing changes and the error is the usage found.
  [[nodiscard]] Result<void, Bytes> try_set_limit(Bytes limit) noexcept;

 private:
  std::shared_ptr<LeaseLedger> ledger_;
  Tier tier_;
};

}  // namespace memstrata
