// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "support/fault_script.hpp"

namespace memstrata::test {

/// What a `FakeAllocator` offers.
struct FakeOptions {
  Bytes granule{8};
  bool virtual_backing = true;
  bool shared_mapping = true;
  DeviceKey device = DeviceKey::host();
};

/// An allocator over an address space of numbers: no memory is behind it, every call is counted, and each can be
/// made to fail. Operations for `faults()`: allocate, release, release_midway, allocate_committed, commit,
/// decommit, create_prefix, map_prefix, break_shared. Thread-safe.
class FakeAllocator final : public DeviceAllocator {
 public:
  explicit FakeAllocator(FakeOptions options = {})
      : options_(options), virtual_(*this), shared_(*this) {}

  [[nodiscard]] Result<DeviceAddress> allocate(Bytes bytes, Bytes alignment) override {
    if (faults_.must_fail("allocate")) {
      return fail(refused(bytes));
    }
    const ByteRange all{.offset = {}, .size = std::max(bytes, Bytes{1})};
    return place(bytes, alignment, std::span(&all, 1));
  }

  [[nodiscard]] MechanismRelease release(const AllocationSpan& allocation) noexcept override {
    const bool refuse = faults_.must_fail("release");
    const bool midway = faults_.must_fail("release_midway");
    const MutexLock lock(mutex_);
    const auto found = live_.find(allocation.address.value());
    if (found == live_.end() || found->second.span != allocation) {
      return MechanismRelease::unchanged("no such allocation");
    }
    if (refuse) {
      return MechanismRelease::unchanged("scripted refusal");
    }
    Bytes gone{};
    for (auto& [granule, backing] : found->second.granules) {
      gone += drop(backing);
    }
    live_.erase(found);
    return midway ? MechanismRelease::partial(Bytes{}, allocation.bytes, "scripted partial release")
                  : MechanismRelease::complete(gone);
  }

  [[nodiscard]] DeviceKey device() const noexcept override { return options_.device; }

  [[nodiscard]] VirtualBacking* virtual_backing() noexcept override {
    return options_.virtual_backing ? &virtual_ : nullptr;
  }

  [[nodiscard]] SharedMapping* shared_mapping() noexcept override {
    return options_.shared_mapping ? &shared_ : nullptr;
  }

  [[nodiscard]] FaultScript& faults() noexcept { return faults_; }

  [[nodiscard]] Bytes granule() const noexcept { return options_.granule; }

  [[nodiscard]] std::size_t live_allocations() const noexcept {
    const MutexLock lock(mutex_);
    return live_.size();
  }

 private:
  static constexpr char prefix_tag = 0;

  /// The physical bytes of one prefix: alive while the handle or any mapping is.
  struct Physical {
    std::size_t mappings = 0;
    bool handle = true;
  };

  class Prefix final : public SharedDevicePrefix {
   public:
    Prefix(FakeAllocator& owner, Bytes requested, Bytes mapped)
        : owner_(owner),
          requested_(requested),
          mapped_(mapped),
          physical_(std::make_shared<Physical>()) {}

    Prefix(const Prefix&) = delete;
    Prefix& operator=(const Prefix&) = delete;
    Prefix(Prefix&&) = delete;
    Prefix& operator=(Prefix&&) = delete;

    ~Prefix() override {
      const MutexLock lock(owner_.mutex_);
      physical_->handle = false;
    }

