// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"

namespace memstrata::detail {

/// A registered provider context: the caller's resource, the lifecycle, and the number of pins, the last two in one
/// word, so that no pin is taken on a context that has begun to end. Thread-safe.
class ProviderContextRecord {
 public:
  /// The most pins that the word can count.
  static constexpr std::uint64_t largest_pin_count = (std::uint64_t{1} << 62U) - 1;

  ProviderContextRecord(ProviderContextIdentity identity,
                        DeviceKey device,
                        std::shared_ptr<void> resource,
                        std::uint64_t most_pins) noexcept
      : identity_(identity),
        device_(device),
        resource_(std::move(resource)),
        most_pins_(most_pins) {}

  [[nodiscard]] ProviderContextIdentity identity() const noexcept { return identity_; }

  [[nodiscard]] DeviceKey device() const noexcept { return device_; }

  [[nodiscard]] ProviderContextLifecycle lifecycle() const noexcept {
    return lifecycle_of(word_.load(std::memory_order_acquire));
  }

  [[nodiscard]] std::uint64_t pins() const noexcept {
    return word_.load(std::memory_order_acquire) & largest_pin_count;
  }

  /// What came of an attempt to pin.
  enum class Pinned : std::uint8_t { yes, unavailable, overflow };

  [[nodiscard]] Pinned try_pin() noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    do {
      if (lifecycle_of(word) != ProviderContextLifecycle::active) {
        return Pinned::unavailable;
      }
      if ((word & largest_pin_count) >= most_pins_) {
        return Pinned::overflow;
      }
    } while (!word_.compare_exchange_weak(
        word, word + 1, std::memory_order_acquire, std::memory_order_relaxed));
    return Pinned::yes;
  }

  // Release: what the pin's holder did is seen by whoever sees that the pin is gone.
  void unpin() noexcept { word_.fetch_sub(1, std::memory_order_release); }

  /// Lets no more pins through, if there is none. False, and nothing changed, if there is one.
  [[nodiscard]] bool close_if_unpinned() noexcept {
    std::uint64_t word = word_.load(std::memory_order_acquire);
    do {
      if ((word & largest_pin_count) != 0) {
        return false;
      }
    } while (!word_.compare_exchange_weak(word,
                                          after(word, ProviderContextEvent::retire),
                                          std::memory_order_acq_rel,
                                          std::memory_order_acquire));
    return true;
  }

  /// Applies an event; one that is not allowed changes nothing.
  void apply(ProviderContextEvent event) noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    while (!word_.compare_exchange_weak(
        word, after(word, event), std::memory_order_acq_rel, std::memory_order_relaxed)) {
    }
  }

 private:
  [[nodiscard]] static ProviderContextLifecycle lifecycle_of(std::uint64_t word) noexcept {
    return static_cast<ProviderContextLifecycle>(word >> 62U);
  }

  [[nodiscard]] static std::uint64_t after(std::uint64_t word,
                                           ProviderContextEvent event) noexcept {
    const ProviderContextLifecycle now = lifecycle_of(word);
    return (word & largest_pin_count) |
           (std::uint64_t{std::to_underlying(next(now, event).value_or(now))} << 62U);
  }

  ProviderContextIdentity identity_;
  DeviceKey device_;
  std::shared_ptr<void> resource_;
  std::uint64_t most_pins_;
  std::atomic<std::uint64_t> word_{0};  // two bits of lifecycle above 62 bits of pins
};

/// A registered authority: the caller's resource.
struct AuthorityRecord {
  AuthorityIdentity identity;
  DeviceKey device;
  std::shared_ptr<void> resource;
};

}  // namespace memstrata::detail
