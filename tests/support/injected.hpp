// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "memstrata/contract/context_pin.hpp"
#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/fence.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/provider_context_pin_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/deferred_release.hpp"
#include "support/fake_allocator.hpp"
#include "support/injection.hpp"

// The doubles whose every call may meet the fault of an `Injector`. Single-threaded.
namespace memstrata::test {

/// A resource of a caller, whose end is a call of foreign code.
struct InjectedResource {
  explicit InjectedResource(Injector& from) : injector(from) {}

  InjectedResource(const InjectedResource&) = delete;
  InjectedResource& operator=(const InjectedResource&) = delete;
  InjectedResource(InjectedResource&&) = delete;
  InjectedResource& operator=(InjectedResource&&) = delete;

  ~InjectedResource() { injector.pass(Site::destroy); }

  Injector& injector;
};

/// A prefix of a `FakeAllocator` whose seal and end are calls of foreign code.
class InjectedPrefix final : public SharedDevicePrefix {
 public:
  InjectedPrefix(Injector& injector, std::shared_ptr<SharedDevicePrefix> inner)
      : injector_(injector), inner_(std::move(inner)) {}

  InjectedPrefix(const InjectedPrefix&) = delete;
  InjectedPrefix& operator=(const InjectedPrefix&) = delete;
  InjectedPrefix(InjectedPrefix&&) = delete;
  InjectedPrefix& operator=(InjectedPrefix&&) = delete;

  ~InjectedPrefix() override { injector_.pass(Site::destroy); }

  [[nodiscard]] DeviceAddress address() const noexcept override { return inner_->address(); }

  [[nodiscard]] Bytes committed_physical_bytes() const noexcept override {
    return inner_->committed_physical_bytes();
  }

  [[nodiscard]] Bytes mapped_bytes() const noexcept override { return inner_->mapped_bytes(); }

  [[nodiscard]] Bytes requested_bytes() const noexcept override {
    return inner_->requested_bytes();
  }

  [[nodiscard]] Result<void> seal() override {
    if (injector_.call(Site::capability) != Conduct::ordinary) {
      return fail(AllocationFailed{
          .tier = Tier::host, .requested = inner_->requested_bytes(), .reason = "injected"});
    }
    return inner_->seal();
  }

  [[nodiscard]] bool is_sealed() const noexcept override { return inner_->is_sealed(); }

  [[nodiscard]] const void* type_tag() const noexcept override { return inner_->type_tag(); }

  [[nodiscard]] const SharedDevicePrefix& inner() const noexcept { return *inner_; }

 private:
  Injector& injector_;
  std::shared_ptr<SharedDevicePrefix> inner_;
};

/// A `FakeAllocator` with both capabilities, every call of which is a call of foreign code. The fake outlives it and
/// says what is really live; a release of anything else fails the test.
class InjectedAllocator final : public DeviceAllocator {
 public:
  InjectedAllocator(Injector& injector, std::shared_ptr<FakeAllocator> inner)
      : injector_(injector), inner_(std::move(inner)), virtual_(*this), shared_(*this) {}

  InjectedAllocator(const InjectedAllocator&) = delete;
  InjectedAllocator& operator=(const InjectedAllocator&) = delete;
  InjectedAllocator(InjectedAllocator&&) = delete;
  InjectedAllocator& operator=(InjectedAllocator&&) = delete;

  ~InjectedAllocator() override { injector_.pass(Site::destroy); }

  /// What a release that stops midway retains.
  [[nodiscard]] static Bytes half(Bytes bytes) noexcept { return Bytes{(bytes.value + 1) / 2}; }

  [[nodiscard]] Result<DeviceAddress> allocate(Bytes bytes, Bytes alignment) override {
    if (injector_.call(Site::allocate) != Conduct::ordinary) {
      return fail(refused(bytes));
    }
    return inner_->allocate(bytes, alignment);
  }

  [[nodiscard]] MechanismRelease release(const AllocationSpan& allocation) override {
    switch (injector_.call(Site::release)) {
      case Conduct::refuse:
        return MechanismRelease::unchanged("injected");
      case Conduct::stop_midway:
        return MechanismRelease::partial(Bytes{}, half(allocation.bytes), "injected");
      case Conduct::ordinary:
      case Conduct::claim:
        break;
    }
    MechanismRelease answer = inner_->release(allocation);
    EXPECT_TRUE(answer.is_complete())
        << "release of what is not live: " << allocation.address.value();
    return answer;
  }

  [[nodiscard]] DeviceKey device() const noexcept override { return inner_->device(); }

  [[nodiscard]] VirtualBacking* virtual_backing() noexcept override { return &virtual_; }