    [[nodiscard]] DeviceAddress address() const noexcept override {
      return is_sealed() ? DeviceAddress{} : DeviceAddress{0xF000'0000ULL};
    }

    [[nodiscard]] Bytes committed_physical_bytes() const noexcept override { return mapped_; }

    [[nodiscard]] Bytes mapped_bytes() const noexcept override { return mapped_; }

    [[nodiscard]] Bytes requested_bytes() const noexcept override { return requested_; }

    [[nodiscard]] Result<void> seal() override {
      if (owner_.faults_.must_fail("seal")) {
        return fail(owner_.refused(requested_));
      }
      const MutexLock lock(owner_.mutex_);
      if (sealed_) {
        return fail(owner_.malformed(requested_, "the prefix is sealed already"));
      }
      sealed_ = true;
      return {};
    }

    [[nodiscard]] bool is_sealed() const noexcept override {
      const MutexLock lock(owner_.mutex_);
      return sealed_;
    }

    [[nodiscard]] const void* type_tag() const noexcept override { return &prefix_tag; }

    [[nodiscard]] const FakeAllocator& owner() const noexcept { return owner_; }

    [[nodiscard]] const std::shared_ptr<Physical>& physical() const noexcept { return physical_; }

   private:
    FakeAllocator& owner_;
    Bytes requested_;
    Bytes mapped_;
    std::shared_ptr<Physical> physical_;
    bool sealed_ = false;
  };

  /// One backed granule: private, or a mapping of a prefix.
  struct Granule {
    std::shared_ptr<Physical> shared;
  };

  struct Allocation {
    AllocationSpan span;
    std::map<std::uint64_t, Granule> granules;
  };

  class Virtual final : public VirtualBacking {
   public:
    explicit Virtual(FakeAllocator& owner) : owner_(owner) {}

    [[nodiscard]] Result<DeviceAddress>
    allocate_committed(Bytes bytes, Bytes alignment, std::span<const ByteRange> ranges) override {
      if (owner_.faults_.must_fail("allocate_committed")) {
        return fail(owner_.refused(bytes));
      }
      return owner_.place(bytes, alignment, ranges);
    }

    [[nodiscard]] Result<void> commit(const AllocationSpan& allocation, ByteRange range) override {
      if (owner_.faults_.must_fail("commit")) {
        return fail(owner_.refused(range.size));
      }
      const MutexLock lock(owner_.mutex_);
      MEMSTRATA_TRY(Allocation* const live, owner_.find(allocation, range));
      owner_.back(*live, range);
      return {};
    }

    [[nodiscard]] Result<Bytes> mapped_bytes(
        std::span<const AllocationCommitRange> ranges) override {
      const MutexLock lock(owner_.mutex_);
      std::set<std::pair<std::uint64_t, std::uint64_t>> touched;
      for (const AllocationCommitRange& each : ranges) {
        MEMSTRATA_TRY(const Allocation* const live, owner_.find(each.allocation, each.range));
        for (std::uint64_t g = owner_.first(each.range); g < owner_.last(each.range); ++g) {
          touched.emplace(live->span.address.value(), g);
        }
      }
      return owner_.options_.granule * touched.size();
    }

    [[nodiscard]] Result<Bytes> mapped_bytes(Bytes bytes, Bytes alignment) override {
      MEMSTRATA_TRY(const Bytes rounded, owner_.rounded(bytes, alignment));
      return rounded;
    }

    [[nodiscard]] Result<Bytes> decommit(const AllocationSpan& allocation,
                                         ByteRange range) override {
      if (owner_.faults_.must_fail("decommit")) {
        return fail(owner_.refused(range.size));
      }
      const MutexLock lock(owner_.mutex_);
      MEMSTRATA_TRY(Allocation* const live, owner_.find(allocation, range));
      const std::uint64_t granule = owner_.options_.granule.value;
      const std::uint64_t from = (range.offset.value + granule - 1) / granule;
      const bool to_end = range.end() == allocation.bytes;
      const std::uint64_t to = to_end ? owner_.last(range) : range.end().value / granule;
      Bytes gone{};
      for (std::uint64_t g = from; g < to; ++g) {
        if (auto node = live->granules.extract(g); !node.empty()) {
          gone += owner_.drop(node.mapped());
        }
      }
      return gone;
    }

