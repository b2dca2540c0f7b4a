// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "memstrata/contract/release.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/lifecycle.hpp"
#include "memstrata/core/release_state.hpp"

namespace memstrata {

/// A mechanism at one instant: the counts were true together. A call in flight counts as an active operation until
/// its allocation is on the books, so that all zero means that nothing is owned and nothing is going on.
struct MechanismSnapshot {
  MechanismIdentity identity;
  DeviceKey device;
  ProviderContextIdentity provider_context;
  AuthorityIdentity authority;
  MechanismCoherence coherence;
  MechanismLifecycle lifecycle;
  std::uint64_t live_allocations = 0;
  std::uint64_t active_operations = 0;  ///< Calls in flight and queued releases.
  std::uint64_t queued_releases = 0;
  std::uint64_t quarantined_allocations = 0;
  Bytes
      quarantined_bytes;  ///< Sum of what they retain; stays at the largest number instead of wrapping.
  std::uint64_t shared_prefixes = 0;  ///< Alive, with a handle or kept because the device was lost.
  Bytes shared_prefix_bytes;          ///< Physical bytes of these.

  /// Whether allocations are owned in any form.
  [[nodiscard]] bool retains_ownership() const noexcept {
    return live_allocations != 0 || queued_releases != 0 || quarantined_allocations != 0;
  }

  /// Whether nothing is owned and nothing is going on.
  [[nodiscard]] bool quiescent() const noexcept {
    return !retains_ownership() && active_operations == 0;
  }
};

namespace detail {
class MechanismRecord;
}

/// The allocations of one mechanism that are in quarantine. A value; reading it calls nothing. Thread-compatible.
class QuarantinedAllocations {
 public:
  /// Walks the list; gives each record by value.
  class Iterator {
   public:
    // The standard library asks for these names.
    using value_type = QuarantinedAllocation;  // NOLINT(readability-identifier-naming)
    using difference_type = std::ptrdiff_t;    // NOLINT(readability-identifier-naming)

    Iterator() noexcept = default;

    Iterator(const QuarantinedAllocations* list, std::size_t at) noexcept : list_(list), at_(at) {}

    [[nodiscard]] QuarantinedAllocation operator*() const noexcept { return (*list_)[at_]; }

    Iterator& operator++() noexcept {
      ++at_;
      return *this;
    }

    Iterator operator++(int) noexcept {
      Iterator before = *this;
      ++at_;
      return before;
    }

    [[nodiscard]] friend bool operator==(const Iterator&, const Iterator&) noexcept = default;

   private:
    const QuarantinedAllocations* list_ = nullptr;
    std::size_t at_ = 0;
  };

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }

  /// The record at `index`, which is below `size()`.
  [[nodiscard]] QuarantinedAllocation operator[](std::size_t index) const noexcept;

  [[nodiscard]] Iterator begin() const noexcept { return {this, 0}; }

  [[nodiscard]] Iterator end() const noexcept { return {this, entries_.size()}; }

 private:
  friend class detail::MechanismRecord;

  /// What differs between the records of one mechanism, as bytes: a full record is four times as large, and room for
  /// a hundred thousand need not be cleared before it is filled.
  struct Entry {
    alignas(std::uint64_t) std::array<std::byte, 48> facts;
  };

  static_assert(std::is_trivially_default_constructible_v<Entry>);

  /// Room for the list grows without being cleared.
  template <class T>
  struct UnclearedAllocator : std::allocator<T> {
    template <class U>
    struct rebind {  // NOLINT(readability-identifier-naming): the standard library's name
      using other = UnclearedAllocator<U>;  // NOLINT(readability-identifier-naming): likewise
    };

    void construct(T* place) noexcept { ::new (static_cast<void*>(place)) T; }

    void construct(T* place, const T& value) noexcept {
      ::new (static_cast<void*>(place)) T(value);
    }
  };

  QuarantinedAllocations(std::uint64_t registry,
                         DeviceKey device,
                         MechanismIdentity mechanism,
                         ProviderContextIdentity context,
                         AuthorityIdentity authority) noexcept
      : registry_(registry),
        device_(device),
        mechanism_(mechanism),
        context_(context),
        authority_(authority) {}

  std::uint64_t registry_;
  DeviceKey device_;
  MechanismIdentity mechanism_;
  ProviderContextIdentity context_;
  AuthorityIdentity authority_;
  std::vector<Entry, UnclearedAllocator<Entry>> entries_;
};

}  // namespace memstrata
