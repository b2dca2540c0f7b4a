// SPDX-License-Identifier: Apache-2.0
#include "support/growing.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/check.hpp"
#include "memstrata/core/clock.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/governance/ledger_governor.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/structure/virtual_buffer.hpp"
#include "support/open_backing.hpp"
#include "support/raw_memory.hpp"

namespace memstrata::bench {
namespace {

constexpr double nanoseconds_per_millisecond = 1e6;

/// Measures one growth: steps are timed with their writing, the rest is not.
class Watch {
 public:
  explicit Watch(Growth growth) : growth_(growth) {
    reset_peak_resident();
    resident_before_ = resident_bytes();
  }

  /// Grows by one step: `grow(size)` answers with the base of at least `size` bytes.
  template <class Grow>
  void step(Bytes size, Grow&& grow) {
    const auto start = steady_clock().now();
    std::byte* const base = grow(size);
    const Bytes written = size - growth_.step;
    fill_words(base + written.value, growth_.step, written.value);
    const auto passed = static_cast<double>((steady_clock().now() - start).count());
    run_.milliseconds += passed / nanoseconds_per_millisecond;
    run_.worst_step_milliseconds =
        std::max(run_.worst_step_milliseconds, passed / nanoseconds_per_millisecond);
    run_.moves += (base_ != nullptr && base != base_) ? 1U : 0U;
    base_ = base;
  }

  /// All steps to the total, and `beyond` steps more.
  template <class Grow>
  void steps(Grow&& grow, std::uint64_t beyond = 0) {
    const Bytes last = growth_.total + growth_.step * beyond;
    for (Bytes size = growth_.step; size <= last; size += growth_.step) {
      step(size, grow);
    }
  }

  [[nodiscard]] GrowthRun finish() {
    const Bytes peak = saturating_sub(peak_resident_bytes(), resident_before_);
    run_.peak = static_cast<double>(peak.value) / static_cast<double>(growth_.total.value);
    run_.checksum = sum_of_words(base_, growth_.total);
    return run_;
  }

 private:
  Growth growth_;
  Bytes resident_before_;
  std::byte* base_ = nullptr;
  GrowthRun run_;
};

std::byte* map_writable(Bytes size) {
  void* const map =
      mmap(nullptr, size.value, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MEMSTRATA_VERIFY(map != MAP_FAILED, "mmap", size.value);
  return static_cast<std::byte*>(map);
}

/// A block that is replaced by a larger one; the content is copied.
class CopiedBlock {
 public:
  CopiedBlock() = default;
  CopiedBlock(const CopiedBlock&) = delete;
  CopiedBlock& operator=(const CopiedBlock&) = delete;
  CopiedBlock(CopiedBlock&&) = delete;
  CopiedBlock& operator=(CopiedBlock&&) = delete;

  ~CopiedBlock() { unmap(); }

  [[nodiscard]] Bytes size() const noexcept { return size_; }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }

  void replace(Bytes size, Bytes used) {
    std::byte* const larger = map_writable(size);
    if (used != Bytes{}) {
      std::memcpy(larger, data_, used.value);
    }
    unmap();
    data_ = larger;
    size_ = size;
  }

 private:
  void unmap() noexcept {
    if (data_ != nullptr) {
      munmap(data_, size_.value);
    }
  }

  std::byte* data_ = nullptr;
  Bytes size_;
};

}  // namespace

GrowthRun grow_in_one_mapping(Growth growth) {
  std::byte* const base = map_writable(growth.total);
  Watch watch(growth);
  watch.steps([base](Bytes) { return base; });
  const GrowthRun run = watch.finish();
  munmap(base, growth.total.value);
  return run;
}

GrowthRun grow_by_mprotect(Growth growth) {
  const RawRange range(growth.total);
  Watch watch(growth);
  watch.steps([&range, growth](Bytes size) {
    range.open({.offset = size - growth.step, .size = growth.step});
    return range.data();
  });
  return watch.finish();
}

GrowthRun grow_by_doubling(Growth growth) {
  CopiedBlock block;
  Watch watch(growth);
  watch.steps(
      [&block, growth](Bytes size) {
        if (size > block.size()) {
          block.replace(std::max(size, block.size() * 2), size - growth.step);
        }
        return block.data();
      },
      1);
  return watch.finish();
}

GrowthRun grow_by_realloc(Growth growth) {
  void* block = nullptr;
  Watch watch(growth);
  watch.steps([&block](Bytes size) {
    void* const larger = std::realloc(block, size.value);
    MEMSTRATA_VERIFY(larger != nullptr, "realloc", size.value);
    block = larger;
    return static_cast<std::byte*>(block);
  });
  const GrowthRun run = watch.finish();
  std::free(block);
  return run;
}

GrowthRun grow_by_mremap(Growth growth) {
  std::byte* base = map_writable(growth.step);
  Watch watch(growth);
  watch.steps([&base, growth](Bytes size) {
    if (size > growth.step) {
      void* const moved = mremap(base, size.value - growth.step.value, size.value, MREMAP_MAYMOVE);
      MEMSTRATA_VERIFY(moved != MAP_FAILED, "mremap", size.value);
      base = static_cast<std::byte*>(moved);
    }
    return base;
  });
  const GrowthRun run = watch.finish();
  munmap(base, growth.total.value);
  return run;
}

GrowthRun grow_by_copying(Growth growth) {
  CopiedBlock block;
  Watch watch(growth);
  watch.steps([&block, growth](Bytes size) {
    block.replace(size, size - growth.step);
    return block.data();
  });
  return watch.finish();
}

GrowthRun grow_buffer(Growth growth, BufferShape shape) {
  auto backing = std::make_shared<host::PageBacking>(
      open_backing({.granule = shape.granule, .populate = shape.populate, .huge = shape.huge}));
  auto governor =
      std::make_shared<LedgerGovernor>(DeviceKey::host(), TierLimits::all(growth.total));
  auto buffer = must(VirtualBuffer<host::PageBacking>::create(
      std::move(backing),
      growth.total,
      std::move(governor),
      {.tier = Tier::host, .role = MemoryRole::kv_cache, .holder = HolderId{1}}));
  Watch watch(growth);
  watch.steps([&buffer](Bytes size) {
    must(buffer.grow_to(size));
    return buffer.data();
  });
  return watch.finish();
}

}  // namespace memstrata::bench
