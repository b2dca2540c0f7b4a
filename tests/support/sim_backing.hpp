// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memstrata/contract/platform_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/mutex.hpp"
#include "memstrata/core/result.hpp"
#include "support/fault_script.hpp"

namespace memstrata::test {

/// What a `SimBacking` is like.
struct SimOptions {
  Bytes granule = 4_KiB;
  Bytes capacity =
      Bytes::max();  ///< Physical memory; a commit beyond it fails as the kernel would.
  PhysicalMemoryAccounting accounting = PhysicalMemoryAccounting::buffer();
};

/// A platform backing over numbers: granules and their contents are kept in memory, addresses are not pointers.
///
/// It is strict: what breaks the contract is refused with the typed error of the contract and also listed in
/// `misuses()`. Every call is counted by `faults()` under its name (reserve, commit, commit_batch, decommit,
/// map_shared, break_shared, unmap_shared, create_prefix) and can be made to fail, after it was checked and before
/// it has any effect. NAME_late fails after the whole effect, which is then undone; decommit_midway and
/// unmap_shared_midway stop after the first half of the granules, rounded down. A kernel that refuses even to undo:
/// commit_stuck fails and leaves the upper half of the granules committed, break_shared_lost fails and leaves
/// nothing behind the lower half. Thread-safe; one reservation is for one thread at a time.
class SimBacking {
 private:
  struct State;

  /// One physical granule; bytes that were never written read as zero.
  class Page {
   public:
    explicit Page(std::shared_ptr<State> state) : state_(std::move(state)) { ++state_->pages; }

    Page(const Page&) = delete;
    Page& operator=(const Page&) = delete;
    Page(Page&&) = delete;
    Page& operator=(Page&&) = delete;

    ~Page() { --state_->pages; }

    std::map<std::uint64_t, std::uint8_t> contents;

   private:
    std::shared_ptr<State> state_;
  };

  struct Mapped {
    std::shared_ptr<Page> page;
    bool is_shared;
  };

  /// What stands behind one reservation, by granule number.
  using Space = std::map<std::uint64_t, Mapped>;

  struct State {
    Mutex mutex;
    std::atomic<std::uint64_t> pages{0};
    std::vector<std::string> misuses MEMSTRATA_GUARDED_BY(mutex);
    std::uint64_t next_base MEMSTRATA_GUARDED_BY(mutex) = 1ULL << 46U;
    std::uint64_t live_reservations MEMSTRATA_GUARDED_BY(mutex) = 0;
    std::function<void()> on_destroy MEMSTRATA_GUARDED_BY(mutex);
  };

  struct PrefixData {
    std::shared_ptr<State> state;
    std::vector<std::shared_ptr<Page>> pages;
    Bytes granule;
    bool sealed = false;
  };

 public:
  /// An owning range of numbers. Move-only.
  class Reservation {
   public:
    Reservation(Reservation&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)),
          space_(std::move(other.space_)),
          base_(other.base_),
          size_(other.size_) {}

    Reservation& operator=(Reservation&& other) noexcept {
      Reservation moved(std::move(other));
      std::swap(state_, moved.state_);
      std::swap(space_, moved.space_);
      std::swap(base_, moved.base_);
      std::swap(size_, moved.size_);
      return *this;
    }

    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;

    ~Reservation() {
      if (state_ == nullptr) {
        return;
      }
      space_.clear();
      std::function<void()> called;
      {
        const MutexLock lock(state_->mutex);
        --state_->live_reservations;
        called = state_->on_destroy;
      }
      if (called) {
        called();
      }
    }

    [[nodiscard]] DeviceAddress base() const noexcept { return base_; }

    [[nodiscard]] Bytes size() const noexcept { return size_; }

    /// Writes one byte; false where the processor would fault: nothing committed, or shared.
    [[nodiscard]] bool write(Bytes offset, std::uint8_t value, Bytes granule) {
      const auto found = space_.find(offset.value / granule.value);
      if (found == space_.end() || found->second.is_shared) {
        return false;
      }
      found->second.page->contents[offset.value % granule.value] = value;
      return true;
    }

