// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/contract/platform_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"

namespace memstrata::host {

namespace detail {
class BackingState;
struct ReservationRecord;

/// Gives the address range of a record back through the backing it belongs to.
struct ReservationRelease {
  void operator()(ReservationRecord* record) const noexcept;
};
}  // namespace detail

/// How a `PageBacking` holds memory. The defaults are those measured as best for buffers of ordinary size.
struct PageBackingOptions {
  /// Unit of commit and decommit: any multiple of the page. 2 MiB with `huge_pages` pays for buffers from 32 MiB.
  Bytes granule{Bytes{1} * 65536};
  /// Ask for transparent huge pages behind every reservation.
  bool huge_pages = false;
  /// Commit fills in the pages at once, so that committed means resident and a lack of memory is an error here.
  bool populate = true;
  /// `map_shared` fills in the page tables of the mapping at once instead of at the first read.
  bool populate_shared = false;
  /// How much of a decommitted tail each reservation keeps resident for the next growth; 0 keeps nothing.
  /// A multiple of the granule; needs a governor, which is charged for it.
  Bytes retained_tail;
  /// If set, the backing itself leases every byte that it commits or keeps, as tier host, and answers
  /// `PhysicalMemoryAccounting::backing`; if not, the buffers above it do.
  std::shared_ptr<MemoryGovernor> governor;
  MemoryRole role = MemoryRole::kv_cache;  ///< What the backing's own leases are for.
  HolderId holder;                         ///< Who holds the backing's own leases.
  /// Refuse beyond `mapping_limit` kernel mappings; off only to meet the kernel's own refusal in a test.
  bool mapping_budget = true;
  /// Kernel mappings that all backings of the process may use together; nothing: 75 % of `vm.max_map_count`.
  std::optional<std::uint64_t> mapping_limit;
  /// Descriptors that all backings of the process may use together; nothing: 75 % of `RLIMIT_NOFILE`, whose soft
  /// limit is raised to the hard one when the first prefix is made.
  std::optional<std::uint64_t> descriptor_limit;
  /// So many prefixes get a file of their own, which is sealed; further ones share sparse files.
  std::uint64_t own_file_prefixes = 256;
  /// The kernel, or a double of it; null is the real one.
  std::shared_ptr<SystemCalls> system_calls;
};

/// A count against a limit; no limit if the budget is switched off or the system does not say.
struct BudgetUsage {
  std::uint64_t used;
  std::optional<std::uint64_t> limit;
};

/// What the kernel refused to take back. It is kept, counted and tried again, never forgotten.
struct ParkedMemory {
  std::uint64_t ranges;  ///< Address ranges that could not be unmapped.
  Bytes address_space;   ///< Their length.
  Bytes prefix_bytes;    ///< Bytes of dead prefixes that could not be punched out of their file.
};

/// Host memory in pages: reserves address space, commits and decommits any granules of it, and maps sealed
/// prefixes read-only. Movable; reservations and prefixes keep the backing's state alive. The backing is
/// thread-safe; one reservation is used by one thread at a time.
///
/// The kernel's mappings are a budget that all backings of the process share: each reservation costs 1, each
/// separate run of committed granules 2, each separate piece of a prefix 2, each open builder 1. The kernel may
/// merge and need fewer, never more. What would exceed the budget is refused before any system call; giving
/// memory back is never refused.
///
/// Source: private anonymous pages, `mprotect` to commit, discard before protect: docs/decisions.md.
class PageBacking {
 public:
  /// An address range: nothing of it may be touched until it is committed. Move-only; destruction unmaps it with
  /// all that is committed and then lets go of prefixes and leases. A moved-from one may only be assigned to or
  /// destroyed. Single-threaded.
  class Reservation {
   public:
    /// Start of the range, constant for its life; aligned to the granule if that is a power of two, and to a
    /// huge page if the range is as long as one.
    [[nodiscard]] DeviceAddress base() const noexcept { return base_; }

    /// Length of the range.
    [[nodiscard]] Bytes size() const noexcept { return size_; }

