// SPDX-License-Identifier: Apache-2.0
// Random commits and decommits of a range, over simulated and over real memory, against a naive list.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/structure/virtual_range.hpp"
#include "support/scripted_governor.hpp"
#include "support/sim_backing.hpp"
#include "support/sim_rig.hpp"

namespace memstrata::virtual_range_property_test {
namespace {

constexpr std::uint64_t size = 200;  // granules
constexpr std::uint64_t budget = 120;

/// A host backing of 64 KiB granules.
[[nodiscard]] std::shared_ptr<host::PageBacking> host_backing(bool populate) {
  host::PageBackingOptions options;
  options.populate = populate;
  return std::make_shared<host::PageBacking>(host::PageBacking::create(options).value());
}

[[nodiscard]] std::uint64_t steps(std::uint64_t normal, std::uint64_t soak) {
  return std::getenv("MEMSTRATA_SOAK") == nullptr ? normal : soak;
}

/// What the list says and what the range says, after each step.
template <PlatformBacking B>
class RangeWalk {
 public:
  RangeWalk(std::shared_ptr<B> backing, std::uint64_t seed)
      : governor_(test::ScriptedGovernor::with_limit(backing->granularity() * budget)),
        granule_(backing->granularity()),
        random_(seed),
        range_(VirtualRange<B>::reserve(std::move(backing),
                                        granule_ * size,
                                        governor_,
                                        test::sim_terms)
                   .value()) {}

  /// `faulty`: the backing may fail in this step.
  void step(bool faulty) {
    const std::uint64_t count = 1 + random_() % (random_() % 8 == 0 ? 100 : 5);
    const std::uint64_t first = random_() % (size - count + 1);
    if (random_() % 2 == 0) {
      commit(first, count, faulty);
    } else {
      decommit(first, count, faulty);
    }
    const auto held = static_cast<std::uint64_t>(std::ranges::count(model_, true));
    ASSERT_EQ(range_.committed(), granule_ * held);
    ASSERT_EQ(governor_->usage(Tier::device).used, granule_ * held);
    ASSERT_TRUE(range_.validate());
  }

 private:
  void commit(std::uint64_t first, std::uint64_t count, bool faulty) {
    const auto begin = model_.begin() + static_cast<std::ptrdiff_t>(first);
    const bool is_free = std::none_of(begin, begin + static_cast<std::ptrdiff_t>(count), is_set);
    const auto held = static_cast<std::uint64_t>(std::ranges::count(model_, true));
    const bool fits = held + count <= budget;
    const auto done = range_.commit(test::granules(granule_, first, count));
    if (!faulty) {
      ASSERT_EQ(done.has_value(), is_free && fits);
    }
    if (!done && !is_free) {
      ASSERT_NE(test::memory_error<AlreadyMapped>(done.error()), nullptr);
    }
    ASSERT_TRUE(is_free || !done);
    if (done) {
      std::fill_n(begin, count, true);
      stamp(first, count);
    }
  }

  void decommit(std::uint64_t first, std::uint64_t count, bool faulty) {
    const auto done = range_.decommit(test::granules(granule_, first, count));
    ASSERT_TRUE(done.has_value() || faulty);
    for (std::uint64_t i = first; i < first + count; ++i) {
      // A failure leaves an unknown front of the range decommitted; the range knows which.
      model_[i] = !done && model_[i] && range_.is_committed(test::granules(granule_, i, 1));
    }
    check_stamps();
  }

  void stamp(std::uint64_t first, std::uint64_t count) {
    if constexpr (HostAddressable<B>) {
      for (std::uint64_t i = first; i < first + count; ++i) {
        std::byte& byte = range_.data()[granule_.value * i + 17];
        ASSERT_EQ(byte, std::byte{0}) << "granule " << i << " is not fresh";
        byte = std::byte(i % 250 + 1);
      }
    }
  }

  void check_stamps() {
    if constexpr (HostAddressable<B>) {
      for (std::uint64_t i = 0; i < size; ++i) {
        if (model_[i]) {
          ASSERT_EQ(range_.data()[granule_.value * i + 17], std::byte(i % 250 + 1));
        }
      }
    }
  }

  static bool is_set(bool value) { return value; }

  std::shared_ptr<test::ScriptedGovernor> governor_;
  Bytes granule_;
  std::mt19937_64 random_;
  VirtualRange<B> range_;
  std::vector<bool> model_ = std::vector<bool>(size, false);
};

// W-7
TEST(VirtualRangeProperty, RandomOperationsOnSimulatedMemoryAgreeWithAList) {
  for (const std::uint64_t seed : {1ULL, 20261130ULL}) {
    SCOPED_TRACE(seed);
    const auto backing = std::make_shared<test::SimBacking>();
    RangeWalk walk(backing, seed);
    for (std::uint64_t i = 0; i < steps(4000, 500000); ++i) {
      walk.step(false);
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "step " << i;
    }
    EXPECT_TRUE(backing->misuses().empty());
  }
}

// W-7, X-034
TEST(VirtualRangeProperty, RandomFailuresLeaveBooksAndMemoryInAgreement) {
  constexpr std::uint64_t seed = 77;
  SCOPED_TRACE(seed);
  const auto backing = std::make_shared<test::SimBacking>();
  RangeWalk walk(backing, seed);
  std::mt19937_64 faults(seed);
  for (std::uint64_t i = 0; i < steps(4000, 500000); ++i) {
    backing->faults().fail_nth_of_any(1 + faults() % 6);
    walk.step(true);
    backing->faults().clear_faults();
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "step " << i;
  }
}

// W-7, X-036
TEST(VirtualRangeProperty, RandomOperationsOnRealMemoryKeepContentsAndReadZeroWhenFresh) {
  for (const std::uint64_t seed : {3ULL, 4ULL}) {
    SCOPED_TRACE(seed);
    const auto backing = host_backing(seed == 3);
    RangeWalk walk(backing, seed);
    for (std::uint64_t i = 0; i < steps(1500, 100000); ++i) {
      walk.step(false);
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace memstrata::virtual_range_property_test
