// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata::host {

class PageBacking;

namespace detail {

class PrefixRecord;

/// One counted reference to the physical bytes of a prefix. Thread-compatible; the count itself is thread-safe.
class PrefixReference {
 public:
  /// Takes over one reference that was counted already.
  explicit PrefixReference(PrefixRecord* counted) noexcept : record_(counted) {}

  PrefixReference(const PrefixReference& other) noexcept;
  PrefixReference& operator=(const PrefixReference& other) noexcept;

  PrefixReference(PrefixReference&& other) noexcept
      : record_(std::exchange(other.record_, nullptr)) {}

  PrefixReference& operator=(PrefixReference&& other) noexcept;
  ~PrefixReference();

  [[nodiscard]] PrefixRecord* record() const noexcept { return record_; }

  /// Lets go now: the bytes of the prefix if this was the last reference, else 0.
  Bytes release() noexcept;

 private:
  PrefixRecord* record_;
};

}  // namespace detail

/// Sealed physical bytes that nobody can write any more, to be mapped read-only into any number of reservations
/// of the backing that made them. Copies share them; they go back to the system when every copy and every
/// mapping are gone. A handle that was moved from may only be assigned to or destroyed. Thread-compatible;
/// different copies may be used by different threads.
class Prefix {
 public:
  /// Bytes behind the prefix; a multiple of the granule.
  [[nodiscard]] Bytes size() const noexcept;

  /// Whether both handles mean the same bytes.
  [[nodiscard]] friend bool operator==(const Prefix& a, const Prefix& b) noexcept {
    return a.reference_.record() == b.reference_.record();
  }

 private:
  friend class PageBacking;
  friend class PrefixBuilder;

  explicit Prefix(detail::PrefixReference reference) noexcept : reference_(std::move(reference)) {}

  detail::PrefixReference reference_;
};

/// A prefix in the making: a writable window that is filled and then sealed. Made by
/// `PageBacking::create_prefix`; move-only. Destruction before sealing gives everything back.
/// Single-threaded, but the window may be filled by many threads.
class PrefixBuilder {
 public:
  PrefixBuilder(PrefixBuilder&& other) noexcept;
  PrefixBuilder& operator=(PrefixBuilder&& other) noexcept;
  PrefixBuilder(const PrefixBuilder&) = delete;
  PrefixBuilder& operator=(const PrefixBuilder&) = delete;
  ~PrefixBuilder();

  /// The writable window, zero at first; null after sealing or a move. Owned by the builder.
  [[nodiscard]] std::byte* data() const noexcept;
  /// The same address as a number.
  [[nodiscard]] DeviceAddress base() const noexcept;
  /// Bytes of the window; 0 after sealing or a move.
  [[nodiscard]] Bytes size() const noexcept;

  /// Ends writing for ever: the window is unmapped, the file sealed, and what remains is the prefix. The builder
  /// is empty afterwards.
  /// On failure: the window is writable again at the same address and nothing is sealed. If even that fails, the
  /// window is gone (`data()` is null), the content is kept, and `seal` may be tried again.
  /// Errors: Os with the call; PrefixRefused if the builder is empty.
  [[nodiscard]] Result<Prefix, VirtualMemoryError> seal();

 private:
  friend class PageBacking;

  explicit PrefixBuilder(detail::PrefixReference reference) noexcept
      : reference_(std::move(reference)) {}

  detail::PrefixReference reference_;
};

}  // namespace memstrata::host
