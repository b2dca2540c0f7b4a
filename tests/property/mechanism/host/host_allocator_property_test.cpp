// SPDX-License-Identifier: Apache-2.0
// Random calls on the virtual host allocator, with random refusals of the kernel and of the governor, against a
// naive model: after every step records, charges, content and the kernel agree.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "memstrata/contract/release.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "support/allocator_rig.hpp"
#include "support/host_bytes.hpp"
#include "support/resident_bytes.hpp"

namespace memstrata::host {
namespace {

constexpr std::size_t cells_each = 8;

/// What the model knows of one granule.
struct Cell {
  bool backed = false;
  std::optional<std::size_t> prefix = std::nullopt;  ///< Set where it is shared.
  std::uint8_t value = 0;                            ///< Its first byte.
};

struct ModelAllocation {
  AllocationSpan span;
  std::array<Cell, cells_each> cells{};
};

struct ModelPrefix {
  std::shared_ptr<SharedDevicePrefix> handle;
  std::size_t granules;
  std::uint8_t value;
};

class AllocatorModel {
 public:
  explicit AllocatorModel(std::uint32_t seed) : random_(seed), rig_({.granule = page_size()}) {}

  void step() {
    schedule_fault();
    switch (pick(10)) {
      case 0:
        allocate();
        break;
      case 1:
      case 2:
        commit();
        break;
      case 3:
        commit_batch();
        break;
      case 4:
        decommit();
        break;
      case 5:
        create_prefix();
        break;
      case 6:
        map_prefix();
        break;
      case 7:
        break_shared();
        break;
      case 8:
        write();
        break;
      default:
        pick(2) == 0 ? release() : drop_prefix();
        break;
    }
    rig_.kernel().faults().clear_faults();
    rig_.governor().books().faults().clear_faults();
  }

  void check() {
    Bytes expected;
    for (const ModelAllocation& each : allocations_) {
      Bytes backed;
      for (std::size_t i = 0; i < cells_each; ++i) {
        const Cell& cell = each.cells.at(i);
        const DeviceAddress at = each.span.address + granule() * i;
        ASSERT_EQ(test::is_readable(at), cell.backed);
        if (cell.backed) {
          ASSERT_EQ(*test::touch(at), cell.value);
          backed += granule();
          expected += cell.prefix ? Bytes{} : granule();
        }
      }
      ASSERT_EQ(rig_.backing().committed_bytes(each.span), backed);
      ASSERT_EQ(test::resident_bytes(each.span.address, each.span.bytes), backed);
    }
    for (std::size_t id = 0; id < prefixes_.size(); ++id) {
      expected += is_live(id) ? granule() * prefixes_[id].granules : Bytes{};
    }
    ASSERT_EQ(rig_.used(), expected);
    ASSERT_FALSE(rig_.governor().books().over_released());
    ASSERT_EQ(rig_.allocator().live_allocations(), allocations_.size());
  }

  /// Gives everything back without faults.
  void finish() {
    while (!allocations_.empty()) {
      release();
    }
    for (ModelPrefix& prefix : prefixes_) {
      prefix.handle = nullptr;
    }
    EXPECT_EQ(rig_.used(), Bytes{});
    EXPECT_EQ(rig_.allocator().live_allocations(), 0U);
  }

  [[nodiscard]] std::uint64_t refusals() const { return refusals_; }

 private:
  [[nodiscard]] Bytes granule() const { return page_size(); }

  [[nodiscard]] std::size_t pick(std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_);
  }

  /// Sometimes lets one of the next calls fail.
  void schedule_fault() {
    const std::size_t kind = pick(6);
    if (kind == 0) {
      rig_.kernel().faults().fail_nth_of_any(1 + pick(6));
    } else if (kind == 1) {
      rig_.governor().books().faults().fail_nth("claim", 1 + pick(2));
    }
  }

  [[nodiscard]] ModelAllocation* any_allocation() {
    return allocations_.empty() ? nullptr : &allocations_[pick(allocations_.size())];
  }

  /// Some granules of an allocation: the first and how many.
  [[nodiscard]] std::pair<std::size_t, std::size_t> any_part() {
    const std::size_t first = pick(cells_each);
    return {first, 1 + pick(cells_each - first)};
  }

