// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/governance/lease_ledger.hpp"
#include "memstrata/governance/ledger_governor.hpp"
#include "memstrata/mechanism/host/host_allocator.hpp"
#include "memstrata/mechanism/host/host_virtual_allocator.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "support/fake_allocator.hpp"
#include "support/scripted_governor.hpp"
#include "support/scripted_system_calls.hpp"

namespace memstrata::test {

/// A subject makes one allocator and can refuse its next physical step, or the `nth` mapping of a prefix. `touchable`: the processor may use what
/// it allocates. `charges`: it leases before it commits.

/// Address space of numbers.
class FakeSubject {
 public:
  static constexpr bool touchable = false;
  static constexpr bool charges = false;

  [[nodiscard]] DeviceAllocator& allocator() { return allocator_; }

  [[nodiscard]] Bytes granule() const { return allocator_.granule(); }

  void refuse_next_commit() { allocator_.faults().fail_next("commit"); }

  void refuse_map(std::uint64_t nth) { allocator_.faults().fail_nth("map_prefix", nth); }

  void refuse_next_seal() { allocator_.faults().fail_next("seal"); }

 private:
  FakeAllocator allocator_;
};

/// The eager allocator, without capabilities.
class EagerHostSubject {
 public:
  static constexpr bool touchable = true;
  static constexpr bool charges = false;

  [[nodiscard]] DeviceAllocator& allocator() { return allocator_; }

 private:
  host::HostAllocator allocator_;
};

/// Real memory with both capabilities, over a kernel that can be told to refuse.
class VirtualHostSubject {
 public:
  static constexpr bool touchable = true;
  static constexpr bool charges = false;

  VirtualHostSubject() : VirtualHostSubject(host::PageBackingOptions{}) {}

  [[nodiscard]] DeviceAllocator& allocator() { return *allocator_; }

  [[nodiscard]] Bytes granule() const { return allocator_->granularity(); }

  void refuse_next_commit() { kernel_->faults().fail_next("mprotect"); }

  void refuse_map(std::uint64_t nth) { kernel_->faults().fail_nth("mmap", nth); }

  void refuse_next_seal() { kernel_->faults().fail_next("munmap"); }

 protected:
  explicit VirtualHostSubject(host::PageBackingOptions options) {
    options.system_calls = kernel_;
    auto made = host::HostVirtualAllocator::create(std::move(options));
    allocator_ = std::move(made).value();
  }

 private:
  std::shared_ptr<ScriptedSystemCalls> kernel_ = std::make_shared<ScriptedSystemCalls>();
  std::unique_ptr<host::HostVirtualAllocator> allocator_;
};

/// The defaults with one or two of them changed.
struct Options {
  [[nodiscard]] static host::PageBackingOptions of_granule(Bytes granule, bool huge_pages) {
    host::PageBackingOptions options;
    options.granule = granule;
    options.huge_pages = huge_pages;
    return options;
  }

  [[nodiscard]] static host::PageBackingOptions charging(std::shared_ptr<MemoryGovernor> governor) {
    host::PageBackingOptions options;
    options.governor = std::move(governor);
    return options;
  }
};

/// The same with granules of 2 MiB in huge pages.
class HugePageSubject : public VirtualHostSubject {
 public:
  HugePageSubject() : VirtualHostSubject(Options::of_granule(2_MiB, true)) {}
};

/// The same with granules of a few pages that are no power of two.
class OddGranuleSubject : public VirtualHostSubject {
 public:
  OddGranuleSubject() : VirtualHostSubject(Options::of_granule(host::page_size() * 3, false)) {}
};

/// The same, charging a third party's governor.
class GovernedHostSubject : public VirtualHostSubject {
 public:
  static constexpr bool charges = true;

  GovernedHostSubject()
      : VirtualHostSubject(Options::charging(ScriptedGovernor::with_limit(4_GiB))) {}
};

/// The same, charging a ledger.
class LedgerHostSubject : public VirtualHostSubject {
 public:
  static constexpr bool charges = true;

  LedgerHostSubject()
      : VirtualHostSubject(Options::charging(
            std::make_shared<LedgerGovernor>(DeviceKey::host(), TierLimits::all(4_GiB)))) {}
};

}  // namespace memstrata::test
