// SPDX-License-Identifier: Apache-2.0
// Random growth, shrinking, attaching and breaking, over simulated and over real memory, against a naive list.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/structure/buffer_segments.hpp"
#include "memstrata/structure/virtual_buffer.hpp"
#include "support/scripted_governor.hpp"
#include "support/sim_backing.hpp"
#include "support/sim_rig.hpp"

namespace memstrata {
namespace {

constexpr std::uint64_t capacity = 96;  // granules
constexpr std::uint64_t budget = 60;
constexpr std::uint64_t prefix_granules = 12;

/// A host backing of 64 KiB granules.
[[nodiscard]] std::shared_ptr<host::PageBacking> host_backing(bool populate) {
  host::PageBackingOptions options;
  options.populate = populate;
  return std::make_shared<host::PageBacking>(host::PageBacking::create(options).value());
}

[[nodiscard]] std::uint64_t steps(std::uint64_t normal, std::uint64_t soak) {
  return std::getenv("MEMSTRATA_SOAK") == nullptr ? normal : soak;
}

[[nodiscard]] test::SimBacking::Prefix make_prefix(test::SimBacking& backing) {
  auto prefix = backing.create_prefix(backing.granularity() * prefix_granules).value();
  prefix.seal();
  return prefix;
}

/// Granule i of the prefix holds 200 + i.
[[nodiscard]] host::Prefix make_prefix(host::PageBacking& backing) {
  const Bytes granule = backing.granularity();
  auto builder = backing.create_prefix(granule * prefix_granules).value();
  for (std::uint64_t i = 0; i < prefix_granules; ++i) {
    std::fill_n(builder.data() + (granule * i).value, granule.value, std::byte(200 + i));
  }
  return builder.seal().value();
}

/// One granule of the naive list: what stands there and the byte that it begins with.
struct Granule {
  SegmentKind kind;
  std::byte first;
};

template <SharedPlatformBacking B>
class BufferWalk {
 public:
  BufferWalk(std::shared_ptr<B> backing, std::uint64_t seed)
      : governor_(test::ScriptedGovernor::with_limit(backing->granularity() * budget)),
        granule_(backing->granularity()),
        random_(seed),
        prefix_(make_prefix(*backing)),
        buffer_(VirtualBuffer<B>::create(backing, granule_ * capacity, governor_, test::sim_terms)
                    .value()),
        base_(buffer_.base()) {}

  /// `faulty`: the backing may fail in this step.
  void step(bool faulty) {
    switch (random_() % 6) {
      case 0:
      case 1:
        grow(random_length(8), faulty);
        break;
      case 2:
        shrink(Bytes{random_() % (buffer_.length().value + 1)}, faulty);
        break;
      case 3:
        attach(faulty);
        break;
      case 4:
        break_shared(faulty);
        break;
      default:
        ASSERT_TRUE(buffer_.trim().has_value() || faulty);
        break;
    }
    if (!testing::Test::HasFatalFailure()) {
      compare();
    }
  }

 private:
  [[nodiscard]] Bytes random_length(std::uint64_t most_granules) {
    const Bytes aligned = align_up(buffer_.length(), granule_).value_or(Bytes{});
    return random_() % 2 == 0
               ? aligned + granule_ * (random_() % most_granules)
               : buffer_.length() + Bytes{random_() % (granule_ * most_granules).value};
  }

  [[nodiscard]] std::uint64_t count(SegmentKind kind) const {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(model_, [&](const Granule& each) { return each.kind == kind; }));
  }

  [[nodiscard]] bool ends_inside_shared() const {
    return !is_multiple(length_, granule_) && model_.back().kind == SegmentKind::shared;
  }

  void grow(Bytes to, bool faulty) {
    const std::uint64_t needed = align_up(to, granule_)->value / granule_.value;
    const std::uint64_t more = needed > model_.size() ? needed - model_.size() : 0;
    const bool legal = to <= granule_ * capacity && !(to > length_ && ends_inside_shared()) &&
                       count(SegmentKind::committed) + more <= budget;
    const auto done = buffer_.grow_to(to);
    ASSERT_TRUE(done.has_value() == (legal || to <= length_) || faulty) << to_string(buffer_);
    if (done) {
      length_ = std::max(length_, to);
      while (model_.size() < needed) {
        model_.push_back({.kind = SegmentKind::committed, .first = fresh()});
      }
    }
  }

  /// Checks that the granule behind the list reads zero and marks it.
  [[nodiscard]] std::byte fresh() {
    const auto mark = static_cast<std::byte>(random_() % 190 + 1);
    if constexpr (HostAddressable<B>) {
      std::byte* const at = buffer_.data() + (granule_ * model_.size()).value;
      EXPECT_EQ(*at, std::byte{0});
      *at = mark;
    }
    return mark;
  }

  void shrink(Bytes to, bool faulty) {
    ASSERT_TRUE(buffer_.shrink_to(to).has_value() || faulty);
    ASSERT_EQ(buffer_.length(), std::min(to, length_));
    length_ = std::min(to, length_);
    model_.resize(align_up(length_, granule_)->value / granule_.value);
  }

