// SPDX-License-Identifier: Apache-2.0

// Random operations on one reservation against a model with one word per granule, and against the kernel.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/kernel_figure.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "support/host_rig.hpp"
#include "support/process_view.hpp"
#include "support/resident_bytes.hpp"
#include "support/scripted_governor.hpp"

namespace memstrata::host {
namespace {

using test::HostRig;

constexpr std::uint64_t granule_count = 48;
constexpr std::uint64_t prefix_granules = 6;

enum class State : std::uint8_t { vacant, committed, shared };

/// What one granule should be: its state and the byte that fills it.
struct Granule {
  State state = State::vacant;
  std::uint8_t fill = 0;
  std::size_t prefix = 0;  ///< Which prefix, if shared.
};

struct Held {
  std::optional<Prefix> handle;
  std::uint8_t first = 0;
};

class World {
 public:
  World(std::uint32_t seed, bool tail, bool populate)
      : random_(seed),
        governor_(test::ScriptedGovernor::with_limit(1_GiB)),
        rig_(granule_count, options(tail, populate, governor_)) {}

  void step() {
    const std::uint64_t first = pick(granule_count);
    const std::uint64_t count = 1 + pick(std::min<std::uint64_t>(granule_count - first, 9));
    switch (pick(9)) {
      case 0:
      case 1:
        commit(first, count);
        break;
      case 2:
        commit_batch();
        break;
      case 3:
      case 4:
        decommit(first, count);
        break;
      case 5:
        map(first);
        break;
      case 6:
        break_up(first, std::min<std::uint64_t>(count, 3));
        break;
      case 7:
        unmap(first, std::min<std::uint64_t>(count, 4));
        break;
      default:
        if (pick(4) == 0) {
          drop_handle();
        } else if (pick(4) == 0) {
          ASSERT_TRUE(rig_.backing.trim_retained(rig_.reservation).has_value());
        }
        break;
    }
  }

  /// Everything that the backing, the books and the kernel say agrees with the model.
  void verify() const {
    std::string access;
    std::uint64_t committed = 0;
    std::uint64_t shared = 0;
    for (std::uint64_t k = 0; k < granule_count; ++k) {
      access += letter(model_[k].state);
      committed += model_[k].state == State::committed ? 1U : 0U;
      shared += model_[k].state == State::shared ? 1U : 0U;
      if (model_[k].state != State::vacant) {
        ASSERT_TRUE(rig_.is_filled(k, 1, model_[k].fill)) << "granule " << k;
      }
    }
    const test::HostSnapshot shot = rig_.snapshot();
    ASSERT_EQ(shot.access, access);
    ASSERT_EQ(shot.committed, rig_.g * committed);
    ASSERT_EQ(shot.shared, rig_.g * shared);
    ASSERT_EQ(shot.resident, rig_.g * (committed + shared) + shot.retained);
    ASSERT_EQ(shot.leased, shot.committed + shot.retained + rig_.g * live_prefix_granules());
    const auto figure = kernel_figure(rig_.backing);
    ASSERT_TRUE(figure.has_value());
    ASSERT_EQ(figure->anonymous, shot.committed + shot.retained);
    ASSERT_EQ(figure->prefix_files, rig_.g * live_prefix_granules());
    ASSERT_GE(rig_.backing.mappings(rig_.reservation), kernel_count());
    ASSERT_FALSE(governor_->books().over_released());
  }

 private:
  [[nodiscard]] static PageBackingOptions options(bool tail,
                                                  bool populate,
                                                  std::shared_ptr<MemoryGovernor> governor) {
    PageBackingOptions options = HostRig::small_options();
    options.governor = std::move(governor);
    options.own_file_prefixes = 2;
    options.populate = populate;
    options.retained_tail = tail ? options.granule * 4 : 0_B;
    return options;
  }

  [[nodiscard]] static char letter(State state) {
    switch (state) {
      case State::vacant:
        return '-';
      case State::committed:
        return 'w';
      case State::shared:
        return 'r';
    }
    return '?';
  }

  [[nodiscard]] std::uint64_t pick(std::uint64_t below) { return random_() % below; }

  [[nodiscard]] std::size_t kernel_count() const {
    const Bytes page = page_size();
    return test::kernel_mappings(DeviceAddress{rig_.reservation.base().value() - page.value},
                                 rig_.reservation.size() + page * 2);
  }

  [[nodiscard]] bool all(std::uint64_t first, std::uint64_t count, State state) const {
    return std::all_of(model_.begin() + static_cast<std::ptrdiff_t>(first),
                       model_.begin() + static_cast<std::ptrdiff_t>(first + count),
                       [state](const Granule& granule) { return granule.state == state; });
  }

  /// Fills what was just committed with a byte of its own, after it was seen to be zero.
  void take(std::uint64_t first, std::uint64_t count) {
    ASSERT_TRUE(rig_.is_filled(first, count, 0));
    const auto fill = static_cast<std::uint8_t>(1 + pick(200));
    rig_.fill(first, count, fill);
    for (std::uint64_t k = first; k < first + count; ++k) {
      model_[k] = {.state = State::committed, .fill = fill};
    }
  }

  void commit(std::uint64_t first, std::uint64_t count) {
    const bool expected = all(first, count, State::vacant);
    const auto done = rig_.backing.commit(rig_.reservation, rig_.granules(first, count));
    ASSERT_EQ(done.has_value(), expected);
    if (expected) {
      take(first, count);
    }
  }

