// SPDX-License-Identifier: Apache-2.0
#include "memstrata/contract/memory_governor.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

std::optional<MemoryAuthorityId> MemoryLease::authority() const noexcept {
  return books_ == nullptr ? std::nullopt : books_->authority();
}

Result<void> MemoryLease::grow(Bytes extra) {
  if (extra == Bytes{}) {
    return {};
  }
  const auto sum = checked_add(bytes_, extra);
  if (books_ == nullptr || !sum) {
    return fail(InvalidRequest{.tier = tier_,
                               .requested = extra,
                               .reason = books_ == nullptr
                                             ? ErrorText("the lease was moved from")
                                             : ErrorText("the lease's sum overflows 64 bits")});
  }
  MEMSTRATA_TRY_VOID(books_->try_claim(tier_, extra, role_));
  bytes_ = *sum;
  return {};
}

Bytes MemoryLease::shrink(Bytes at_most) noexcept {
  const Bytes returned = std::min(at_most, bytes_);
  if (returned != Bytes{}) {
    bytes_ -= returned;
    books_->release(tier_, returned);
  }
  return returned;
}

Result<MemoryLease> MemoryLease::split(Bytes part) {
  if (books_ == nullptr || part > bytes_) {
    return fail(InvalidRequest{
        .tier = tier_,
        .requested = part,
        .reason = books_ == nullptr
                      ? ErrorText("the lease was moved from")
                      : ErrorText("the part is larger than the lease it is cut from")});
  }
  books_->retain(tier_);
  bytes_ -= part;
  return MemoryLease(books_, keep_, tier_, part, role_, holder_);
}

Result<MemoryLease> MemoryLease::reserve_sibling(Bytes bytes) const {
  if (books_ == nullptr) {
    return fail(
        InvalidRequest{.tier = tier_, .requested = bytes, .reason = "the lease was moved from"});
  }
  if (bytes != Bytes{}) {
    MEMSTRATA_TRY_VOID(books_->try_claim(tier_, bytes, role_));
  }
  books_->retain(tier_);
  return MemoryLease(books_, keep_, tier_, bytes, role_, holder_);
}

Result<void> MemoryLease::absorb(MemoryLease& other) {
  const auto sum = checked_add(bytes_, other.bytes_);
  if (books_ == nullptr || &other == this || books_ != other.books_ || tier_ != other.tier_ ||
      role_ != other.role_ || holder_ != other.holder_ || !sum) {
    return fail(InvalidRequest{
        .tier = tier_,
        .requested = other.bytes_,
        .reason = "only another lease of the same tier, role, holder and books can be "
                  "absorbed, and the sum must fit into 64 bits"});
  }
  bytes_ = *sum;
  other.bytes_ = Bytes{};
  const MemoryLease emptied(std::move(other));
  return {};
}

}  // namespace memstrata
