// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata {

/// The books behind a lease. Anybody may implement them, so a governor can be replaced. Thread-safe.
class LeaseAccounting {
 public:
  LeaseAccounting() = default;
  LeaseAccounting(const LeaseAccounting&) = delete;
  LeaseAccounting& operator=(const LeaseAccounting&) = delete;
  LeaseAccounting(LeaseAccounting&&) = delete;
  LeaseAccounting& operator=(LeaseAccounting&&) = delete;
  virtual ~LeaseAccounting() = default;

  /// Takes `bytes` of the tier, or says why not; a refusal changes nothing. Never waits for memory.
  [[nodiscard]] virtual Result<void> try_claim(Tier tier, Bytes bytes, MemoryRole role) = 0;
  /// Gives back `bytes` (above zero) that were claimed. Always succeeds and never waits for a claim.
  virtual void release(Tier tier, Bytes bytes) noexcept = 0;

  /// The books' own identity, if they have one.
  [[nodiscard]] virtual std::optional<MemoryAuthorityId> authority() const noexcept {
    return std::nullopt;
  }

  /// One more lease refers to these books. For books that count their leases instead of being shared by a
  /// `std::shared_ptr` in each of them.
  virtual void retain(Tier tier) noexcept { static_cast<void>(tier); }

  /// A lease lets go: gives back `bytes`, if above zero, and undoes one `retain`. The books may end with it.
  virtual void settle(Tier tier, Bytes bytes) noexcept {
    if (bytes != Bytes{}) {
      release(tier, bytes);
    }
  }
};

/// Permission to hold `bytes()` of one tier. Move-only; destruction gives the bytes back, exactly once. It keeps
/// its books alive, so it may outlive the governor that granted it. A lease that was moved from holds nothing
/// and refuses to grow. Single-threaded; different leases may be used by different threads.
class MemoryLease {
 public:
  /// Wraps `bytes` that the caller has already claimed from `books`, which the lease shares and retains.
  [[nodiscard]] static MemoryLease adopt(Tier tier,
                                         Bytes bytes,
                                         MemoryRole role,
                                         HolderId holder,
                                         std::shared_ptr<LeaseAccounting> books) noexcept {
    LeaseAccounting* const raw = books.get();
    if (raw != nullptr) {
      raw->retain(tier);
    }
    return {raw, std::move(books), tier, bytes, role, holder};
  }

  /// Wraps `bytes` that were claimed from books that count their leases; `retain` was called for this lease.
  [[nodiscard]] static MemoryLease adopt_retained(Tier tier,
                                                  Bytes bytes,
                                                  MemoryRole role,
                                                  HolderId holder,
                                                  LeaseAccounting& books) noexcept {
    return {&books, nullptr, tier, bytes, role, holder};
  }

  MemoryLease(MemoryLease&& other) noexcept
      : books_(std::exchange(other.books_, nullptr)),
        keep_(std::move(other.keep_)),
        bytes_(std::exchange(other.bytes_, Bytes{})),
        holder_(other.holder_),
        tier_(other.tier_),
        role_(other.role_) {}

  MemoryLease& operator=(MemoryLease&& other) noexcept {
    MemoryLease moved(std::move(other));
    swap(moved);
    return *this;
  }

  MemoryLease(const MemoryLease&) = delete;
  MemoryLease& operator=(const MemoryLease&) = delete;

  ~MemoryLease() {
    if (books_ != nullptr) {
      books_->settle(tier_, bytes_);
    }
  }

  [[nodiscard]] Bytes bytes() const noexcept { return bytes_; }

  [[nodiscard]] Tier tier() const noexcept { return tier_; }

  [[nodiscard]] MemoryRole role() const noexcept { return role_; }

  [[nodiscard]] HolderId holder() const noexcept { return holder_; }

  [[nodiscard]] std::optional<MemoryAuthorityId> authority() const noexcept;

  /// Claims `extra` more, in place. `grow(0)` succeeds without a call. On failure: lease and books unchanged.
  /// Errors: those of the books; InvalidRequest if the lease was moved from or the sum is not representable.
  [[nodiscard]] Result<void> grow(Bytes extra);

  /// Gives back up to `at_most` and returns how much that was. Never fails, never invents capacity.
  Bytes shrink(Bytes at_most) noexcept;