    /// Reads one byte; nothing where the processor would fault.
    [[nodiscard]] std::optional<std::uint8_t> read(Bytes offset, Bytes granule) const {
      const auto found = space_.find(offset.value / granule.value);
      if (found == space_.end()) {
        return std::nullopt;
      }
      const auto& contents = found->second.page->contents;
      const auto byte = contents.find(offset.value % granule.value);
      return byte == contents.end() ? std::uint8_t{0} : byte->second;
    }

   private:
    friend class SimBacking;

    Reservation(std::shared_ptr<State> state, DeviceAddress base, Bytes size) noexcept
        : state_(std::move(state)), base_(base), size_(size) {}

    std::shared_ptr<State> state_;
    Space space_;
    DeviceAddress base_;
    Bytes size_;
  };

  /// Physical granules that are written, sealed and then mapped. Copies share them.
  class Prefix {
   public:
    [[nodiscard]] Bytes size() const noexcept { return data_->granule * data_->pages.size(); }

    /// Writes one byte; false once sealed.
    [[nodiscard]] bool write(Bytes offset, std::uint8_t value) const {
      if (data_->sealed) {
        return false;
      }
      data_->pages.at(offset.value / data_->granule.value)
          ->contents[offset.value % data_->granule.value] = value;
      return true;
    }

    void seal() const noexcept { data_->sealed = true; }

   private:
    friend class SimBacking;

    explicit Prefix(std::shared_ptr<PrefixData> data) noexcept : data_(std::move(data)) {}

    std::shared_ptr<PrefixData> data_;
  };

  explicit SimBacking(SimOptions options = {})
      : options_(options), state_(std::make_shared<State>()) {}

  [[nodiscard]] Bytes granularity() const noexcept { return options_.granule; }

  [[nodiscard]] PhysicalMemoryAccounting physical_memory_accounting() const noexcept {
    return options_.accounting;
  }

  [[nodiscard]] Result<Reservation, VirtualMemoryError> reserve(Bytes length) {
    if (faults_.must_fail("reserve")) {
      return fail(scripted("reserve"));
    }
    if (length == Bytes{} || !is_multiple(length, options_.granule)) {
      return fail(misaligned("reservation length", length));
    }
    const MutexLock lock(state_->mutex);
    if (length > Bytes{1ULL << 62U} - Bytes{state_->next_base}) {
      return fail(VirtualMemoryError(Os{.operation = "sim reserve",
                                        .reason = "the address space is used up",
                                        .code = no_memory}));
    }
    const DeviceAddress base(state_->next_base);
    state_->next_base += (length + options_.granule).value;
    ++state_->live_reservations;
    return Reservation(state_, base, length);
  }

  [[nodiscard]] Result<void, VirtualMemoryError> commit(Reservation& reservation, ByteRange range) {
    return commit_all("commit", reservation, std::span(&range, 1));
  }

  [[nodiscard]] Result<void, VirtualMemoryError> commit(Reservation& reservation,
                                                        std::span<const ByteRange> ranges) {
    return commit_all("commit_batch", reservation, ranges);
  }

  [[nodiscard]] Result<void, VirtualMemoryError> decommit(Reservation& reservation,
                                                          ByteRange range) {
    const bool refuse = faults_.must_fail("decommit");
    const bool midway = faults_.must_fail("decommit_midway");
    MEMSTRATA_TRY_VOID(check(reservation, range));
    MEMSTRATA_TRY_VOID(check_present(reservation, range, false));
    if (refuse) {
      return fail(scripted("decommit"));
    }
    return drop("decommit", reservation, range, midway);
  }

  [[nodiscard]] Bytes committed(const Reservation& reservation) const noexcept {
    return options_.granule * count(reservation, false);
  }