  [[nodiscard]] ByteRange range(std::pair<std::size_t, std::size_t> part) const {
    return {.offset = granule() * part.first, .size = granule() * part.second};
  }

  [[nodiscard]] bool is_live(std::size_t id) const {
    if (prefixes_[id].handle != nullptr) {
      return true;
    }
    for (const ModelAllocation& each : allocations_) {
      for (const Cell& cell : each.cells) {
        if (cell.backed && cell.prefix == id) {
          return true;
        }
      }
    }
    return false;
  }

  [[nodiscard]] std::set<std::size_t> live_prefixes() const {
    std::set<std::size_t> live;
    for (std::size_t id = 0; id < prefixes_.size(); ++id) {
      if (is_live(id)) {
        live.insert(id);
      }
    }
    return live;
  }

  /// Bytes of prefixes that were alive and are not any more.
  [[nodiscard]] Bytes ended_since(const std::set<std::size_t>& before) const {
    Bytes gone;
    for (const std::size_t id : before) {
      gone += is_live(id) ? Bytes{} : granule() * prefixes_[id].granules;
    }
    return gone;
  }

  template <class T, class E>
  [[nodiscard]] bool succeeded(const Result<T, E>& result) {
    refusals_ += result ? 0U : 1U;
    return result.has_value();
  }

  void set_backed(ModelAllocation& allocation, std::pair<std::size_t, std::size_t> part) {
    for (std::size_t i = part.first; i < part.first + part.second; ++i) {
      if (!allocation.cells.at(i).backed) {
        allocation.cells.at(i) = {.backed = true};
      }
    }
  }

  void allocate() {
    if (allocations_.size() >= 6) {
      return;
    }
    const Bytes bytes = granule() * cells_each;
    const Bytes alignment = pick(3) == 0 ? Bytes{65536} : Bytes{64};
    const bool all = pick(2) == 0;
    auto address = all ? rig_.allocator().allocate(bytes, alignment)
                       : rig_.backing().allocate_committed(bytes, alignment, {});
    if (succeeded(address)) {
      ModelAllocation made{.span = {.address = *address, .bytes = bytes, .alignment = alignment}};
      if (all) {
        set_backed(made, {0, cells_each});
      }
      allocations_.push_back(made);
    }
  }

  void commit() {
    ModelAllocation* const target = any_allocation();
    if (target != nullptr) {
      const auto part = any_part();
      if (succeeded(rig_.backing().commit(target->span, range(part)))) {
        set_backed(*target, part);
      }
    }
  }

  void commit_batch() {
    ModelAllocation* const one = any_allocation();
    ModelAllocation* const two = any_allocation();
    if (one == nullptr) {
      return;
    }
    const auto first = any_part();
    const auto second = any_part();
    const std::array batch{AllocationCommitRange{.allocation = one->span, .range = range(first)},
                           AllocationCommitRange{.allocation = two->span, .range = range(second)}};
    const auto done = rig_.backing().commit_all(batch);
    if (succeeded(done)) {
      set_backed(*one, first);
      set_backed(*two, second);
    } else {
      EXPECT_EQ(done.error().committed_ranges, 0U);
    }
  }

  /// After a call that may have stopped midway: what faults is gone, what does not may have lost its content.
  void accept_the_kernels_word(ModelAllocation& allocation,
                               std::pair<std::size_t, std::size_t> part) {
    for (std::size_t i = part.first; i < part.first + part.second; ++i) {
      Cell& cell = allocation.cells.at(i);
      const DeviceAddress at = allocation.span.address + granule() * i;
      if (!cell.backed) {
        continue;
      }
      if (!test::is_readable(at)) {
        cell = {};
      } else if (!cell.prefix && *test::touch(at) == 0) {
        cell.value = 0;
      }
    }
  }

  void decommit() {
    ModelAllocation* const target = any_allocation();
    if (target == nullptr) {
      return;
    }
    const auto part = any_part();
    const auto before = live_prefixes();
    const auto gone = rig_.backing().decommit(target->span, range(part));
    if (!succeeded(gone)) {
      accept_the_kernels_word(*target, part);
      return;
    }
    Bytes expected;
    for (std::size_t i = part.first; i < part.first + part.second; ++i) {
      Cell& cell = target->cells.at(i);
      expected += cell.backed && !cell.prefix ? granule() : Bytes{};
      cell = {};
    }
    EXPECT_EQ(*gone, expected + ended_since(before));
  }

