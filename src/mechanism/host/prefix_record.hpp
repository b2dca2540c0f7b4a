// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "mechanism/host/backing_state.hpp"
#include "mechanism/host/record_list.hpp"
#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host::detail {

/// An open file with one descriptor for writing and one for reading only, both counted. Owns them. A map through
/// the second can never be made writable. Single-threaded.
class PrefixFile {
 public:
  /// A new empty file of `length`. On failure nothing stays open or counted.
  /// Errors: DescriptorBudget, Os.
  [[nodiscard]] static Result<PrefixFile, VirtualMemoryError> create(BackingState& state,
                                                                     Bytes length,
                                                                     bool sealable);

  PrefixFile(PrefixFile&& other) noexcept;
  PrefixFile& operator=(PrefixFile&& other) noexcept;
  PrefixFile(const PrefixFile&) = delete;
  PrefixFile& operator=(const PrefixFile&) = delete;
  ~PrefixFile();

  [[nodiscard]] std::int32_t writer() const noexcept { return writer_; }

  [[nodiscard]] std::int32_t reader() const noexcept { return reader_; }

  void close_writer() noexcept { close(writer_); }

 private:
  explicit PrefixFile(std::shared_ptr<SystemCalls> calls) noexcept : calls_(std::move(calls)) {}

  void close(std::int32_t& descriptor) noexcept;

  std::shared_ptr<SystemCalls> calls_;
  std::int32_t writer_ = -1;
  std::int32_t reader_ = -1;
};

/// A sparse file from which many prefixes take ranges. Offsets only grow: a dead prefix is punched out and its
/// offsets are not used again. Thread-safe.
class PrefixArena {
 public:
  /// Length of the file; nothing of it is memory before it is written.
  static constexpr Bytes length{Bytes{1} * (1ULL << 44U)};

  explicit PrefixArena(PrefixFile file) noexcept : file_(std::move(file)) {}

  [[nodiscard]] const PrefixFile& file() const noexcept { return file_; }

  /// Offset of a range that nobody had before, or nothing when the offsets are used up.
  [[nodiscard]] std::optional<Bytes> take(Bytes size) noexcept;

 private:
  PrefixFile file_;
  std::atomic<std::uint64_t> next_{0};
};

/// The physical bytes of one prefix. Counted by references; the last one gives them back. What is written after
/// construction is written by the builder's thread before the prefix is shared.
class PrefixRecord {
 public:
  PrefixRecord(std::shared_ptr<BackingState> owner, Bytes bytes) noexcept
      : state(std::move(owner)), size(bytes) {}

  std::shared_ptr<BackingState> state;
  const Bytes size;
  std::uint64_t window = 0;  ///< Where the builder writes; 0 if it is not mapped. Address.
  std::optional<PrefixFile> own_file;  ///< The file, or
  std::shared_ptr<PrefixArena> arena;  ///< the file shared with others, and
  Bytes offset;                        ///< where the prefix lies in it.
  bool sealed = false;
  std::optional<MemoryLease> lease;  ///< If the backing accounts.
  RecordLinks<PrefixRecord> links;

  [[nodiscard]] const PrefixFile& file() const noexcept {
    return own_file ? *own_file : arena->file();
  }

  /// One more reference for somebody who has one.
  void refer() noexcept {
    // Relaxed: whoever passes a reference on already orders the accesses.
    references_.fetch_add(1, std::memory_order_relaxed);
  }

  /// One more reference, unless the last one is gone.
  [[nodiscard]] bool try_refer() noexcept;

  /// One reference less; answers whether it was the last. Then the caller disposes of the record.
  [[nodiscard]] bool unrefer() noexcept {
    // Release orders every use before the last one; acquire lets that one see them all.
    return references_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  /// Maps the window for writing; at `where` if that is not 0 and vacant.
  [[nodiscard]] SystemResult map_window(BackingState& with, std::uint64_t where) noexcept;
  /// Unmaps the window, if there is one.
  [[nodiscard]] SystemResult unmap_window(BackingState& with) noexcept;
  /// Everything back to the system; false if a part was refused, and then it may be tried again.
  [[nodiscard]] bool give_back(BackingState& with) noexcept;

 private:
  std::atomic<std::uint64_t> references_{1};
};

/// A prefix of `size` with a window for writing. May throw `std::bad_alloc`. On failure nothing is left.
/// Errors: Delegated, DescriptorBudget, MappingBudget, Os.
[[nodiscard]] Result<PrefixReference, VirtualMemoryError> create_prefix(
    const std::shared_ptr<BackingState>& state,
    Bytes size);

}  // namespace memstrata::host::detail
