// SPDX-License-Identifier: Apache-2.0
#include "memstrata/governance/binding/bound_capability.hpp"

#include <cstddef>
#include <cstdint>
#include <list>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "governance/binding/bound_call.hpp"
#include "governance/binding/mechanism_record.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/mechanism_ref.hpp"
#include "memstrata/governance/binding/owning_allocation.hpp"

namespace memstrata {

using detail::AllocationRecord;
using detail::BoundCall;
using detail::BoundPin;
using detail::check_range;
using detail::MechanismRef;
using detail::OwnedAccess;
using detail::pin_owned;
using detail::PrefixKeepsake;

namespace {

/// The pinned allocations of a batch, as the mechanism wants them.
struct PinnedBatch {
  std::vector<BoundPin> pins;
  std::vector<AllocationCommitRange> ranges;
};

/// Checks and pins everything before the mechanism is called. Errors: those of a call, and MemoryError without
/// memory for the list.
Result<PinnedBatch, BindingError> pin_batch(const MechanismRef& mechanism,
                                            std::uint64_t binding,
                                            std::span<const BoundCommitRange> ranges) {
  PinnedBatch batch;
  try {
    batch.pins.reserve(ranges.size());
    batch.ranges.reserve(ranges.size());
  } catch (const std::bad_alloc&) {
    return fail(BindingError(MemoryError(AllocationFailed{
        .tier = mechanism->parts().device.tier,
        .requested = {},
        .reason = "there is no memory for the list of ranges; the mechanism was not called"})));
  }
  for (const BoundCommitRange& each : ranges) {
    MEMSTRATA_TRY(BoundPin pin, pin_owned(mechanism, binding, OwnedAccess::of(*each.allocation)));
    MEMSTRATA_TRY_VOID(check_range(each.range, each.allocation->size()));
    batch.pins.push_back(std::move(pin));
    batch.ranges.push_back({.allocation = each.allocation->span(), .range = each.range});
  }
  return batch;
}

}  // namespace

BindingIdentity BoundVirtualBacking::binding_identity() const noexcept {
  return mechanism_->binding_identity(serial_);
}

Result<OwningAllocation, BindingError> BoundVirtualBacking::allocate_committed(
    Bytes bytes,
    Bytes alignment,
    std::span<const ByteRange> ranges) const {
  MEMSTRATA_TRY(BoundCall call, BoundCall::begin(mechanism_, "allocate_committed"));
  for (const ByteRange& range : ranges) {
    MEMSTRATA_TRY_VOID(check_range(range, bytes));
  }
  MEMSTRATA_TRY(AllocationRecord* const record, mechanism_->open(serial_, bytes, alignment));
  auto address = call.run(
      [&] { return mechanism_->virtual_backing()->allocate_committed(bytes, alignment, ranges); });
  if (!address) {
    mechanism_->close(*record);
    return fail(std::move(address).error());
  }
  call.publish(*record, *address);
  return OwningAllocation(*mechanism_, *record);
}

Result<void, BindingError> BoundVirtualBacking::commit(const OwningAllocation& allocation,
                                                       ByteRange range) const {
  MEMSTRATA_TRY(const BoundCall call, BoundCall::begin(mechanism_, "commit"));
  MEMSTRATA_TRY(const BoundPin pin, pin_owned(mechanism_, serial_, OwnedAccess::of(allocation)));
  MEMSTRATA_TRY_VOID(check_range(range, allocation.size()));
  return call.run([&] { return mechanism_->virtual_backing()->commit(allocation.span(), range); });
}

Result<void, BoundBatchFailure> BoundVirtualBacking::commit_all(
    std::span<const BoundCommitRange> ranges) const {
  const auto refused = [](BindingError error) {
    return fail(BoundBatchFailure{.error = std::move(error), .committed_ranges = 0});
  };
  auto call = BoundCall::begin(mechanism_, "commit_all");
  if (!call) {
    return refused(std::move(call).error());
  }
  auto batch = pin_batch(mechanism_, serial_, ranges);
  if (!batch) {
    return refused(std::move(batch).error());
  }
  std::size_t committed = 0;
  auto done = call->run([&]() -> Result<void> {
    auto result = mechanism_->virtual_backing()->commit_all(batch->ranges);
    if (!result) {
      committed = result.error().committed_ranges;
      return fail(std::move(result).error().error);
    }
    return {};
  });
  if (!done) {
    return fail(BoundBatchFailure{.error = std::move(done).error(), .committed_ranges = committed});
  }
  return {};
}

Result<Bytes, BindingError> BoundVirtualBacking::mapped_bytes(
    std::span<const BoundCommitRange> ranges) const {
  MEMSTRATA_TRY(const BoundCall call, BoundCall::begin(mechanism_, "mapped_bytes"));
  MEMSTRATA_TRY(const PinnedBatch batch, pin_batch(mechanism_, serial_, ranges));
  return call.run([&] { return mechanism_->virtual_backing()->mapped_bytes(batch.ranges); });
}

Result<Bytes, BindingError> BoundVirtualBacking::mapped_bytes(Bytes bytes, Bytes alignment) const {
  MEMSTRATA_TRY(const BoundCall call, BoundCall::begin(mechanism_, "mapped_bytes"));
  return call.run([&] { return mechanism_->virtual_backing()->mapped_bytes(bytes, alignment); });
}

Result<Bytes, BindingError> BoundVirtualBacking::decommit(const OwningAllocation& allocation,
                                                          ByteRange range) const {
  MEMSTRATA_TRY(const BoundCall call, BoundCall::begin(mechanism_, "decommit"));
  MEMSTRATA_TRY(const BoundPin pin, pin_owned(mechanism_, serial_, OwnedAccess::of(allocation)));
  MEMSTRATA_TRY_VOID(check_range(range, allocation.size()));
  return call.run(
      [&] { return mechanism_->virtual_backing()->decommit(allocation.span(), range); });
}

Result<Bytes, BindingError> BoundVirtualBacking::committed_bytes(
    const OwningAllocation& allocation) const {
  MEMSTRATA_TRY(const BoundCall call, BoundCall::begin(mechanism_, "committed_bytes"));
  MEMSTRATA_TRY(const BoundPin pin, pin_owned(mechanism_, serial_, OwnedAccess::of(allocation)));
  return mechanism_->virtual_backing()->committed_bytes(allocation.span());
}

BoundSharedPrefix::BoundSharedPrefix(MechanismRef mechanism,
                                     std::uint64_t serial,
                                     std::list<PrefixKeepsake> prefix) noexcept
    : mechanism_(std::move(mechanism)), serial_(serial), prefix_(std::move(prefix)) {}

BoundSharedPrefix::BoundSharedPrefix(BoundSharedPrefix&& other) noexcept = default;

BoundSharedPrefix& BoundSharedPrefix::operator=(BoundSharedPrefix&& other) noexcept {
  if (this != &other) {
    drop();
    prefix_.swap(other.prefix_);
    mechanism_ = std::move(other.mechanism_);
    serial_ = other.serial_;
  }
  return *this;
}

BoundSharedPrefix::~BoundSharedPrefix() {
  drop();
}

void BoundSharedPrefix::drop() noexcept {
  if (!prefix_.empty()) {
    mechanism_->drop_prefix(prefix_);
  }
}

SharedDevicePrefix& BoundSharedPrefix::prefix() const noexcept {
  MEMSTRATA_VERIFY(!prefix_.empty(), "a shared prefix was used after it was moved from");
  return *prefix_.front().prefix;
}

BindingIdentity BoundSharedPrefix::binding_identity() const noexcept {
  MEMSTRATA_VERIFY(!prefix_.empty(), "a shared prefix was used after it was moved from");
  return mechanism_->binding_identity(serial_);
}

DeviceAddress BoundSharedPrefix::address() const noexcept {
  return prefix().address();
}

Bytes BoundSharedPrefix::committed_physical_bytes() const noexcept {
  return prefix().committed_physical_bytes();
}

Bytes BoundSharedPrefix::mapped_bytes() const noexcept {
  return prefix().mapped_bytes();
}

Bytes BoundSharedPrefix::requested_bytes() const noexcept {
  return prefix().requested_bytes();
}

bool BoundSharedPrefix::is_sealed() const noexcept {
  return prefix().is_sealed();
}

Result<void, BindingError> BoundSharedPrefix::seal() const {
  SharedDevicePrefix& sealed = prefix();
  MEMSTRATA_TRY(const BoundCall call, BoundCall::begin(mechanism_, "seal"));
  return call.run([&] { return sealed.seal(); });
}

BindingIdentity BoundSharedMapping::binding_identity() const noexcept {
  return mechanism_->binding_identity(serial_);
}

Result<void, BindingError> BoundSharedMapping::check_prefix(const BoundSharedPrefix& prefix) const {
  if (const BindingIdentity other = prefix.binding_identity(); other != binding_identity()) {
    return fail(
        BindingError(BindingMismatch{.expected = binding_identity().id, .actual = other.id}));
  }
  return {};
}

Result<BoundSharedPrefix, BindingError> BoundSharedMapping::create_shared_prefix(
    Bytes bytes) const {
  MEMSTRATA_TRY(const BoundCall call, BoundCall::begin(mechanism_, "create_shared_prefix"));
  std::list<PrefixKeepsake> one(1);  // before the call, so that nothing can fail after it
  MEMSTRATA_TRY(one.front().prefix, call.run([&] {
    return mechanism_->shared_mapping()->create_shared_prefix(bytes);
  }));
  MEMSTRATA_VERIFY(one.front().prefix != nullptr, "a mechanism made a shared prefix of nothing");
  one.front().bytes = one.front().prefix->committed_physical_bytes();
  mechanism_->count_prefix(one.front().bytes);
  return BoundSharedPrefix(mechanism_, serial_, std::move(one));
}

Result<Bytes, BindingError> BoundSharedMapping::incremental_owned_bytes(
    const BoundSharedPrefix& prefix) const {
  MEMSTRATA_TRY(const BoundCall call, BoundCall::begin(mechanism_, "incremental_owned_bytes"));
  MEMSTRATA_TRY_VOID(check_prefix(prefix));
  return call.run(
      [&] { return mechanism_->shared_mapping()->incremental_owned_bytes(prefix.prefix()); });
}

Result<SharedPrefixCommitInfo, BindingError> BoundSharedMapping::commit_shared_prefix(
    const BoundSharedPrefix& prefix,
    const OwningAllocation& allocation,
    Bytes offset) const {
  MEMSTRATA_TRY(const BoundCall call, BoundCall::begin(mechanism_, "commit_shared_prefix"));
  MEMSTRATA_TRY_VOID(check_prefix(prefix));
  MEMSTRATA_TRY(const BoundPin pin, pin_owned(mechanism_, serial_, OwnedAccess::of(allocation)));
  MEMSTRATA_TRY_VOID(
      check_range({.offset = offset, .size = prefix.requested_bytes()}, allocation.size()));
  return call.run([&] {
    return mechanism_->shared_mapping()->commit_shared_prefix(
        prefix.prefix(), allocation.span(), offset);
  });
}

Result<Bytes, BindingError> BoundSharedMapping::break_shared(const OwningAllocation& allocation,
                                                             ByteRange range) const {
  MEMSTRATA_TRY(const BoundCall call, BoundCall::begin(mechanism_, "break_shared"));
  MEMSTRATA_TRY(const BoundPin pin, pin_owned(mechanism_, serial_, OwnedAccess::of(allocation)));
  MEMSTRATA_TRY_VOID(check_range(range, allocation.size()));
  return call.run(
      [&] { return mechanism_->shared_mapping()->break_shared(allocation.span(), range); });
}

}  // namespace memstrata