  /// Physical granules for a prefix of `bytes`, rounded up.
  [[nodiscard]] Result<Prefix, VirtualMemoryError> create_prefix(Bytes bytes) {
    if (faults_.must_fail("create_prefix")) {
      return fail(scripted("create_prefix"));
    }
    const auto size = align_up(bytes, options_.granule);
    if (!size || *size == Bytes{}) {
      return fail(misaligned("length", bytes));
    }
    auto data = std::make_shared<PrefixData>();
    data->state = state_;
    data->granule = options_.granule;
    MEMSTRATA_TRY(data->pages, new_pages(size->value / options_.granule.value));
    return Prefix(std::move(data));
  }

  [[nodiscard]] Result<void, VirtualMemoryError> map_shared(Reservation& reservation,
                                                            Bytes offset,
                                                            const Prefix& prefix,
                                                            ByteRange part) {
    const bool refuse = faults_.must_fail("map_shared");
    const bool late = faults_.must_fail("map_shared_late");
    if (prefix.data_->state != state_ || !prefix.data_->sealed) {
      return fail(VirtualMemoryError(
          PrefixRefused{.operation = "sim map_shared", .reason = "it is foreign or not sealed"}));
    }
    const ByteRange target{.offset = offset, .size = part.size};
    MEMSTRATA_TRY_VOID(check(reservation, target));
    MEMSTRATA_TRY_VOID(check_granules(part, prefix.size()));
    MEMSTRATA_TRY_VOID(check_absent(reservation, target));
    if (refuse) {
      return fail(scripted("map_shared"));
    }
    if (late) {
      return fail(scripted("map_shared"));
    }
    const std::uint64_t first = part.offset.value / options_.granule.value;
    for (std::uint64_t i = 0; i < granules(part); ++i) {
      reservation.space_.emplace(offset.value / options_.granule.value + i,
                                 Mapped{.page = prefix.data_->pages[first + i], .is_shared = true});
    }
    return {};
  }

  [[nodiscard]] Result<void, VirtualMemoryError> break_shared(Reservation& reservation,
                                                              ByteRange range) {
    const bool refuse = faults_.must_fail("break_shared");
    const bool late = faults_.must_fail("break_shared_late");
    const bool lost = faults_.must_fail("break_shared_lost");
    MEMSTRATA_TRY_VOID(check(reservation, range));
    MEMSTRATA_TRY_VOID(check_present(reservation, range, true));
    if (refuse) {
      return fail(scripted("break_shared"));
    }
    MEMSTRATA_TRY(auto pages, new_pages(granules(range)));
    if (lost) {
      const ByteRange front = lower_half(range);
      erase(reservation, std::span(&front, 1));
    }
    if (late || lost) {
      return fail(scripted("break_shared"));
    }
    const std::uint64_t first = range.offset.value / options_.granule.value;
    for (std::uint64_t i = 0; i < pages.size(); ++i) {
      Mapped& mapped = reservation.space_.at(first + i);
      pages[i]->contents = mapped.page->contents;
      mapped = Mapped{.page = std::move(pages[i]), .is_shared = false};
    }
    return {};
  }

  [[nodiscard]] Result<Bytes, VirtualMemoryError> unmap_shared(Reservation& reservation,
                                                               ByteRange range) {
    const bool refuse = faults_.must_fail("unmap_shared");
    const bool midway = faults_.must_fail("unmap_shared_midway");
    MEMSTRATA_TRY_VOID(check(reservation, range));
    MEMSTRATA_TRY_VOID(check_present(reservation, range, true));
    if (refuse) {
      return fail(scripted("unmap_shared"));
    }
    const std::uint64_t before = state_->pages;
    MEMSTRATA_TRY_VOID(drop("unmap_shared", reservation, range, midway));
    return options_.granule * (before - state_->pages);
  }

  [[nodiscard]] Bytes shared(const Reservation& reservation) const noexcept {
    return options_.granule * count(reservation, true);
  }