    /// `base()` as a pointer; only what is committed may be written and only that or shared parts be read.
    [[nodiscard]] std::byte* data() const noexcept;

   private:
    friend class PageBacking;

    explicit Reservation(
        std::unique_ptr<detail::ReservationRecord, detail::ReservationRelease> record,
        DeviceAddress base,
        Bytes size) noexcept;

    std::unique_ptr<detail::ReservationRecord, detail::ReservationRelease> record_;
    DeviceAddress base_;
    Bytes size_;
  };

  using Prefix = host::Prefix;

  /// A backing with these options.
  /// Errors: Misaligned for a granule or tail that does not fit; Delegated (InvalidRequest) for a retained tail
  /// without a governor.
  [[nodiscard]] static Result<PageBacking, VirtualMemoryError> create(PageBackingOptions options);
  /// A backing with the default options.
  [[nodiscard]] static Result<PageBacking, VirtualMemoryError> create();

  PageBacking(PageBacking&&) noexcept = default;
  PageBacking& operator=(PageBacking&& other) noexcept;
  PageBacking(const PageBacking&) = delete;
  PageBacking& operator=(const PageBacking&) = delete;
  /// Tries once more to give back what is parked: a parked range that maps prefixes would keep everything for ever.
  ~PageBacking();

  // --- Queries -------------------------------------------------------------------------------------------

  [[nodiscard]] Bytes granularity() const noexcept;
  [[nodiscard]] const PageBackingOptions& options() const noexcept;
  [[nodiscard]] PhysicalMemoryAccounting physical_memory_accounting() const noexcept;

  /// Private bytes committed in the reservation now.
  [[nodiscard]] Bytes committed(const Reservation& reservation) const noexcept;
  /// Bytes mapped from prefixes now.
  [[nodiscard]] Bytes shared(const Reservation& reservation) const noexcept;
  /// Bytes kept resident behind a decommitted tail; leased by the backing.
  [[nodiscard]] Bytes retained(const Reservation& reservation) const noexcept;
  /// Kernel mappings that the reservation is counted with.
  [[nodiscard]] std::uint64_t mappings(const Reservation& reservation) const noexcept;

  /// Private bytes committed inside `range`, which lies in the reservation and is granule-aligned.
  [[nodiscard]] Bytes committed_in(const Reservation& reservation, ByteRange range) const noexcept;
  /// Bytes mapped from prefixes inside `range`.
  [[nodiscard]] Bytes shared_in(const Reservation& reservation, ByteRange range) const noexcept;
  /// Maximal committed runs inside `range`, lowest first. May throw `std::bad_alloc`.
  [[nodiscard]] std::vector<ByteRange> committed_runs(const Reservation& reservation,
                                                      ByteRange range) const;
  /// Maximal runs inside `range` that are neither committed nor shared, lowest first. May throw
  /// `std::bad_alloc`.
  [[nodiscard]] std::vector<ByteRange> vacant_runs(const Reservation& reservation,
                                                   ByteRange range) const;

  /// Kernel mappings of all backings of the process.
  [[nodiscard]] BudgetUsage mapping_usage() const noexcept;
  /// Descriptors of all backings of the process.
  [[nodiscard]] BudgetUsage descriptor_usage() const noexcept;
  /// What this backing could not give back yet.
  [[nodiscard]] ParkedMemory parked() const noexcept;
  /// Whether the prefix was made by this backing.
  [[nodiscard]] bool owns(const Prefix& prefix) const noexcept;

  // --- Address space and private memory ------------------------------------------------------------------

  /// Address space of `length`, a multiple of the granule above zero; commits nothing. One mapping, up to a huge
  /// page and two pages longer than `length`. Tries parked ranges again first, if there are any.
  /// Errors: Misaligned, TooLarge, MappingBudget, Os (`mmap`).
  [[nodiscard]] Result<Reservation, VirtualMemoryError> reserve(Bytes length);

