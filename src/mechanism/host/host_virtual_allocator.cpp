// SPDX-License-Identifier: Apache-2.0
#include "memstrata/mechanism/host/host_virtual_allocator.hpp"

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "mechanism/host/backing_state.hpp"
#include "mechanism/host/host_virtual_mechanism.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"

namespace memstrata::host {

Result<std::unique_ptr<HostVirtualAllocator>, VirtualMemoryError> HostVirtualAllocator::create(
    PageBackingOptions options) {
  try {
    MEMSTRATA_TRY(PageBacking backing, PageBacking::create(std::move(options)));
    auto mechanism = std::make_unique<Mechanism>(std::move(backing));
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): the constructor is private
    return std::unique_ptr<HostVirtualAllocator>(new HostVirtualAllocator(std::move(mechanism)));
  } catch (const std::bad_alloc&) {
    return fail(detail::no_bookkeeping());
  }
}

HostVirtualAllocator::HostVirtualAllocator(std::unique_ptr<Mechanism> mechanism) noexcept
    : mechanism_(std::move(mechanism)) {}

HostVirtualAllocator::~HostVirtualAllocator() = default;

Result<DeviceAddress> HostVirtualAllocator::allocate(Bytes bytes, Bytes alignment) {
  return mechanism_->allocate(bytes, alignment);
}

MechanismRelease HostVirtualAllocator::release(const AllocationSpan& allocation) noexcept {
  return mechanism_->release(allocation);
}

bool HostVirtualAllocator::commits_on_demand() const noexcept {
  return mechanism_->backing().options().governor != nullptr;
}

VirtualBacking* HostVirtualAllocator::virtual_backing() noexcept {
  return mechanism_.get();
}

SharedMapping* HostVirtualAllocator::shared_mapping() noexcept {
  return mechanism_.get();
}

Bytes HostVirtualAllocator::granularity() const noexcept {
  return mechanism_->backing().granularity();
}

const PageBacking& HostVirtualAllocator::backing() const noexcept {
  return mechanism_->backing();
}

std::size_t HostVirtualAllocator::live_allocations() const noexcept {
  return mechanism_->live_allocations();
}

}  // namespace memstrata::host