    [[nodiscard]] Bytes committed_bytes(const AllocationSpan& allocation) const noexcept override {
      const MutexLock lock(owner_.mutex_);
      const auto found = owner_.live_.find(allocation.address.value());
      return found == owner_.live_.end() || found->second.span != allocation
                 ? Bytes{}
                 : owner_.options_.granule * found->second.granules.size();
    }

   private:
    FakeAllocator& owner_;
  };

  class Shared final : public SharedMapping {
   public:
    explicit Shared(FakeAllocator& owner) : owner_(owner) {}

    [[nodiscard]] Result<std::shared_ptr<SharedDevicePrefix>> create_shared_prefix(
        Bytes bytes) override {
      if (owner_.faults_.must_fail("create_prefix")) {
        return fail(owner_.refused(bytes));
      }
      if (bytes == Bytes{}) {
        return fail(owner_.malformed(bytes, "a prefix of 0 bytes"));
      }
      MEMSTRATA_TRY(const Bytes mapped, owner_.rounded(bytes, Bytes{1}));
      return std::make_shared<Prefix>(owner_, bytes, mapped);
    }

    [[nodiscard]] Result<Bytes> incremental_owned_bytes(
        const SharedDevicePrefix& prefix) const override {
      MEMSTRATA_TRY_VOID(own(prefix));
      return Bytes{};
    }

    [[nodiscard]] Result<SharedPrefixCommitInfo> commit_shared_prefix(
        const SharedDevicePrefix& prefix,
        const AllocationSpan& allocation,
        Bytes offset) override {
      if (owner_.faults_.must_fail("map_prefix")) {
        return fail(owner_.refused(prefix.mapped_bytes()));
      }
      MEMSTRATA_TRY(const Prefix* const mine, own(prefix));
      if (!mine->is_sealed()) {
        return fail(owner_.malformed(offset, "the prefix is not sealed"));
      }
      const MutexLock lock(owner_.mutex_);
      const ByteRange range{.offset = offset, .size = mine->mapped_bytes()};
      MEMSTRATA_TRY(Allocation* const live,
                    owner_.find(allocation, {.offset = offset, .size = mine->requested_bytes()}));
      if (!is_multiple(offset, owner_.options_.granule) ||
          range.end() > align_up(allocation.bytes, owner_.options_.granule)) {
        return fail(owner_.malformed(offset, "the prefix does not fit at that offset"));
      }
      for (std::uint64_t g = owner_.first(range); g < owner_.last(range); ++g) {
        if (live->granules.contains(g)) {
          return fail(owner_.malformed(offset, "something is committed there"));
        }
      }
      std::size_t granules = 0;
      for (std::uint64_t g = owner_.first(range); g < owner_.last(range); ++g, ++granules) {
        live->granules.emplace(g, Granule{mine->physical()});
        ++mine->physical()->mappings;
      }
      return SharedPrefixCommitInfo{
          .additional_owned_bytes = {}, .newly_mapped_bytes = range.size, .granules = granules};
    }

    [[nodiscard]] Result<Bytes> break_shared(const AllocationSpan& allocation,
                                             ByteRange range) override {
      if (owner_.faults_.must_fail("break_shared")) {
        return fail(owner_.refused(range.size));
      }
      const MutexLock lock(owner_.mutex_);
      MEMSTRATA_TRY(Allocation* const live, owner_.find(allocation, range));
      Bytes broken{};
      for (std::uint64_t g = owner_.first(range); g < owner_.last(range); ++g) {
        const auto found = live->granules.find(g);
        if (found != live->granules.end() && found->second.shared != nullptr) {
          static_cast<void>(owner_.drop(found->second));
          found->second = Granule{};
          broken += owner_.options_.granule;
        }
      }
      return broken;
    }

   private:
    [[nodiscard]] Result<const Prefix*> own(const SharedDevicePrefix& prefix) const {
      if (prefix.type_tag() != &prefix_tag ||
          &static_cast<const Prefix&>(prefix).owner() != &owner_) {
        return fail(owner_.malformed(prefix.requested_bytes(), "the prefix is foreign"));
      }
      return &static_cast<const Prefix&>(prefix);
    }