  void create_prefix() {
    if (prefixes_.size() >= 64) {
      return;
    }
    const std::size_t granules = 1 + pick(3);
    auto made = rig_.mapping().create_shared_prefix(granule() * granules);
    if (!succeeded(made)) {
      return;
    }
    const auto value = static_cast<std::uint8_t>(100 + prefixes_.size());
    test::fill((*made)->address(), granule() * granules, value);
    if (!succeeded((*made)->seal())) {
      rig_.kernel().faults().clear_faults();
      ASSERT_TRUE((*made)->seal().has_value());
    }
    prefixes_.push_back({.handle = std::move(*made), .granules = granules, .value = value});
  }

  void map_prefix() {
    ModelAllocation* const target = any_allocation();
    if (target == nullptr || prefixes_.empty()) {
      return;
    }
    const std::size_t id = pick(prefixes_.size());
    if (prefixes_[id].handle == nullptr) {
      return;
    }
    const std::size_t first = pick(cells_each);
    if (succeeded(rig_.mapping().commit_shared_prefix(
            *prefixes_[id].handle, target->span, granule() * first))) {
      for (std::size_t i = 0; i < prefixes_[id].granules; ++i) {
        Cell& cell = target->cells.at(first + i);
        EXPECT_FALSE(cell.backed);
        cell = {.backed = true, .prefix = id, .value = prefixes_[id].value};
      }
    }
  }

  void break_shared() {
    ModelAllocation* const target = any_allocation();
    if (target == nullptr) {
      return;
    }
    const auto part = any_part();
    const auto broken = rig_.mapping().break_shared(target->span, range(part));
    if (!succeeded(broken)) {
      return;
    }
    Bytes expected;
    for (std::size_t i = part.first; i < part.first + part.second; ++i) {
      Cell& cell = target->cells.at(i);
      expected += cell.prefix ? granule() : Bytes{};
      cell.prefix.reset();
    }
    EXPECT_EQ(*broken, expected);
  }

  void write() {
    ModelAllocation* const target = any_allocation();
    if (target == nullptr) {
      return;
    }
    const std::size_t i = pick(cells_each);
    Cell& cell = target->cells.at(i);
    if (cell.backed && !cell.prefix) {
      cell.value = static_cast<std::uint8_t>(1 + pick(99));
      *test::touch(target->span.address + granule() * i) = cell.value;
    }
  }

  void release() {
    if (allocations_.empty()) {
      return;
    }
    const std::size_t index = pick(allocations_.size());
    ModelAllocation& target = allocations_[index];
    const auto before = live_prefixes();
    const MechanismRelease answer = rig_.allocator().release(target.span);
    if (!answer.is_complete()) {
      ++refusals_;
      accept_the_kernels_word(target, {0, cells_each});
      return;
    }
    Bytes expected;
    for (const Cell& cell : target.cells) {
      expected += cell.backed && !cell.prefix ? granule() : Bytes{};
    }
    allocations_.erase(allocations_.begin() + static_cast<std::ptrdiff_t>(index));
    EXPECT_EQ(answer.unmapped_bytes(), expected + ended_since(before));
  }

  void drop_prefix() {
    if (!prefixes_.empty()) {
      prefixes_[pick(prefixes_.size())].handle = nullptr;
    }
  }

  std::mt19937 random_;
  test::AllocatorRig rig_;
  std::vector<ModelAllocation> allocations_;
  std::vector<ModelPrefix> prefixes_;
  std::uint64_t refusals_ = 0;
};

//
TEST(HostVirtualAllocatorProperty, RecordsChargesContentAndKernelAgreeAfterEveryStep) {
  const bool soak = std::getenv("MEMSTRATA_SOAK") != nullptr;
  const std::uint32_t runs = soak ? 100 : 4;
  for (std::uint32_t seed = 1; seed <= runs; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    AllocatorModel model(seed);
    for (int step = 0; step < 400; ++step) {
      SCOPED_TRACE(::testing::Message() << "step " << step);
      model.step();
      model.check();
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
    EXPECT_GT(model.refusals(), 20U);
    model.finish();
  }
}

}  // namespace
}  // namespace memstrata::host
