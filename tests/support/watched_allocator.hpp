// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "support/fake_allocator.hpp"
#include "support/fault_script.hpp"

namespace memstrata::test {

/// A `FakeAllocator` whose every call is counted by name and told to a hook before it begins: the hook stands for
/// foreign code that calls back. Also told are device, virtual_backing and shared_mapping (the queries), end_prefix
/// and, through `on_end`, its own end. Thread-safe.
class WatchedAllocator final : public DeviceAllocator {
 public:
  using Hook = std::function<void(std::string_view operation)>;

  explicit WatchedAllocator(FakeOptions options = {})
      : fake_(options), virtual_(*this), shared_(*this) {}

  WatchedAllocator(const WatchedAllocator&) = delete;
  WatchedAllocator& operator=(const WatchedAllocator&) = delete;
  WatchedAllocator(WatchedAllocator&&) = delete;
  WatchedAllocator& operator=(WatchedAllocator&&) = delete;

  ~WatchedAllocator() override {
    if (on_end_) {
      on_end_();
    }
  }

  [[nodiscard]] Result<DeviceAddress> allocate(Bytes bytes, Bytes alignment) override {
    tell("allocate");
    return fake_.allocate(bytes, alignment);
  }

  [[nodiscard]] MechanismRelease release(const AllocationSpan& allocation) override {
    tell("release");
    return fake_.release(allocation);
  }

  [[nodiscard]] DeviceKey device() const noexcept override {
    tell("device");
    return fake_.device();
  }

  [[nodiscard]] VirtualBacking* virtual_backing() noexcept override {
    tell("virtual_backing");
    return fake_.virtual_backing() == nullptr ? nullptr : &virtual_;
  }

  [[nodiscard]] SharedMapping* shared_mapping() noexcept override {
    tell("shared_mapping");
    return fake_.shared_mapping() == nullptr ? nullptr : &shared_;
  }

  /// Called at the beginning of every call, without a lock.
  void on_call(Hook hook) {
    const MutexLock lock(mutex_);
    hook_ = std::make_shared<Hook>(std::move(hook));
  }

  /// Called when the allocator is destroyed.
  void on_end(std::function<void()> hook) { on_end_ = std::move(hook); }

  [[nodiscard]] FakeAllocator& fake() noexcept { return fake_; }

  [[nodiscard]] FaultScript& faults() noexcept { return fake_.faults(); }

  [[nodiscard]] std::size_t live_allocations() const noexcept { return fake_.live_allocations(); }

  [[nodiscard]] std::uint64_t calls(std::string_view operation) const {
    const MutexLock lock(mutex_);
    const auto found = calls_.find(operation);
    return found == calls_.end() ? 0 : found->second;
  }

  /// Calls of the shared mapping, queries of prefixes not counted.
  [[nodiscard]] std::uint64_t shared_calls() const {
    return calls("create_prefix") + calls("incremental") + calls("map_prefix") +
           calls("break_shared");
  }

  /// Calls of the virtual backing.
  [[nodiscard]] std::uint64_t virtual_calls() const {
    return calls("allocate_committed") + calls("commit") + calls("mapped_bytes") +
           calls("decommit") + calls("committed_bytes");
  }

 private:
  static constexpr char prefix_tag = 0;

  class Prefix final : public SharedDevicePrefix {
   public:
    Prefix(const WatchedAllocator& owner, std::shared_ptr<SharedDevicePrefix> inner)
        : owner_(owner), inner_(std::move(inner)) {}

    Prefix(const Prefix&) = delete;
    Prefix& operator=(const Prefix&) = delete;
    Prefix(Prefix&&) = delete;
    Prefix& operator=(Prefix&&) = delete;

    ~Prefix() override { owner_.tell("end_prefix"); }

    [[nodiscard]] DeviceAddress address() const noexcept override { return inner_->address(); }

    [[nodiscard]] Bytes committed_physical_bytes() const noexcept override {
      return inner_->committed_physical_bytes();
    }

    [[nodiscard]] Bytes mapped_bytes() const noexcept override { return inner_->mapped_bytes(); }

    [[nodiscard]] Bytes requested_bytes() const noexcept override {
      return inner_->requested_bytes();
    }

    [[nodiscard]] Result<void> seal() override {
      owner_.tell("seal");
      return inner_->seal();
    }

    [[nodiscard]] bool is_sealed() const noexcept override { return inner_->is_sealed(); }