    FakeAllocator& owner_;
  };

  [[nodiscard]] AllocationFailed refused(Bytes bytes) const {
    return {.tier = options_.device.tier, .requested = bytes, .reason = "scripted failure"};
  }

  template <std::size_t N>
  [[nodiscard]] InvalidRequest malformed(Bytes bytes, const char (&why)[N]) const {
    return {.tier = options_.device.tier, .requested = bytes, .reason = why};
  }

  [[nodiscard]] std::uint64_t first(ByteRange range) const {
    return range.offset.value / options_.granule.value;
  }

  [[nodiscard]] std::uint64_t last(ByteRange range) const {
    return (range.end().value + options_.granule.value - 1) / options_.granule.value;
  }

  [[nodiscard]] Result<Bytes> rounded(Bytes bytes, Bytes alignment) const {
    if (!is_power_of_two(alignment.value)) {
      return fail(malformed(bytes, "the alignment is not a power of two"));
    }
    const auto whole = align_up(std::max(bytes, Bytes{1}), options_.granule);
    if (!whole || *whole > 1_TiB || alignment > 1_TiB) {
      return fail(malformed(bytes, "the size cannot be represented: rounding overflow"));
    }
    return *whole;
  }

  [[nodiscard]] Result<DeviceAddress> place(Bytes bytes,
                                            Bytes alignment,
                                            std::span<const ByteRange> ranges) {
    MEMSTRATA_TRY(const Bytes whole, rounded(bytes, alignment));
    for (const ByteRange& range : ranges) {
      if (range.empty() || !range.checked_end() || range.end() > std::max(bytes, Bytes{1})) {
        return fail(malformed(range.size, "the range is empty or ends beyond the allocation"));
      }
    }
    const MutexLock lock(mutex_);
    const Bytes start = *align_up(next_, std::max(alignment, options_.granule));
    next_ = start + whole;
    const DeviceAddress address{start.value};
    Allocation& made = live_[address.value()];
    made.span = {.address = address, .bytes = bytes, .alignment = alignment};
    for (const ByteRange& range : ranges) {
      back(made, range);
    }
    return address;
  }

  [[nodiscard]] Result<Allocation*> find(const AllocationSpan& allocation, ByteRange range)
      MEMSTRATA_REQUIRES(mutex_) {
    const auto found = live_.find(allocation.address.value());
    if (found == live_.end() || found->second.span != allocation) {
      return fail(malformed(allocation.bytes, "no such allocation"));
    }
    if (range.empty() || !range.checked_end() || range.end() > allocation.bytes) {
      return fail(malformed(range.size, "the range is empty or ends beyond the allocation"));
    }
    return &found->second;
  }

  void back(Allocation& allocation, ByteRange range) MEMSTRATA_REQUIRES(mutex_) {
    for (std::uint64_t g = first(range); g < last(range); ++g) {
      allocation.granules.try_emplace(g);
    }
  }

  /// Unmaps one granule; returns the bytes whose last reference went.
  [[nodiscard]] Bytes drop(Granule& granule) MEMSTRATA_REQUIRES(mutex_) {
    if (granule.shared == nullptr) {
      return options_.granule;
    }
    const std::size_t left = --granule.shared->mappings;
    const bool last_reference = left == 0 && !granule.shared->handle;
    granule.shared = nullptr;
    return last_reference ? options_.granule : Bytes{};
  }

  FakeOptions options_;
  FaultScript faults_;
  Virtual virtual_;
  Shared shared_;
  mutable Mutex mutex_;
  Bytes next_ MEMSTRATA_GUARDED_BY(mutex_){0x1000'0000ULL};
  std::map<std::uint64_t, Allocation> live_ MEMSTRATA_GUARDED_BY(mutex_);
};

}  // namespace memstrata::test
