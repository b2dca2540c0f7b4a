// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/core/error/binding_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/governance/binding/binding_registry.hpp"
#include "memstrata/governance/binding/memory_binding.hpp"
#include "support/recorder.hpp"

namespace memstrata::test {

/// The value of a result that the test expects; a failure says the error and stops the program's test.
template <class T, class E>
[[nodiscard]] T must(Result<T, E> result) {
  if (!result) {
    throw std::runtime_error("unexpected: " + result.error().message());
  }
  if constexpr (!std::is_void_v<T>) {
    return *std::move(result);
  }
}

/// As `must`, where only the success matters.
template <class T, class E>
void must_do(Result<T, E> result) {
  static_cast<void>(must(std::move(result)));
}

/// The alternative that the error of a result must be.
template <class Alternative, class T>
[[nodiscard]] Alternative refusal(const Result<T, BindingError>& result) {
  if (result) {
    throw std::runtime_error("unexpected success");
  }
  if (const auto* error = result.error().template as<Alternative>()) {
    return *error;
  }
  throw std::runtime_error("unexpected: " + result.error().message());
}

/// Who was destroyed, in order. Thread-safe.
class DropLog {
 public:
  void note(std::string name) {
    const std::scoped_lock lock(mutex_);
    names_.push_back(std::move(name));
  }

  [[nodiscard]] std::vector<std::string> names() const {
    const std::scoped_lock lock(mutex_);
    return names_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
};

/// A resource whose destruction is noted, and can do something.
class Probe {
 public:
  Probe(std::shared_ptr<DropLog> log, std::string name)
      : log_(std::move(log)), name_(std::move(name)) {}

  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  Probe(Probe&&) = delete;
  Probe& operator=(Probe&&) = delete;

  ~Probe() {
    if (at_end) {
      at_end();
    }
    log_->note(name_);
  }

  std::function<void()> at_end;

 private:
  std::shared_ptr<DropLog> log_;
  std::string name_;
};

/// A registry with a context, an authority and one mechanism over a `Recorder`, and a binding to it. The rig holds
/// no reference of its own to context and authority, so that `drops` shows when the stack lets go.
struct BindingRig {
  explicit BindingRig(DeviceKey key = DeviceKey::host(), BindingRegistryOptions options = {})
      : device(key),
        registry(must(BindingRegistry::create(options))),
        context(must(
            registry.register_provider_context(key, std::make_shared<Probe>(drops, "context")))),
        authority(
            must(registry.register_authority(key, std::make_shared<Probe>(drops, "authority")))),
        allocator(std::make_shared<Recorder>(key)),
        mechanism(must(registry.register_allocator(context, authority, allocator))),
        binding(must(registry.bind(mechanism))) {
    allocator->on_end([log = drops] { log->note("allocator"); });
  }

  [[nodiscard]] MechanismSnapshot snapshot() const { return binding.mechanism_snapshot(); }

  [[nodiscard]] OwningAllocation allocate(Bytes bytes = Bytes{4096},
                                          Bytes alignment = Bytes{64}) const {
    return must(binding.allocate(bytes, alignment));
  }

  DeviceKey device;
  std::shared_ptr<DropLog> drops = std::make_shared<DropLog>();
  BindingRegistry registry;
  RegisteredProviderContext context;
  RegisteredAuthority authority;
  std::shared_ptr<Recorder> allocator;
  RegisteredMechanism mechanism;
  MemoryBinding binding;
};

/// Nothing is owned and nothing goes on.
inline void expect_quiescent(const MechanismSnapshot& now) {
  EXPECT_EQ(now.live_allocations, 0U);
  EXPECT_EQ(now.active_operations, 0U);
  EXPECT_EQ(now.queued_releases, 0U);
  EXPECT_EQ(now.quarantined_allocations, 0U);
  EXPECT_EQ(now.quarantined_bytes, Bytes{});
  EXPECT_FALSE(now.retains_ownership());
}

}  // namespace memstrata::test
