// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/cache_line.hpp"
#include "memstrata/core/tier.hpp"

namespace memstrata {

/// Which physical device inside a tier. Two accelerators are one tier but two keys.
struct DeviceKey {
  Tier tier;
  std::uint32_t index;

  /// The memory of this machine's processors.
  [[nodiscard]] static constexpr DeviceKey host() noexcept {
    return {.tier = Tier::host, .index = 0};
  }

  [[nodiscard]] static constexpr DeviceKey device(std::uint32_t index) noexcept {
    return {.tier = Tier::device, .index = index};
  }

  [[nodiscard]] friend constexpr bool operator==(DeviceKey, DeviceKey) noexcept = default;
};

/// An address in the space of some device. It is a number, not a pointer: the processor may have no right to
/// touch it. Only a host mechanism turns one into a pointer.
class DeviceAddress {
 public:
  constexpr DeviceAddress() noexcept = default;

  explicit constexpr DeviceAddress(std::uint64_t value) noexcept : value_(value) {}

  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

  [[nodiscard]] constexpr bool is_null() const noexcept { return value_ == 0; }

  [[nodiscard]] friend constexpr auto operator<=>(DeviceAddress, DeviceAddress) noexcept = default;

  [[nodiscard]] friend constexpr DeviceAddress operator+(DeviceAddress address,
                                                         Bytes offset) noexcept {
    return DeviceAddress{(Bytes{address.value_} + offset).value};
  }

 private:
  std::uint64_t value_ = 0;
};

/// Who holds leased bytes. An opaque number that the caller chooses in this layer.
struct HolderId {
  std::uint64_t value = 0;
  [[nodiscard]] friend constexpr auto operator<=>(HolderId, HolderId) noexcept = default;
};

/// Serial numbers that follow each other: `first`, `first` + 1, ..., `count` of them.
struct SerialRun {
  std::uint64_t first;
  std::uint64_t count;
};

/// Issues serial numbers 1, 2, 3, ... and refuses for ever once the last one is gone; it never wraps and never
/// issues the largest number. Thread-safe.
class SerialSource {
 public:
  constexpr SerialSource() noexcept = default;

  /// Starts at `next`; for tests of exhaustion.
  explicit constexpr SerialSource(std::uint64_t next) noexcept : next_(next) {}

  /// The next serial, or nothing when they are used up.
  [[nodiscard]] std::optional<std::uint64_t> issue() noexcept {
    const auto run = issue_run(1);
    return run ? std::optional(run->first) : std::nullopt;
  }

  /// Up to `most` serials at once, at least one; or nothing when they are used up. A caller that keeps some for
  /// later asks `exhausted()` before it uses them, so that nothing is issued after the first refusal.
  [[nodiscard]] std::optional<SerialRun> issue_run(std::uint64_t most) noexcept {
    // Relaxed: a serial only has to be unique, it publishes nothing.
    std::uint64_t next = next_.load(std::memory_order_relaxed);
    std::uint64_t count = 0;
    do {
      count = std::min(most, std::numeric_limits<std::uint64_t>::max() - next);
      if (count == 0) {
        exhausted_.store(true, std::memory_order_relaxed);
        return std::nullopt;
      }
    } while (!next_.compare_exchange_weak(next, next + count, std::memory_order_relaxed));
    return SerialRun{.first = next, .count = count};
  }

  /// Whether a request was refused because the serials are used up.
  [[nodiscard]] bool exhausted() const noexcept {
    return exhausted_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> next_{1};
  // Not beside the counter: it is read on every allocation and written once.
  alignas(line_pair) std::atomic<bool> exhausted_{false};
};

/// The books that are charged: equal ids mean the same ledger. Two ledgers for one device differ on purpose.
/// Not to be mixed up with `AuthorityIdentity`, which a binding registry issues.
struct MemoryAuthorityId {
  DeviceKey device;
  std::uint64_t serial;

  /// A new authority for `device`. Serials come from one counter of the process, which cannot run out in
  /// practice; if it does, the program stops rather than issue an id twice. Thread-safe.
  [[nodiscard]] static MemoryAuthorityId issue(DeviceKey device) noexcept;

