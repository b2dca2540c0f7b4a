// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/physical_charge.hpp"

#include <exception>
#include <memory>
#include <utility>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/contract/platform_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/virtual_buffer_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata {

Result<PhysicalCharge, VirtualBufferError> PhysicalCharge::create(
    PhysicalMemoryAccounting accounting,
    std::shared_ptr<MemoryGovernor> governor,
    LeaseTerms terms) {
  if (governor == nullptr) {
    return fail(MemoryError(InvalidRequest{
        .tier = terms.tier, .requested = Bytes{}, .reason = "there is no governor to lease from"}));
  }
  const auto& backing = accounting.authority();
  if (backing && *backing != governor->authority_id()) {
    return fail(AuthorityMismatch{.backing = *backing, .governor = governor->authority_id()});
  }
  return PhysicalCharge(backing.has_value(), std::move(governor), terms);
}

PhysicalCharge::PhysicalCharge(bool paid_by_backing,
                               std::shared_ptr<MemoryGovernor> governor,
                               LeaseTerms terms) noexcept
    : governor_(std::move(governor)), terms_(terms), paid_by_backing_(paid_by_backing) {}

Result<void> PhysicalCharge::charge(Bytes bytes) {
  if (paid_by_backing_ || bytes == Bytes{}) {
    return {};
  }
  // A governor is somebody else's code; whatever it throws, it has granted nothing.
  try {
    return charge_governor(bytes);
  } catch (const std::exception& thrown) {
    return fail(MemoryError(AllocationFailed{.tier = terms_.tier,
                                             .requested = bytes,
                                             .reason = ErrorText::copy(thrown.what()),
                                             .call = "governor"}));
  } catch (...) {
    return fail(MemoryError(AllocationFailed{.tier = terms_.tier,
                                             .requested = bytes,
                                             .reason = "an exception of unknown type",
                                             .call = "governor"}));
  }
}

Result<void> PhysicalCharge::charge_governor(Bytes bytes) {
  if (lease_) {
    return lease_->grow(bytes);
  }
  MEMSTRATA_TRY(auto lease, governor_->reserve(terms_.tier, bytes, terms_.role, terms_.holder));
  lease_.emplace(std::move(lease));
  return {};
}

void PhysicalCharge::refund(Bytes bytes) noexcept {
  if (paid_by_backing_ || bytes == Bytes{}) {
    return;
  }
  MEMSTRATA_VERIFY(bytes <= leased(), "refund of more than is leased", bytes.value, leased().value);
  static_cast<void>(lease_->shrink(bytes));
  if (lease_->bytes() == Bytes{}) {
    lease_.reset();
  }
}

MemoryError no_memory_for_records(Tier tier, Bytes requested) noexcept {
  return AllocationFailed{
      .tier = tier,
      .requested = requested,
      .reason = "no memory for the records of this operation; nothing was changed"};
}

}  // namespace memstrata