  /// Physical bytes held now by reservations and prefixes.
  [[nodiscard]] Bytes physical() const noexcept { return options_.granule * state_->pages; }

  [[nodiscard]] std::uint64_t live_reservations() const {
    const MutexLock lock(state_->mutex);
    return state_->live_reservations;
  }

  /// Calls that broke the contract, one line each: always a defect of the caller.
  [[nodiscard]] std::vector<std::string> misuses() const {
    const MutexLock lock(state_->mutex);
    return state_->misuses;
  }

  /// The same, and forgets them: for a test that breaks the contract on purpose.
  [[nodiscard]] std::vector<std::string> take_misuses() {
    const MutexLock lock(state_->mutex);
    return std::exchange(state_->misuses, {});
  }

  /// Called whenever a reservation has returned its memory.
  void on_destroy(std::function<void()> called) {
    const MutexLock lock(state_->mutex);
    state_->on_destroy = std::move(called);
  }

  [[nodiscard]] FaultScript& faults() noexcept { return faults_; }

  /// The code of a refusal for lack of memory and of one that the test asked for.
  static constexpr int no_memory = 12;
  static constexpr int scripted_code = 5;

 private:
  [[nodiscard]] static VirtualMemoryError scripted(const char* operation) {
    return Os{.operation = operation, .reason = "scripted failure", .code = scripted_code};
  }

  void misuse(std::string_view what) {
    const MutexLock lock(state_->mutex);
    state_->misuses.emplace_back(what);
  }

  [[nodiscard]] VirtualMemoryError misaligned(const char* what, Bytes value) {
    misuse(std::string("misaligned ") + what);
    const auto next = align_up(value, options_.granule);
    if (!next) {
      return TooLarge{
          .what = what, .value = value, .largest = align_down(Bytes::max(), options_.granule)};
    }
    return Misaligned{.what = what,
                      .value = value,
                      .granularity = options_.granule,
                      .rounded = std::max(*next, options_.granule)};
  }

  [[nodiscard]] std::uint64_t granules(ByteRange range) const noexcept {
    return range.size.value / options_.granule.value;
  }

  /// The lower half of the granules, rounded down.
  [[nodiscard]] ByteRange lower_half(ByteRange range) const noexcept {
    return {.offset = range.offset, .size = options_.granule * (granules(range) / 2)};
  }

  [[nodiscard]] std::uint64_t count(const Reservation& reservation, bool is_shared) const noexcept {
    return static_cast<std::uint64_t>(std::ranges::count_if(
        reservation.space_,
        [&](const auto& entry) { return entry.second.is_shared == is_shared; }));
  }

  [[nodiscard]] Result<void, VirtualMemoryError> check_granules(ByteRange range, Bytes size) {
    if (!is_multiple(range.offset, options_.granule)) {
      return fail(misaligned("offset", range.offset));
    }
    if (range.empty() || !is_multiple(range.size, options_.granule)) {
      return fail(misaligned("length", range.size));
    }
    const Bytes end = saturating_add(range.offset, range.size);
    if (end > size) {
      misuse("out of range");
      return fail(VirtualMemoryError(OutOfRange{
          .offset = range.offset, .length = range.size, .reserved = size, .overrun = end - size}));
    }
    return {};
  }

  [[nodiscard]] Result<void, VirtualMemoryError> check(const Reservation& reservation,
                                                       ByteRange range) {
    if (reservation.state_ != state_) {
      misuse("reservation of another backing, or moved from");
      return fail(VirtualMemoryError(OutOfRange{
          .offset = range.offset, .length = range.size, .reserved = {}, .overrun = range.size}));
    }
    return check_granules(range, reservation.size_);
  }