  [[nodiscard]] SharedMapping* shared_mapping() noexcept override { return &shared_; }

 private:
  class Virtual final : public VirtualBacking {
   public:
    explicit Virtual(InjectedAllocator& owner) : owner_(owner) {}

    [[nodiscard]] Result<DeviceAddress>
    allocate_committed(Bytes bytes, Bytes alignment, std::span<const ByteRange> ranges) override {
      if (owner_.injector_.call(Site::allocate) != Conduct::ordinary) {
        return fail(owner_.refused(bytes));
      }
      return inner().allocate_committed(bytes, alignment, ranges);
    }

    [[nodiscard]] Result<void> commit(const AllocationSpan& allocation, ByteRange range) override {
      MEMSTRATA_TRY_VOID(owner_.call(Site::capability, range.size));
      return inner().commit(allocation, range);
    }

    [[nodiscard]] Result<void, BatchCommitFailure> commit_all(
        std::span<const AllocationCommitRange> ranges) override {
      switch (owner_.injector_.call(Site::batch)) {
        case Conduct::refuse:
          return fail(BatchCommitFailure{.error = owner_.refused(Bytes{}), .committed_ranges = 0});
        case Conduct::stop_midway:
          EXPECT_TRUE(inner().commit(ranges.front().allocation, ranges.front().range).has_value());
          return fail(BatchCommitFailure{.error = owner_.refused(Bytes{}), .committed_ranges = 1});
        case Conduct::ordinary:
        case Conduct::claim:
          break;
      }
      return inner().commit_all(ranges);
    }

    [[nodiscard]] Result<Bytes> mapped_bytes(
        std::span<const AllocationCommitRange> ranges) override {
      MEMSTRATA_TRY_VOID(owner_.call(Site::capability, Bytes{}));
      return inner().mapped_bytes(ranges);
    }

    [[nodiscard]] Result<Bytes> mapped_bytes(Bytes bytes, Bytes alignment) override {
      MEMSTRATA_TRY_VOID(owner_.call(Site::capability, bytes));
      return inner().mapped_bytes(bytes, alignment);
    }

    [[nodiscard]] Result<Bytes> decommit(const AllocationSpan& allocation,
                                         ByteRange range) override {
      MEMSTRATA_TRY_VOID(owner_.call(Site::capability, range.size));
      return inner().decommit(allocation, range);
    }

    [[nodiscard]] Bytes committed_bytes(const AllocationSpan& allocation) const noexcept override {
      owner_.injector_.pass(Site::query);
      return inner().committed_bytes(allocation);
    }

   private:
    [[nodiscard]] VirtualBacking& inner() const noexcept {
      return *owner_.inner_->virtual_backing();
    }

    InjectedAllocator& owner_;
  };

  class Shared final : public SharedMapping {
   public:
    explicit Shared(InjectedAllocator& owner) : owner_(owner) {}

    [[nodiscard]] Result<std::shared_ptr<SharedDevicePrefix>> create_shared_prefix(
        Bytes bytes) override {
      MEMSTRATA_TRY_VOID(owner_.call(Site::capability, bytes));
      MEMSTRATA_TRY(auto made, inner().create_shared_prefix(bytes));
      return std::make_shared<InjectedPrefix>(owner_.injector_, std::move(made));
    }

    [[nodiscard]] Result<Bytes> incremental_owned_bytes(
        const SharedDevicePrefix& prefix) const override {
      MEMSTRATA_TRY_VOID(owner_.call(Site::capability, Bytes{}));
      return inner().incremental_owned_bytes(unwrapped(prefix));
    }

    [[nodiscard]] Result<SharedPrefixCommitInfo> commit_shared_prefix(
        const SharedDevicePrefix& prefix,
        const AllocationSpan& allocation,
        Bytes offset) override {
      MEMSTRATA_TRY_VOID(owner_.call(Site::capability, Bytes{}));
      return inner().commit_shared_prefix(unwrapped(prefix), allocation, offset);
    }

    [[nodiscard]] Result<Bytes> break_shared(const AllocationSpan& allocation,
                                             ByteRange range) override {
      MEMSTRATA_TRY_VOID(owner_.call(Site::capability, range.size));
      return inner().break_shared(allocation, range);
    }

   private:
    [[nodiscard]] SharedMapping& inner() const noexcept { return *owner_.inner_->shared_mapping(); }

    [[nodiscard]] static const SharedDevicePrefix& unwrapped(
        const SharedDevicePrefix& prefix) noexcept {
      return static_cast<const InjectedPrefix&>(prefix).inner();
    }

    InjectedAllocator& owner_;
  };

