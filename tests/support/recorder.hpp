// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>

#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "support/fault_script.hpp"

namespace memstrata::test {

/// How a recorder answers one release.
struct ReleaseAnswer {
  enum class Kind : std::uint8_t { complete, partial, unchanged, throws };
  Kind kind = Kind::complete;
  Bytes unmapped{};
  Bytes retained{};
};

/// An eager allocator over host memory that remembers what is live: a release of anything else fails the test. What
/// it did not release, or only in part, goes back to the system with the recorder. Operations for `faults()`:
/// allocate, allocate_throws, release, release_midway, release_throws. Thread-safe.
class Recorder final : public DeviceAllocator {
 public:
  using Hook = std::function<void(const char* operation)>;

  explicit Recorder(DeviceKey device = DeviceKey::host()) : device_(device) {}

  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  Recorder(Recorder&&) = delete;
  Recorder& operator=(Recorder&&) = delete;

  ~Recorder() override {
    for (const auto& [address, span] : live_) {
      free_memory(span);
    }
    if (on_end_) {
      on_end_();
    }
  }

  [[nodiscard]] Result<DeviceAddress> allocate(Bytes bytes, Bytes alignment) override {
    tell("allocate");
    if (faults_.must_fail("allocate_throws")) {
      throw std::runtime_error("scripted throw");
    }
    if (faults_.must_fail("allocate")) {
      return fail(
          AllocationFailed{.tier = device_.tier, .requested = bytes, .reason = "scripted failure"});
    }
    return make(bytes, alignment);
  }

  /// Memory of this mechanism that no allocation call of the stack made.
  [[nodiscard]] DeviceAddress make(Bytes bytes, Bytes alignment) {
    const AllocationSpan span{
        .address = DeviceAddress{reinterpret_cast<std::uint64_t>(
            ::operator new(std::max(bytes, Bytes{1}).value, std::align_val_t{alignment.value}))},
        .bytes = bytes,
        .alignment = alignment};
    const MutexLock lock(mutex_);
    live_.emplace(span.address.value(), span);
    return span.address;
  }

  [[nodiscard]] MechanismRelease release(const AllocationSpan& allocation) override {
    tell("release");
    ReleaseAnswer answer = next_answer();
    if (faults_.must_fail("release_throws") || answer.kind == ReleaseAnswer::Kind::throws) {
      throw std::runtime_error("scripted throw");
    }
    if (faults_.must_fail("release") || answer.kind == ReleaseAnswer::Kind::unchanged) {
      return MechanismRelease::unchanged("driver busy");
    }
    if (faults_.must_fail("release_midway")) {
      answer = {.kind = ReleaseAnswer::Kind::partial,
                .unmapped = Bytes{allocation.bytes.value / 2},
                .retained = allocation.bytes - Bytes{allocation.bytes.value / 2}};
    }
    const MutexLock lock(mutex_);
    const auto found = live_.find(allocation.address.value());
    if (found == live_.end() || found->second != allocation) {
      ADD_FAILURE() << "release of what is not live: " << allocation.address.value();
      return MechanismRelease::unchanged("not live");
    }
    if (answer.kind == ReleaseAnswer::Kind::partial) {
      return MechanismRelease::partial(answer.unmapped, answer.retained, "stopped midway");
    }
    free_memory(found->second);
    live_.erase(found);
    return MechanismRelease::complete(answer.unmapped);
  }

  [[nodiscard]] DeviceKey device() const noexcept override { return device_; }

  /// The next release answers this; the ones after it complete.
  void answer_next(ReleaseAnswer answer) {
    const MutexLock lock(mutex_);
    answers_.push_back(answer);
  }

  /// Called at the beginning of every call, without a lock.
  void on_call(Hook hook) {
    const MutexLock lock(mutex_);
    hook_ = std::make_shared<Hook>(std::move(hook));
  }

  /// Called when the recorder is destroyed.
  void on_end(std::function<void()> hook) { on_end_ = std::move(hook); }

  [[nodiscard]] FaultScript& faults() noexcept { return faults_; }

  [[nodiscard]] std::uint64_t calls(const char* operation) const {
    const MutexLock lock(mutex_);
    const auto found = calls_.find(operation);
    return found == calls_.end() ? 0 : found->second;
  }

  [[nodiscard]] std::uint64_t releases() const { return calls("release"); }

  [[nodiscard]] std::size_t live() const {
    const MutexLock lock(mutex_);
    return live_.size();
  }

  [[nodiscard]] bool is_live(DeviceAddress address) const {
    const MutexLock lock(mutex_);
    return live_.contains(address.value());
  }

 private:
  static void free_memory(const AllocationSpan& span) noexcept {
    ::operator delete(reinterpret_cast<void*>(span.address.value()),
                      std::align_val_t{span.alignment.value});
  }

  void tell(const char* operation) {
    std::shared_ptr<Hook> hook;
    {
      const MutexLock lock(mutex_);
      ++calls_[operation];
      hook = hook_;
    }
    if (hook != nullptr) {
      (*hook)(operation);
    }
  }

  [[nodiscard]] ReleaseAnswer next_answer() {
    const MutexLock lock(mutex_);
    if (answers_.empty()) {
      return {};
    }
    const ReleaseAnswer answer = answers_.front();
    answers_.pop_front();
    return answer;
  }

  DeviceKey device_;
  FaultScript faults_;
  std::function<void()> on_end_;
  mutable Mutex mutex_;
  std::shared_ptr<Hook> hook_ MEMSTRATA_GUARDED_BY(mutex_);
  std::map<std::string, std::uint64_t, std::less<>> calls_ MEMSTRATA_GUARDED_BY(mutex_);
  std::deque<ReleaseAnswer> answers_ MEMSTRATA_GUARDED_BY(mutex_);
  std::map<std::uint64_t, AllocationSpan> live_ MEMSTRATA_GUARDED_BY(mutex_);
};

/// An allocator that always gives the same address, for one live allocation at a time.
class ReusingAllocator final : public DeviceAllocator {
 public:
  [[nodiscard]] Result<DeviceAddress> allocate(Bytes bytes, Bytes /*alignment*/) override {
    if (live_) {
      return fail(AllocationFailed{
          .tier = Tier::host, .requested = bytes, .reason = "one allocation at a time"});
    }
    live_ = true;
    return DeviceAddress{0x1000};
  }

  [[nodiscard]] MechanismRelease release(const AllocationSpan& /*allocation*/) override {
    live_ = false;
    return MechanismRelease::complete(Bytes{});
  }

  [[nodiscard]] DeviceKey device() const noexcept override { return DeviceKey::host(); }

  /// Frees the address behind the stack's back.
  void free_by_hand() noexcept { live_ = false; }

 private:
  bool live_ = false;
};

}  // namespace memstrata::test