  /// Makes `range` usable; it reads as zero. All or nothing.
  /// Errors, checked in this order: Misaligned (offset, then length; a length of zero is one), OutOfRange,
  /// AlreadyMapped, MappingBudget; Delegated if the governor refuses; Os (`mprotect`, `madvise`).
  /// On failure nothing changed, except that a retained tail may have been given back. Should the kernel refuse
  /// even to undo, the part concerned counts as committed.
  /// Cost: one `mprotect`, with populate one `madvise`; constant in the number of committed granules.
  [[nodiscard]] Result<void, VirtualMemoryError> commit(Reservation& reservation, ByteRange range);

  /// The same for many ranges in any order, all or nothing together. Ranges that touch become one call; ranges
  /// that overlap each other are AlreadyMapped.
  [[nodiscard]] Result<void, VirtualMemoryError> commit(Reservation& reservation,
                                                        std::span<const ByteRange> ranges);

  /// Gives back exactly `range`, however it was committed: the memory is gone at once, the addresses stay and
  /// fault. With a retained tail, the lowest part of a range that ends a run may stay resident instead.
  /// Errors: as `commit`, and NotMapped where a granule is not committed; nothing changed. Os: the whole range
  /// still counts as committed, but its content may be zero. Never refused by a budget.
  [[nodiscard]] Result<void, VirtualMemoryError> decommit(Reservation& reservation,
                                                          ByteRange range);

  /// Gives back the retained tail and returns its size; on failure (`madvise`) it stays.
  [[nodiscard]] Result<Bytes, VirtualMemoryError> trim_retained(Reservation& reservation);

  /// Tries again to give back what is parked; returns what still is.
  ParkedMemory retry_parked() noexcept;

  // --- Shared prefixes -----------------------------------------------------------------------------------

  /// Physical memory for a prefix of `size`, a multiple of the granule above zero, with a window to fill it.
  /// The bytes are the creator's to charge, or leased here if the backing accounts.
  /// Errors: Misaligned, TooLarge, DescriptorBudget, MappingBudget, Delegated, Os. Nothing is left behind.
  [[nodiscard]] Result<PrefixBuilder, VirtualMemoryError> create_prefix(Bytes size);

  /// Maps `part` of the prefix read-only at `offset`, where nothing is committed or mapped. Owns nothing more;
  /// keeps the prefix alive. The kernel refuses to make it writable, and a write faults. All or nothing.
  /// Errors, in this order: PrefixRefused for a prefix of another backing; Misaligned; OutOfRange for the part,
  /// then for the place; AlreadyMapped; MappingBudget; Os.
  [[nodiscard]] Result<void, VirtualMemoryError> map_shared(Reservation& reservation,
                                                            Bytes offset,
                                                            const Prefix& prefix,
                                                            ByteRange part);

  /// Replaces the shared granules of `range` by private, writable copies, which count as committed. Nobody may
  /// read the range meanwhile. All or nothing; should the kernel refuse even to undo, the granules concerned
  /// hold nothing any more and fault.
  /// Errors: Misaligned, OutOfRange, NotMapped where a granule is not shared, MappingBudget, Delegated, Os.
  [[nodiscard]] Result<void, VirtualMemoryError> break_shared(Reservation& reservation,
                                                              ByteRange range);

  /// Unmaps the shared granules of `range` and returns the bytes of prefixes whose last reference that was.
  /// Errors: Misaligned, OutOfRange, NotMapped, Os; nothing changed. Never refused by a budget.
  [[nodiscard]] Result<Bytes, VirtualMemoryError> unmap_shared(Reservation& reservation,
                                                               ByteRange range);

  /// One line for people: place, length, and what is committed, shared and retained. No content.
  [[nodiscard]] std::string describe(const Reservation& reservation) const;

 private:
  friend struct KernelFigureAccess;

  explicit PageBacking(std::shared_ptr<detail::BackingState> state) noexcept;

  std::shared_ptr<detail::BackingState> state_;
};

/// The name under which the specification knows it.
using HostBacking = PageBacking;

static_assert(PlatformBacking<PageBacking>);
static_assert(SharedPlatformBacking<PageBacking>);
static_assert(HostAddressable<PageBacking>);

}  // namespace memstrata::host