  [[nodiscard]] AllocationFailed refused(Bytes bytes) const {
    return {.tier = inner_->device().tier, .requested = bytes, .reason = "injected"};
  }

  [[nodiscard]] Result<void> call(Site site, Bytes bytes) const {
    if (injector_.call(site) != Conduct::ordinary) {
      return fail(refused(bytes));
    }
    return {};
  }

  Injector& injector_;
  std::shared_ptr<FakeAllocator> inner_;
  Virtual virtual_;
  Shared shared_;
};

/// Fences of a manual step: pending until `complete` is called, then what the injector makes of them.
class InjectedFences final : public FenceSource {
 public:
  explicit InjectedFences(Injector& injector) : injector_(injector) {}

  [[nodiscard]] Result<void> record(FenceSet& into) override {
    if (injector_.call(Site::record) != Conduct::ordinary) {
      return fail(AllocationFailed{.tier = Tier::host, .requested = {}, .reason = "injected"});
    }
    into.add(std::make_shared<Mark>(injector_, done_));
    return {};
  }

  void complete() noexcept { *done_ = true; }

 private:
  class Mark final : public Fence {
   public:
    Mark(Injector& injector, std::shared_ptr<bool> done)
        : injector_(injector), done_(std::move(done)) {}

    [[nodiscard]] FenceState state() const noexcept override {
      if (end_ == FenceState::pending) {
        const Conduct conduct = injector_.call(Site::fence);
        if (conduct != Conduct::ordinary) {
          end_ = conduct == Conduct::refuse ? FenceState::failed : FenceState::lost;
        } else if (*done_) {
          end_ = FenceState::completed;
        }
      }
      return end_;
    }

   private:
    Injector& injector_;
    std::shared_ptr<bool> done_;
    mutable FenceState end_ = FenceState::pending;
  };

  Injector& injector_;
  std::shared_ptr<bool> done_ = std::make_shared<bool>(false);
};

/// Pins of a registry's context, the taking and ending of which are calls of foreign code.
class InjectedPins final : public ProviderContextPinSource {
 public:
  InjectedPins(Injector& injector, std::shared_ptr<ProviderContextPinSource> inner)
      : injector_(injector), inner_(std::move(inner)) {}

  [[nodiscard]] ProviderContextIdentity context() const noexcept override {
    return inner_->context();
  }

  [[nodiscard]] Result<std::unique_ptr<ProviderContextPin>, ProviderContextPinError> pin()
      override {
    if (injector_.call(Site::pin) != Conduct::ordinary) {
      return fail(ProviderContextPinError(PinCountOverflow{.context = inner_->context()}));
    }
    MEMSTRATA_TRY(auto pinned, inner_->pin());
    return std::make_unique<Pin>(injector_, std::move(pinned));
  }

 private:
  class Pin final : public ProviderContextPin {
   public:
    Pin(Injector& injector, std::unique_ptr<ProviderContextPin> inner)
        : injector_(injector), inner_(std::move(inner)) {}

    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    Pin(Pin&&) = delete;
    Pin& operator=(Pin&&) = delete;

    ~Pin() override { injector_.pass(Site::destroy); }

    [[nodiscard]] ProviderContextIdentity context() const noexcept override {
      return inner_->context();
    }

   private:
    Injector& injector_;
    std::unique_ptr<ProviderContextPin> inner_;
  };

  Injector& injector_;
  std::shared_ptr<ProviderContextPinSource> inner_;
};

/// A queue that keeps what it takes until it is drained by hand, and misbehaves where the injector says so.
class InjectedQueue final : public DeferredReleaseQueue {
 public:
  explicit InjectedQueue(Injector& injector) : injector_(injector) {}

  [[nodiscard]] std::optional<DeferredEnqueueRejection> enqueue(
      PreparedAllocationRelease&& request) override {
    switch (injector_.call(Site::enqueue)) {
      case Conduct::refuse:
        return DeferredEnqueueRejection::full;
      case Conduct::stop_midway: {
        const PreparedAllocationRelease destroyed(std::move(request));
        return std::nullopt;
      }
      case Conduct::claim:
        return std::nullopt;
      case Conduct::ordinary:
        break;
    }
    requests_.push_back(std::move(request));
    return std::nullopt;
  }

  [[nodiscard]] std::size_t pending() const noexcept override { return requests_.size(); }

  void drain() {
    ReleaseBatch batch;
    for (PreparedAllocationRelease& each : std::exchange(requests_, {})) {
      static_cast<void>(batch.execute(each));
    }
  }

 private:
  Injector& injector_;
  std::vector<PreparedAllocationRelease> requests_;
};

}  // namespace memstrata::test