  [[nodiscard]] Result<void, VirtualMemoryError> check_absent(const Reservation& reservation,
                                                              ByteRange range) {
    const auto taken = reservation.space_.lower_bound(range.offset.value / options_.granule.value);
    if (taken != reservation.space_.end() && options_.granule * taken->first < range.end()) {
      misuse("overlaps what is mapped");
      return fail(VirtualMemoryError(AlreadyMapped{.offset = options_.granule * taken->first}));
    }
    return {};
  }

  [[nodiscard]] Result<void, VirtualMemoryError> check_present(const Reservation& reservation,
                                                               ByteRange range,
                                                               bool is_shared) {
    const std::uint64_t first = range.offset.value / options_.granule.value;
    for (std::uint64_t i = first; i < first + granules(range); ++i) {
      const auto found = reservation.space_.find(i);
      if (found == reservation.space_.end() || found->second.is_shared != is_shared) {
        misuse("not there, or of the other kind");
        return fail(VirtualMemoryError(NotMapped{.offset = options_.granule * i}));
      }
    }
    return {};
  }

  [[nodiscard]] Result<std::vector<std::shared_ptr<Page>>, VirtualMemoryError> new_pages(
      std::uint64_t wanted) {
    const auto total = checked_mul(options_.granule, state_->pages + wanted);
    if (!total || *total > options_.capacity) {
      return fail(VirtualMemoryError(Os{
          .operation = "sim commit", .reason = "physical memory is used up", .code = no_memory}));
    }
    std::vector<std::shared_ptr<Page>> pages;
    for (std::uint64_t i = 0; i < wanted; ++i) {
      pages.push_back(std::make_shared<Page>(state_));
    }
    return pages;
  }

  [[nodiscard]] Result<void, VirtualMemoryError> commit_all(const std::string& name,
                                                            Reservation& reservation,
                                                            std::span<const ByteRange> ranges) {
    const bool refuse = faults_.must_fail(name);
    const bool late = faults_.must_fail(name + "_late");
    const bool stuck = faults_.must_fail("commit_stuck");
    if (refuse) {
      return fail(scripted("commit"));
    }
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (auto done = commit_one(reservation, ranges[i]); !done) {
        erase(reservation, ranges.first(i));
        return done;
      }
    }
    if (late) {
      erase(reservation, ranges);
      return fail(scripted("commit"));
    }
    if (stuck) {
      for (const ByteRange& range : ranges) {
        const ByteRange front = lower_half(range);
        erase(reservation, std::span(&front, 1));
      }
      return fail(scripted("commit"));
    }
    return {};
  }

  void erase(Reservation& reservation, std::span<const ByteRange> ranges) const {
    for (const ByteRange& range : ranges) {
      const std::uint64_t first = range.offset.value / options_.granule.value;
      reservation.space_.erase(reservation.space_.lower_bound(first),
                               reservation.space_.lower_bound(first + granules(range)));
    }
  }

  [[nodiscard]] Result<void, VirtualMemoryError> commit_one(Reservation& reservation,
                                                            ByteRange range) {
    MEMSTRATA_TRY_VOID(check(reservation, range));
    MEMSTRATA_TRY_VOID(check_absent(reservation, range));
    MEMSTRATA_TRY(auto pages, new_pages(granules(range)));
    std::uint64_t granule = range.offset.value / options_.granule.value;
    for (auto& page : pages) {
      reservation.space_.emplace(granule++, Mapped{.page = std::move(page), .is_shared = false});
    }
    return {};
  }

  [[nodiscard]] Result<void, VirtualMemoryError> drop(const char* operation,
                                                      Reservation& reservation,
                                                      ByteRange range,
                                                      bool midway) {
    const ByteRange front = midway ? lower_half(range) : range;
    erase(reservation, std::span(&front, 1));
    if (midway) {
      return fail(scripted(operation));
    }
    return {};
  }

  SimOptions options_;
  FaultScript faults_;
  std::shared_ptr<State> state_;
};

static_assert(SharedPlatformBacking<SimBacking>);
static_assert(!HostAddressable<SimBacking>);

}  // namespace memstrata::test