  void attach(bool faulty) {
    const std::uint64_t first = random_() % prefix_granules;
    const std::uint64_t part = 1 + random_() % (prefix_granules - first);
    const bool legal = is_multiple(length_, granule_) && model_.size() + part <= capacity;
    const auto done = buffer_.attach(prefix_, test::granules(granule_, first, part));
    ASSERT_TRUE(done.has_value() == legal || faulty) << to_string(buffer_);
    ASSERT_TRUE(legal || !done);
    if (done) {
      for (std::uint64_t i = first; i < first + part; ++i) {
        model_.push_back({.kind = SegmentKind::shared, .first = std::byte(200 + i)});
      }
      length_ += granule_ * part;
    }
  }

  void break_shared(bool faulty) {
    const Bytes from{random_() % (length_.value + 1)};
    const Bytes size{random_() % (std::min(length_ - from, granule_ * 6).value + 1)};
    std::vector<Granule> broken = model_;
    std::uint64_t more = 0;
    if (size != Bytes{}) {
      const std::uint64_t last = ((from + size - Bytes{1}).value) / granule_.value;
      for (std::uint64_t i = from.value / granule_.value; i <= last; ++i) {
        more += broken[i].kind == SegmentKind::shared ? 1U : 0U;
        broken[i].kind = SegmentKind::committed;
      }
    }
    const bool legal = count(SegmentKind::committed) + more <= budget;
    const auto done = buffer_.break_shared({.offset = from, .size = size});
    ASSERT_TRUE(done.has_value() == legal || faulty) << to_string(buffer_);
    if (done) {
      ASSERT_EQ(*done, granule_ * more);
      model_ = std::move(broken);
    } else if (faulty) {
      adopt();
    }
  }

  /// After a failure that may change kinds or the length: the list becomes what the buffer says.
  void adopt() {
    ASSERT_LE(buffer_.length(), length_);
    length_ = buffer_.length();
    model_.resize(align_up(length_, granule_)->value / granule_.value);
    for (std::uint64_t i = 0; i < model_.size(); ++i) {
      model_[i].kind = buffer_.segments().kind_at(granule_ * i).value();
    }
  }

  void compare() {
    ASSERT_EQ(buffer_.length(), length_);
    ASSERT_EQ(buffer_.base(), base_);
    ASSERT_TRUE(buffer_.validate()) << to_string(buffer_);
    ASSERT_EQ(governor_->usage(Tier::device).used, buffer_.committed());
    ASSERT_GE(buffer_.segments().end(), granule_ * model_.size());
    if (!buffer_.segments().has_stranded()) {
      ASSERT_EQ(buffer_.committed(), granule_ * count(SegmentKind::committed));
      ASSERT_EQ(buffer_.shared_bytes(), granule_ * count(SegmentKind::shared));
    }
    for (std::uint64_t i = 0; i < model_.size(); ++i) {
      ASSERT_EQ(buffer_.segments().kind_at(granule_ * i), model_[i].kind) << "granule " << i;
      if constexpr (HostAddressable<B>) {
        ASSERT_EQ(buffer_.data()[(granule_ * i).value], model_[i].first) << "granule " << i;
      }
    }
  }

  std::shared_ptr<test::ScriptedGovernor> governor_;
  Bytes granule_;
  std::mt19937_64 random_;
  std::remove_cvref_t<decltype(make_prefix(std::declval<B&>()))> prefix_;
  VirtualBuffer<B> buffer_;
  DeviceAddress base_;
  Bytes length_;
  std::vector<Granule> model_;
};

// B-101, W-7
TEST(VirtualBufferProperty, RandomOperationsOnSimulatedMemoryAgreeWithAList) {
  for (const std::uint64_t seed : {1ULL, 20261130ULL}) {
    SCOPED_TRACE(seed);
    const auto backing = std::make_shared<test::SimBacking>();
    BufferWalk walk(backing, seed);
    for (std::uint64_t i = 0; i < steps(6000, 1000000); ++i) {
      walk.step(false);
      ASSERT_FALSE(testing::Test::HasFailure()) << "step " << i;
    }
    EXPECT_TRUE(backing->misuses().empty());
  }
}

// W-8, X-031, X-034
TEST(VirtualBufferProperty, RandomFailuresLeaveBooksAndMemoryInAgreement) {
  for (const std::uint64_t seed : {5ULL, 6ULL}) {
    SCOPED_TRACE(seed);
    const auto backing = std::make_shared<test::SimBacking>();
    BufferWalk walk(backing, seed);
    std::mt19937_64 faults(seed);
    for (std::uint64_t i = 0; i < steps(6000, 1000000); ++i) {
      const bool faulty = faults() % 2 == 0;
      if (faulty) {
        backing->faults().fail_nth_of_any(1 + faults() % 8);
        backing->faults().fail_nth_of_any(1 + faults() % 8);
      }
      // What an earlier failure left over makes later steps give back more than they say.
      walk.step(true);
      backing->faults().clear_faults();
      ASSERT_FALSE(testing::Test::HasFailure()) << "step " << i;
    }
  }
}

// B-101, B-104, X-030
TEST(VirtualBufferProperty, RandomOperationsOnRealMemoryKeepContentsAndReadZeroWhenFresh) {
  for (const std::uint64_t seed : {8ULL, 9ULL}) {
    SCOPED_TRACE(seed);
    const auto backing = host_backing(seed == 8);
    BufferWalk walk(backing, seed);
    for (std::uint64_t i = 0; i < steps(2000, 200000); ++i) {
      walk.step(false);
      ASSERT_FALSE(testing::Test::HasFailure()) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace memstrata
