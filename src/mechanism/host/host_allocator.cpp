// SPDX-License-Identifier: Apache-2.0
#include "memstrata/mechanism/host/host_allocator.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "mechanism/host/memory_refusal.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host {
namespace {

/// The alignment that the heap is asked for: `operator new` wants at least that of a pointer.
[[nodiscard]] std::align_val_t heap_alignment(Bytes alignment) noexcept {
  return static_cast<std::align_val_t>(
      std::max<std::uint64_t>(alignment.value, alignof(std::max_align_t)));
}

/// A block of the heap that is given back unless somebody takes it over.
class HeapBlock {
 public:
  HeapBlock(Bytes bytes, Bytes alignment) noexcept
      : alignment_(alignment),
        memory_(::operator new(bytes.value, heap_alignment(alignment), std::nothrow)) {}

  HeapBlock(const HeapBlock&) = delete;
  HeapBlock& operator=(const HeapBlock&) = delete;

  HeapBlock(HeapBlock&& other) noexcept
      : alignment_(other.alignment_), memory_(std::exchange(other.memory_, nullptr)) {}

  HeapBlock& operator=(HeapBlock&& other) noexcept {
    std::swap(alignment_, other.alignment_);
    std::swap(memory_, other.memory_);
    return *this;
  }

  ~HeapBlock() { ::operator delete(memory_, heap_alignment(alignment_)); }

  [[nodiscard]] bool empty() const noexcept { return memory_ == nullptr; }

  [[nodiscard]] DeviceAddress address() const noexcept {
    return DeviceAddress{reinterpret_cast<std::uintptr_t>(memory_)};
  }

 private:
  Bytes alignment_;
  void* memory_;
};

/// Lets the kernel fill in the whole pages of a block. A kernel that does not know how leaves them to the first
/// write.
[[nodiscard]] Result<void> populate(SystemCalls& system_calls, DeviceAddress address, Bytes bytes) {
  const Bytes page = page_size();
  const std::optional<Bytes> first = align_up(Bytes{address.value()}, page);
  const Bytes end = align_down(Bytes{address.value()} + bytes, page);
  if (!first || *first >= end) {
    return {};
  }
  const SystemResult done = system_calls.execute({.kind = SystemCallKind::advise,
                                                  .advice = Advice::populate_write,
                                                  .address = first->value,
                                                  .length = (end - *first).value});
  if (!done.is_ok() && done.error != EINVAL) {
    return fail(AllocationFailed{.tier = Tier::host,
                                 .requested = bytes,
                                 .reason = "the kernel could not fill in the pages",
                                 .call = function_name(SystemCallKind::advise),
                                 .code = done.error});
  }
  return {};
}

}  // namespace

/// The live allocations. Nodes are made and destroyed outside the lock, so that nothing is allocated under it.
class HostAllocator::Table {
 public:
  struct Entry {
    AllocationSpan span;
    HeapBlock block;
  };

  using Entries = std::map<std::uint64_t, Entry>;
  using Node = Entries::node_type;

  void insert(Node node) noexcept {
    const MutexLock lock(mutex_);
    live_.insert(std::move(node));
  }

  /// Takes out the entry of exactly this span; empty if there is none.
  [[nodiscard]] Node extract(const AllocationSpan& span) noexcept {
    const MutexLock lock(mutex_);
    const auto found = live_.find(span.address.value());
    return found == live_.end() || found->second.span != span ? Node() : live_.extract(found);
  }

  [[nodiscard]] std::size_t size() const noexcept {
    const MutexLock lock(mutex_);
    return live_.size();
  }

 private:
  mutable Mutex mutex_;
  Entries live_ MEMSTRATA_GUARDED_BY(mutex_);
};

HostAllocator::HostAllocator() : HostAllocator(real_system_calls()) {}

HostAllocator::HostAllocator(std::shared_ptr<SystemCalls> system_calls)
    : system_calls_(std::move(system_calls)), table_(std::make_unique<Table>()) {}

HostAllocator::~HostAllocator() = default;

Result<DeviceAddress> HostAllocator::allocate(Bytes bytes, Bytes alignment) {
  MEMSTRATA_TRY_VOID(check_shape(bytes, alignment));
  const Bytes size = std::max(bytes, Bytes{1});
  return unless_out_of_memory(bytes, [&]() -> Result<DeviceAddress> {
    HeapBlock block(size, alignment);
    if (block.empty()) {
      return fail(AllocationFailed{.tier = Tier::host,
                                   .requested = bytes,
                                   .reason = "the heap has no block of that size",
                                   .call = "operator new",
                                   .code = ENOMEM});
    }
    const DeviceAddress address = block.address();
    if (size >= populate_from) {
      MEMSTRATA_TRY_VOID(populate(*system_calls_, address, size));
    }
    Table::Entries made;
    const AllocationSpan span{.address = address, .bytes = bytes, .alignment = alignment};
    made.try_emplace(address.value(), Table::Entry{.span = span, .block = std::move(block)});
    table_->insert(made.extract(made.begin()));
    return address;
  });
}

MechanismRelease HostAllocator::release(const AllocationSpan& allocation) noexcept {
  const Table::Node node = table_->extract(allocation);
  return node.empty() ? MechanismRelease::unchanged(no_such_allocation())
                      : MechanismRelease::complete(Bytes{});
}

std::size_t HostAllocator::live_allocations() const noexcept {
  return table_->size();
}

}  // namespace memstrata::host