    [[nodiscard]] const void* type_tag() const noexcept override { return &prefix_tag; }

    [[nodiscard]] const SharedDevicePrefix& inner() const noexcept { return *inner_; }

   private:
    const WatchedAllocator& owner_;
    std::shared_ptr<SharedDevicePrefix> inner_;
  };

  class Virtual final : public VirtualBacking {
   public:
    explicit Virtual(WatchedAllocator& owner) : owner_(owner) {}

    [[nodiscard]] Result<DeviceAddress>
    allocate_committed(Bytes bytes, Bytes alignment, std::span<const ByteRange> ranges) override {
      owner_.tell("allocate_committed");
      return inner().allocate_committed(bytes, alignment, ranges);
    }

    [[nodiscard]] Result<void> commit(const AllocationSpan& allocation, ByteRange range) override {
      owner_.tell("commit");
      return inner().commit(allocation, range);
    }

    [[nodiscard]] Result<Bytes> mapped_bytes(
        std::span<const AllocationCommitRange> ranges) override {
      owner_.tell("mapped_bytes");
      return inner().mapped_bytes(ranges);
    }

    [[nodiscard]] Result<Bytes> mapped_bytes(Bytes bytes, Bytes alignment) override {
      owner_.tell("mapped_bytes");
      return inner().mapped_bytes(bytes, alignment);
    }

    [[nodiscard]] Result<Bytes> decommit(const AllocationSpan& allocation,
                                         ByteRange range) override {
      owner_.tell("decommit");
      return inner().decommit(allocation, range);
    }

    [[nodiscard]] Bytes committed_bytes(const AllocationSpan& allocation) const noexcept override {
      owner_.tell("committed_bytes");
      return inner().committed_bytes(allocation);
    }

   private:
    [[nodiscard]] VirtualBacking& inner() const noexcept { return *owner_.fake_.virtual_backing(); }

    WatchedAllocator& owner_;
  };

  class Shared final : public SharedMapping {
   public:
    explicit Shared(WatchedAllocator& owner) : owner_(owner) {}

    [[nodiscard]] Result<std::shared_ptr<SharedDevicePrefix>> create_shared_prefix(
        Bytes bytes) override {
      owner_.tell("create_prefix");
      MEMSTRATA_TRY(auto made, inner().create_shared_prefix(bytes));
      return std::make_shared<Prefix>(owner_, std::move(made));
    }

    [[nodiscard]] Result<Bytes> incremental_owned_bytes(
        const SharedDevicePrefix& prefix) const override {
      owner_.tell("incremental");
      return inner().incremental_owned_bytes(unwrapped(prefix));
    }

    [[nodiscard]] Result<SharedPrefixCommitInfo> commit_shared_prefix(
        const SharedDevicePrefix& prefix,
        const AllocationSpan& allocation,
        Bytes offset) override {
      owner_.tell("map_prefix");
      return inner().commit_shared_prefix(unwrapped(prefix), allocation, offset);
    }

    [[nodiscard]] Result<Bytes> break_shared(const AllocationSpan& allocation,
                                             ByteRange range) override {
      owner_.tell("break_shared");
      return inner().break_shared(allocation, range);
    }

   private:
    /// What the fake made; it refuses a foreign prefix itself.
    [[nodiscard]] static const SharedDevicePrefix& unwrapped(const SharedDevicePrefix& prefix) {
      return prefix.type_tag() == &prefix_tag ? static_cast<const Prefix&>(prefix).inner() : prefix;
    }

    [[nodiscard]] SharedMapping& inner() const noexcept { return *owner_.fake_.shared_mapping(); }

    WatchedAllocator& owner_;
  };

  void tell(std::string_view operation) const {
    std::shared_ptr<Hook> hook;
    {
      const MutexLock lock(mutex_);
      ++calls_[std::string(operation)];
      hook = hook_;
    }
    if (hook != nullptr) {
      (*hook)(operation);
    }
  }

  mutable FakeAllocator fake_;
  Virtual virtual_;
  Shared shared_;
  std::function<void()> on_end_;
  mutable Mutex mutex_;
  std::shared_ptr<Hook> hook_ MEMSTRATA_GUARDED_BY(mutex_);
  mutable std::map<std::string, std::uint64_t, std::less<>> calls_ MEMSTRATA_GUARDED_BY(mutex_);
};

}  // namespace memstrata::test