  void commit_batch() {
    std::vector<ByteRange> ranges;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
    std::vector<bool> used(granule_count, false);
    bool expected = true;
    for (std::uint64_t i = 0; i < 3; ++i) {
      const std::uint64_t first = pick(granule_count);
      const std::uint64_t count = 1 + pick(std::min<std::uint64_t>(granule_count - first, 3));
      ranges.push_back(rig_.granules(first, count));
      spans.emplace_back(first, count);
      expected = expected && all(first, count, State::vacant);
      for (std::uint64_t k = first; k < first + count; ++k) {
        expected = expected && !used[k];
        used[k] = true;
      }
    }
    const auto done = rig_.backing.commit(rig_.reservation, std::span<const ByteRange>(ranges));
    ASSERT_EQ(done.has_value(), expected);
    if (expected) {
      for (const auto& [first, count] : spans) {
        take(first, count);
      }
    }
  }

  void decommit(std::uint64_t first, std::uint64_t count) {
    const bool expected = all(first, count, State::committed);
    const auto done = rig_.backing.decommit(rig_.reservation, rig_.granules(first, count));
    ASSERT_EQ(done.has_value(), expected);
    if (expected) {
      std::fill_n(model_.begin() + static_cast<std::ptrdiff_t>(first), count, Granule{});
    }
  }

  void map(std::uint64_t first) {
    if (prefixes_.empty() || pick(3) == 0) {
      const auto fill = static_cast<std::uint8_t>(1 + pick(200));
      prefixes_.push_back({.handle = rig_.prefix(prefix_granules, fill), .first = fill});
    }
    const std::size_t which = pick(prefixes_.size());
    if (!prefixes_[which].handle) {
      return;
    }
    const std::uint64_t from = pick(prefix_granules);
    const std::uint64_t count = std::min(1 + pick(prefix_granules - from), granule_count - first);
    const bool expected = all(first, count, State::vacant);
    const auto done = rig_.backing.map_shared(
        rig_.reservation, rig_.g * first, *prefixes_[which].handle, rig_.granules(from, count));
    ASSERT_EQ(done.has_value(), expected);
    if (expected) {
      for (std::uint64_t k = 0; k < count; ++k) {
        model_[first + k] = {.state = State::shared,
                             .fill = static_cast<std::uint8_t>(prefixes_[which].first + from + k),
                             .prefix = which};
      }
    }
  }

  void break_up(std::uint64_t first, std::uint64_t count) {
    const bool expected = all(first, count, State::shared);
    const auto done = rig_.backing.break_shared(rig_.reservation, rig_.granules(first, count));
    ASSERT_EQ(done.has_value(), expected);
    for (std::uint64_t k = first; expected && k < first + count; ++k) {
      model_[k].state = State::committed;
    }
  }

  void unmap(std::uint64_t first, std::uint64_t count) {
    const bool expected = all(first, count, State::shared);
    const std::uint64_t before = live_prefix_granules();
    const auto done = rig_.backing.unmap_shared(rig_.reservation, rig_.granules(first, count));
    ASSERT_EQ(done.has_value(), expected);
    if (expected) {
      std::fill_n(model_.begin() + static_cast<std::ptrdiff_t>(first), count, Granule{});
      ASSERT_EQ(*done, rig_.g * (before - live_prefix_granules()));
    }
  }

  void drop_handle() {
    if (!prefixes_.empty()) {
      prefixes_[pick(prefixes_.size())].handle.reset();
    }
  }

  /// Granules of the prefixes that a handle or a mapping still holds.
  [[nodiscard]] std::uint64_t live_prefix_granules() const {
    std::uint64_t live = 0;
    for (std::size_t which = 0; which < prefixes_.size(); ++which) {
      const bool mapped = std::ranges::any_of(model_, [which](const Granule& granule) {
        return granule.state == State::shared && granule.prefix == which;
      });
      live += prefixes_[which].handle || mapped ? prefix_granules : 0U;
    }
    return live;
  }

  std::minstd_rand random_;
  std::shared_ptr<test::ScriptedGovernor> governor_;
  HostRig rig_;
  std::vector<Granule> model_ = std::vector<Granule>(granule_count);
  std::vector<Held> prefixes_;
};

void run(bool tail, bool populate) {
  const bool soak = std::getenv("MEMSTRATA_SOAK") != nullptr;
  const std::uint32_t seeds = soak ? 60 : 2;
  const std::uint32_t steps = soak ? 3000 : 500;
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed, tail, populate);
    for (std::uint32_t step = 0; step < steps; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      world.step();
      if (testing::Test::HasFatalFailure()) {
        return;
      }
      if (step % 3 == 0) {
        world.verify();
      }
      if (testing::Test::HasFatalFailure()) {
        return;
      }
    }
  }
}

// W-7, X-036
TEST(PageBackingRandom, AgreesWithAModelOfEachGranuleAndWithTheKernel) {
  EXPECT_NO_FATAL_FAILURE(run(false, true));
}

TEST(PageBackingRandom, AgreesWithTheModelWhenTailsAreRetained) {
  EXPECT_NO_FATAL_FAILURE(run(true, true));
}

TEST(PageBackingRandom, AgreesWithTheModelWhenNothingIsPopulatedByTheCommit) {
  EXPECT_NO_FATAL_FAILURE(run(false, false));
}

}  // namespace
}  // namespace memstrata::host
