// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/shared_prefix.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "support/host_bytes.hpp"
#include "support/resident_bytes.hpp"
#include "support/scripted_governor.hpp"
#include "support/scripted_system_calls.hpp"
#include "support/sim_backing.hpp"

namespace memstrata::test {

/// A subject makes one backing, reads and writes single bytes behind it without faulting, makes sealed prefixes
/// and can refuse the next physical step.

/// Granules of numbers.
class SimSubject {
 public:
  using Backing = SimBacking;

  [[nodiscard]] Backing& backing() { return backing_; }

  [[nodiscard]] bool write(Backing::Reservation& reservation, Bytes offset, std::uint8_t value) {
    return reservation.write(offset, value, backing_.granularity());
  }

  [[nodiscard]] std::optional<std::uint8_t> read(const Backing::Reservation& reservation,
                                                 Bytes offset) {
    return reservation.read(offset, backing_.granularity());
  }

  /// A sealed prefix whose granules begin with `first`, `first` + 1, ...
  [[nodiscard]] Backing::Prefix sealed(std::uint64_t granules, std::uint8_t first) {
    auto prefix = backing_.create_prefix(backing_.granularity() * granules);
    for (std::uint64_t i = 0; i < granules; ++i) {
      static_cast<void>(prefix->write(backing_.granularity() * i, mark(first, i)));
    }
    prefix->seal();
    return std::move(*prefix);
  }

  void refuse_next_commit() {
    backing_.faults().fail_next("commit");
    backing_.faults().fail_next("commit_batch");
  }

  void refuse_next_decommit() { backing_.faults().fail_next("decommit"); }

  void refuse_next_map() { backing_.faults().fail_next("map_shared"); }

  void refuse_next_break() { backing_.faults().fail_next("break_shared"); }

  [[nodiscard]] static std::uint8_t mark(std::uint8_t first, std::uint64_t granule) {
    return static_cast<std::uint8_t>(first + granule);
  }

 private:
  Backing backing_;
};

/// Real pages.
class PageSubject {
 public:
  using Backing = host::PageBacking;

  PageSubject() : PageSubject(host::PageBackingOptions{}) {}

  [[nodiscard]] Backing& backing() { return *backing_; }

  [[nodiscard]] bool write(Backing::Reservation& reservation, Bytes offset, std::uint8_t value) {
    const DeviceAddress address = reservation.base() + offset;
    if (!kernel_access(address).writable) {
      return false;
    }
    *touch(address) = value;
    return true;
  }

  [[nodiscard]] std::optional<std::uint8_t> read(const Backing::Reservation& reservation,
                                                 Bytes offset) {
    const DeviceAddress address = reservation.base() + offset;
    return is_readable(address) ? std::optional(*touch(address)) : std::nullopt;
  }

  /// A sealed prefix whose granules begin with `first`, `first` + 1, ...
  [[nodiscard]] Backing::Prefix sealed(std::uint64_t granules, std::uint8_t first) {
    auto builder = backing_->create_prefix(backing_->granularity() * granules);
    for (std::uint64_t i = 0; i < granules; ++i) {
      *touch(builder->base() + backing_->granularity() * i) = SimSubject::mark(first, i);
    }
    auto prefix = builder->seal();
    return std::move(*prefix);
  }

  void refuse_next_commit() { kernel_->faults().fail_next("mprotect"); }

  void refuse_next_decommit() { kernel_->faults().fail_next("madvise"); }

  void refuse_next_map() { kernel_->faults().fail_next("mmap"); }

  void refuse_next_break() { kernel_->faults().fail_next("mmap"); }

 protected:
  explicit PageSubject(host::PageBackingOptions options) {
    options.system_calls = kernel_;
    auto made = Backing::create(std::move(options));
    backing_.emplace(std::move(*made));
  }

 private:
  std::shared_ptr<ScriptedSystemCalls> kernel_ = std::make_shared<ScriptedSystemCalls>();
  std::optional<Backing> backing_;
};

/// Real pages in granules of 2 MiB and in huge pages.
class HugePagesSubject : public PageSubject {
 public:
  HugePagesSubject() : PageSubject(options()) {}

 private:
  [[nodiscard]] static host::PageBackingOptions options() {
    host::PageBackingOptions options;
    options.granule = 2_MiB;
    options.huge_pages = true;
    return options;
  }
};

/// Real pages in granules that are no power of two, not filled in on commit.
class OddPagesSubject : public PageSubject {
 public:
  OddPagesSubject() : PageSubject(options()) {}

 private:
  [[nodiscard]] static host::PageBackingOptions options() {
    host::PageBackingOptions options;
    options.granule = host::page_size() * 3;
    options.populate = false;
    return options;
  }
};

/// Real pages that the backing itself charges, with a retained tail.
class AccountingPagesSubject : public PageSubject {
 public:
  AccountingPagesSubject() : PageSubject(options()) {}

 private:
  [[nodiscard]] static host::PageBackingOptions options() {
    host::PageBackingOptions options;
    options.governor = ScriptedGovernor::with_limit(1_GiB);
    options.retained_tail = options.granule * 2;
    return options;
  }
};

}  // namespace memstrata::test
