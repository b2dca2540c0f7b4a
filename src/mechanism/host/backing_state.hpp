// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "mechanism/host/record_list.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host::detail {

class PrefixArena;
class PrefixRecord;
struct ReservationRecord;

/// A count that may not pass a limit. One object serves the whole process. Thread-safe.
class ProcessCount {
 public:
  constexpr ProcessCount() noexcept = default;

  /// Adds `extra` if the sum is not above `limit`; answers whether it did.
  [[nodiscard]] bool try_add(std::uint64_t extra, std::optional<std::uint64_t> limit) noexcept;

  /// Adds without asking: memory that goes back is never refused.
  void add(std::uint64_t extra) noexcept { used_.fetch_add(extra, std::memory_order_relaxed); }

  void subtract(std::uint64_t less) noexcept { used_.fetch_sub(less, std::memory_order_relaxed); }

  [[nodiscard]] std::uint64_t used() const noexcept {
    return used_.load(std::memory_order_relaxed);
  }

 private:
  // Relaxed: the number alone is shared, it publishes no other memory.
  std::atomic<std::uint64_t> used_{0};
};

/// Kernel mappings and descriptors that all backings of the process hold.
[[nodiscard]] ProcessCount& process_mappings() noexcept;
[[nodiscard]] ProcessCount& process_descriptors() noexcept;

/// What the reservations and prefixes of one backing share. Thread-safe; no system call runs under its mutex.
class BackingState {
 public:
  BackingState(PageBackingOptions options, std::optional<std::uint64_t> mapping_limit);
  BackingState(const BackingState&) = delete;
  BackingState& operator=(const BackingState&) = delete;
  BackingState(BackingState&&) = delete;
  BackingState& operator=(BackingState&&) = delete;
  ~BackingState();

  [[nodiscard]] const PageBackingOptions& options() const noexcept { return options_; }

  [[nodiscard]] Bytes granule() const noexcept { return options_.granule; }

  /// Whether `bytes` is a whole number of granules.
  [[nodiscard]] bool is_whole(Bytes bytes) const noexcept {
    // A granule that is a power of two needs no division, which would cost as much as all other checks.
    return granule_mask_ != 0 ? (bytes.value & granule_mask_) == 0
                              : bytes.value % options_.granule.value == 0;
  }

  /// Makes a call; nothing on success.
  [[nodiscard]] SystemResult call(const SystemCall& what) noexcept { return calls_->execute(what); }

  /// Fills in writable pages, by hand where the kernel is too old for the advice. `where` is an address range.
  [[nodiscard]] SystemResult populate(ByteRange where) noexcept;

  [[nodiscard]] const std::shared_ptr<SystemCalls>& calls() const noexcept { return calls_; }

  [[nodiscard]] std::optional<std::uint64_t> mapping_limit() const noexcept {
    return mapping_limit_;
  }

  /// Takes `extra` mappings or says that the budget is used up.
  [[nodiscard]] Result<void, VirtualMemoryError> take_mappings(std::uint64_t extra) noexcept;

  /// The limit of descriptors; raises the soft limit of the process on the first call.
  [[nodiscard]] std::optional<std::uint64_t> descriptor_limit() noexcept;
  [[nodiscard]] std::optional<std::uint64_t> known_descriptor_limit() const noexcept;

  void enlist(ReservationRecord& record) noexcept MEMSTRATA_EXCLUDES(mutex_);
  void enlist(PrefixRecord& record) noexcept MEMSTRATA_EXCLUDES(mutex_);

  /// Unmaps a reservation and forgets it, or parks it. The record does not refer to this state any more.
  void drop(ReservationRecord* record) noexcept MEMSTRATA_EXCLUDES(mutex_);
  /// Gives the bytes of a prefix back and forgets it, or parks it. The same holds for the record.
  void dispose(PrefixRecord* record) noexcept MEMSTRATA_EXCLUDES(mutex_);
  void retry_parked() noexcept MEMSTRATA_EXCLUDES(mutex_);
  [[nodiscard]] ParkedMemory parked() const noexcept MEMSTRATA_EXCLUDES(mutex_);

  [[nodiscard]] bool has_parked() const noexcept {
    // Relaxed: a hint; the list itself is read under the mutex.
    return parked_count_.load(std::memory_order_relaxed) != 0;
  }

  /// Address ranges of all reservations, parked ones included.
  [[nodiscard]] std::vector<ByteRange> reservation_ranges() const MEMSTRATA_EXCLUDES(mutex_);
  /// A reference to every prefix that is alive.
  [[nodiscard]] std::vector<PrefixReference> live_prefixes() const MEMSTRATA_EXCLUDES(mutex_);

  /// One more prefix with a file of its own, if there may be one.
  [[nodiscard]] bool try_take_own_file() noexcept {
    return own_files_.try_add(1, options_.own_file_prefixes);
  }

  void give_own_file() noexcept { own_files_.subtract(1); }

  /// The file that further prefixes share; null if there is none now.
  [[nodiscard]] std::shared_ptr<PrefixArena> arena() const MEMSTRATA_EXCLUDES(mutex_);
  /// Makes `made` the file for further prefixes unless somebody replaced `seen` meanwhile; answers with the
  /// file to use.
  [[nodiscard]] std::shared_ptr<PrefixArena> install_arena(const std::shared_ptr<PrefixArena>& seen,
                                                           const std::shared_ptr<PrefixArena>& made)
      MEMSTRATA_EXCLUDES(mutex_);

 private:
  [[nodiscard]] bool unmap(const ReservationRecord& record) noexcept;
  static void forget(ReservationRecord* record) noexcept;

  PageBackingOptions options_;
  std::shared_ptr<SystemCalls> calls_;
  std::optional<std::uint64_t> mapping_limit_;
  std::uint64_t granule_mask_ = 0;  // granule - 1 if that is a power of two
  ProcessCount own_files_;
  // The limit plus one, 0 before it was asked for. Relaxed: every thread that asks stores the same number.
  std::atomic<std::uint64_t> descriptor_limit_{0};
  std::atomic<std::uint64_t> parked_count_{0};

  mutable Mutex mutex_;
  RecordList<ReservationRecord> reservations_ MEMSTRATA_GUARDED_BY(mutex_);
  RecordList<ReservationRecord> parked_reservations_ MEMSTRATA_GUARDED_BY(mutex_);
  RecordList<PrefixRecord> prefixes_ MEMSTRATA_GUARDED_BY(mutex_);
  RecordList<PrefixRecord> parked_prefixes_ MEMSTRATA_GUARDED_BY(mutex_);
  std::weak_ptr<PrefixArena> arena_ MEMSTRATA_GUARDED_BY(mutex_);  // ends with its last prefix
};

/// The error of a call that the kernel refused.
[[nodiscard]] VirtualMemoryError refused(SystemCallKind kind, int code) noexcept;
/// The error of bookkeeping that found no memory.
[[nodiscard]] VirtualMemoryError no_bookkeeping() noexcept;

}  // namespace memstrata::host::detail