  /// Cuts `part` out of this lease into a second one with the same tier, role, holder and books. The total
  /// charge does not change and needs no free capacity.
  /// Errors: InvalidRequest if `part` is above `bytes()` or the lease was moved from; nothing changed.
  [[nodiscard]] Result<MemoryLease> split(Bytes part);

  /// A second lease with the same tier, role, holder and books, for a copy that must coexist with the original.
  /// Errors: those of the books.
  [[nodiscard]] Result<MemoryLease> reserve_sibling(Bytes bytes) const;

  /// Merges `other` into this lease without changing the total charge. `other` is empty afterwards.
  /// Errors: InvalidRequest if tier, role, holder or books differ, or the sum is not representable; then both
  /// leases are as before.
  [[nodiscard]] Result<void> absorb(MemoryLease& other);

  void swap(MemoryLease& other) noexcept {
    std::swap(books_, other.books_);
    std::swap(keep_, other.keep_);
    std::swap(bytes_, other.bytes_);
    std::swap(holder_, other.holder_);
    std::swap(tier_, other.tier_);
    std::swap(role_, other.role_);
  }

 private:
  MemoryLease(LeaseAccounting* books,
              std::shared_ptr<LeaseAccounting> keep,
              Tier tier,
              Bytes bytes,
              MemoryRole role,
              HolderId holder) noexcept
      : books_(books),
        keep_(std::move(keep)),
        bytes_(bytes),
        holder_(holder),
        tier_(tier),
        role_(role) {}

  LeaseAccounting* books_;
  std::shared_ptr<LeaseAccounting> keep_;  // empty for books that count their leases
  Bytes bytes_;
  HolderId holder_;
  Tier tier_;
  MemoryRole role_;
};

/// One tier's books at one instant; the fields agree with each other.
struct TierUsage {
  Bytes limit;
  Bytes used;            ///< Sum of all live leases and of charges kept on purpose.
  Bytes promised;        ///< Promised to growth that is under way.
  Bytes available;       ///< What a claim could get: limit - used - promised, or 0.
  Bytes oversubscribed;  ///< used - limit, or 0.

  /// Calls `field(name, value)` for each field, for text, JSON and other reporters alike.
  template <class Field>
  void for_each(Field&& field) const {
    field("limit_bytes", limit.value);
    field("used_bytes", used.value);
    field("promised_bytes", promised.value);
    field("available_bytes", available.value);
    field("oversubscribed_bytes", oversubscribed.value);
  }
};

/// Admission: may these bytes be taken, and by whom. It never frees or moves anybody's memory and never waits
/// inside `reserve`, because allocator callbacks call it. Thread-safe.
class MemoryGovernor {
 public:
  MemoryGovernor() = default;
  MemoryGovernor(const MemoryGovernor&) = delete;
  MemoryGovernor& operator=(const MemoryGovernor&) = delete;
  MemoryGovernor(MemoryGovernor&&) = delete;
  MemoryGovernor& operator=(MemoryGovernor&&) = delete;
  virtual ~MemoryGovernor() = default;

  /// The books that this governor charges; the same for its whole life.
  [[nodiscard]] virtual MemoryAuthorityId authority_id() const noexcept = 0;

  /// Permission for `bytes` of `tier`. Zero bytes are always granted.
  /// Errors: TierExhausted with the numbers; InvalidRequest if the sum is not representable. A refusal changes
  /// nothing.
  [[nodiscard]] virtual Result<MemoryLease> reserve(Tier tier,
                                                    Bytes bytes,
                                                    MemoryRole role,
                                                    HolderId holder) = 0;

  /// States that `bytes` are taken already, whatever the limit: the excess becomes visible as oversubscription.
  /// Errors: InvalidRequest if the sum is not representable.
  [[nodiscard]] virtual Result<MemoryLease> record_committed(Tier tier,
                                                             Bytes bytes,
                                                             MemoryRole role,
                                                             HolderId holder) = 0;

  /// The tier's books now.
  [[nodiscard]] virtual TierUsage usage(Tier tier) const noexcept = 0;

  /// What a claim could get now.
  [[nodiscard]] Bytes available(Tier tier) const noexcept { return usage(tier).available; }
};

}  // namespace memstrata