  [[nodiscard]] friend constexpr bool operator==(MemoryAuthorityId,
                                                 MemoryAuthorityId) noexcept = default;
};

/// An identity that a binding registry issues: the registry's own number and a serial. Opaque: equality and
/// hash only, no order, no arithmetic; never made from an address, a size or a time.
template <class Tag>
class OpaqueId {
 public:
  [[nodiscard]] constexpr std::uint64_t registry() const noexcept { return registry_; }

  /// For diagnostic text only.
  [[nodiscard]] constexpr std::uint64_t serial() const noexcept { return serial_; }

  [[nodiscard]] friend constexpr bool operator==(OpaqueId, OpaqueId) noexcept = default;

 private:
  friend class IdentitySource;

  constexpr OpaqueId(std::uint64_t registry, std::uint64_t serial) noexcept
      : registry_(registry), serial_(serial) {}

  std::uint64_t registry_;
  std::uint64_t serial_;
};

using ProviderContextIdentity = OpaqueId<struct ProviderContextTag>;
using AuthorityIdentity = OpaqueId<struct AuthorityTag>;
using MechanismIdentity = OpaqueId<struct MechanismTag>;
using BindingId = OpaqueId<struct BindingTag>;
using BindingGeneration = OpaqueId<struct BindingGenerationTag>;
using AllocationGeneration = OpaqueId<struct AllocationGenerationTag>;

/// One act of binding: two bindings of one mechanism are different authorities over allocations.
struct BindingIdentity {
  BindingId id;
  BindingGeneration generation;
  DeviceKey device;
  MechanismIdentity mechanism;
  ProviderContextIdentity context;
  AuthorityIdentity authority;
  [[nodiscard]] friend constexpr bool operator==(BindingIdentity,
                                                 BindingIdentity) noexcept = default;
};

/// One allocation; a reused address never makes an old one valid again.
struct AllocationIdentity {
  BindingIdentity binding;
  AllocationGeneration generation;
  /// Where the registry keeps the record: a hint for its own lookups, of no meaning to anybody else.
  std::uint32_t place = 0;
  [[nodiscard]] friend constexpr bool operator==(AllocationIdentity,
                                                 AllocationIdentity) noexcept = default;
};

/// Issues every identity of one registry from one counter, so that no two of any kind share a serial.
/// Thread-safe.
class IdentitySource {
 public:
  /// `registry` is not zero. `first` is for tests of exhaustion.
  explicit constexpr IdentitySource(std::uint64_t registry, std::uint64_t first = 1) noexcept
      : registry_(registry), serials_(first) {}

  /// A fresh identity of kind `Id`, or nothing for ever once the serials are used up.
  template <class Id>
  [[nodiscard]] std::optional<Id> issue() noexcept {
    const auto serial = serials_.issue();
    if (!serial) {
      return std::nullopt;
    }
    return Id{registry_, *serial};
  }

  /// Serials for identities that are made later with `restore`.
  [[nodiscard]] std::optional<SerialRun> issue_run(std::uint64_t most) noexcept {
    return serials_.issue_run(most);
  }

  /// The identity of a serial that this source issued.
  template <class Id>
  [[nodiscard]] Id restore(std::uint64_t serial) const noexcept {
    return Id{registry_, serial};
  }

  [[nodiscard]] bool exhausted() const noexcept { return serials_.exhausted(); }

  [[nodiscard]] std::uint64_t registry() const noexcept { return registry_; }

 private:
  std::uint64_t registry_;
  SerialSource serials_;
};

}  // namespace memstrata

template <>
struct std::hash<memstrata::DeviceKey> {
  [[nodiscard]] std::size_t operator()(memstrata::DeviceKey key) const noexcept {
    return (static_cast<std::size_t>(key.index) << 8U) | memstrata::index_of(key.tier);
  }
};

template <class Tag>
struct std::hash<memstrata::OpaqueId<Tag>> {
  [[nodiscard]] std::size_t operator()(memstrata::OpaqueId<Tag> id) const noexcept {
    // The odd constant is 2^64 divided by the golden ratio, which spreads consecutive numbers.
    return static_cast<std::size_t>((id.registry() * 0x9E3779B97F4A7C15ULL) ^ id.serial());
  }
};
