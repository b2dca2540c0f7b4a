// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/mechanism/host/host_limits.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "support/host_rig.hpp"
#include "support/process_view.hpp"

namespace memstrata::host {
namespace {

using test::HostRig;

[[nodiscard]] std::size_t in_the_kernel(const HostRig& rig) {
  // One page on each side belongs to the reservation too.
  return test::kernel_mappings(DeviceAddress{rig.reservation.base().value() - page_size().value},
                               rig.reservation.size() + page_size() * 2);
}

/// Options under which `more` further mappings fit.
[[nodiscard]] PageBackingOptions with_room_for(std::uint64_t more) {
  PageBackingOptions options = HostRig::small_options();
  options.mapping_limit = HostRig(1).backing.mapping_usage().used - 1 + more;
  return options;
}

TEST(MappingBudgetDefault, IsThreeQuartersOfTheSetting) {
  const auto backing = PageBacking::create().value();
  const auto setting = read_mapping_limit().value();

  ASSERT_TRUE(setting.has_value());
  EXPECT_EQ(backing.mapping_usage().limit, *setting * 3 / 4);
}

TEST(MappingBudgetCount, EqualsWhatTheKernelShowsForRunsAndGaps) {
  HostRig rig(20);
  for (const std::uint64_t granule : {2U, 6U, 10U, 14U}) {
    ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(granule, 2)).has_value());
  }

  EXPECT_EQ(rig.backing.mappings(rig.reservation), 9U);
  EXPECT_EQ(in_the_kernel(rig), 9U);
}

TEST(MappingBudgetCount, FallsToOneWhenManyIsolatedRunsAreGone) {
  for (const bool populate : {true, false}) {
    PageBackingOptions options = HostRig::small_options();
    options.populate = populate;
    HostRig rig(601, options);
    for (std::uint64_t granule = 0; granule < 600; granule += 2) {
      ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(granule, 1)).has_value());
      rig.fill(granule, 1, 1);
    }
    const std::uint64_t most = rig.backing.mappings(rig.reservation);
    const std::size_t most_in_kernel = in_the_kernel(rig);
    for (std::uint64_t granule = 0; granule < 600; granule += 2) {
      ASSERT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(granule, 1)).has_value());
    }

    EXPECT_EQ(most, 601U);
    EXPECT_EQ(most_in_kernel, 601U);
    EXPECT_EQ(rig.backing.mappings(rig.reservation), 1U);
    EXPECT_EQ(in_the_kernel(rig), 1U) << "populate " << populate;
  }
}

TEST(MappingBudgetCount, IsNeverBelowTheKernelAroundPrefixes) {
  HostRig rig(30);
  const Prefix prefix = rig.prefix(3, 1);
  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, rig.g * 10, prefix, rig.granules(0, 3)));
  for (const std::uint64_t granule : {1U, 4U, 7U, 15U, 18U, 21U, 24U}) {
    ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(granule, 1)).has_value());
    EXPECT_GE(rig.backing.mappings(rig.reservation), in_the_kernel(rig));
  }
  ASSERT_TRUE(rig.backing.break_shared(rig.reservation, rig.granules(11, 1)).has_value());
  EXPECT_GE(rig.backing.mappings(rig.reservation), in_the_kernel(rig));
  ASSERT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(11, 1)).has_value());
  for (const std::uint64_t granule : {10U, 12U}) {
    ASSERT_TRUE(rig.backing.unmap_shared(rig.reservation, rig.granules(granule, 1)).has_value());
    EXPECT_GE(rig.backing.mappings(rig.reservation), in_the_kernel(rig));
  }
  for (const std::uint64_t granule : {1U, 4U, 7U, 15U, 18U, 21U, 24U}) {
    ASSERT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(granule, 1)).has_value());
    EXPECT_GE(rig.backing.mappings(rig.reservation), in_the_kernel(rig));
  }
  EXPECT_LE(in_the_kernel(rig), 4U);
}

TEST(MappingBudgetRefusal, ComesBeforeAnyCallAndNamesTheSetting) {
  HostRig rig(8, with_room_for(3));
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(1, 1)).has_value());
  const auto before = rig.snapshot();
  rig.kernel->forget();

  const auto refused = rig.backing.commit(rig.reservation, rig.granules(3, 1));

  ASSERT_FALSE(refused.has_value());
  const auto& error = std::get<MappingBudget>(refused.error().kind);
  EXPECT_EQ(error.limit, *rig.backing.options().mapping_limit);
  EXPECT_EQ(error.used, error.limit + 2);
  EXPECT_STREQ(error.setting, "vm.max_map_count");
  EXPECT_NE(refused.error().message().find("vm.max_map_count"), std::string::npos);
  EXPECT_TRUE(rig.kernel->calls().empty());
  EXPECT_EQ(rig.snapshot(), before);
}

TEST(MappingBudgetRefusal, DoesNotHinderWhatNeedsNoFurtherMapping) {
  HostRig rig(8, with_room_for(3));
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(1, 1)).has_value());

  EXPECT_TRUE(rig.backing.commit(rig.reservation, rig.granules(2, 2)).has_value());
  EXPECT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(2, 1)).has_value())
      << "giving memory back is never refused";
  EXPECT_EQ(rig.backing.mappings(rig.reservation), 5U);
  EXPECT_TRUE(rig.backing.commit(rig.reservation, rig.granules(2, 1)).has_value());
  EXPECT_EQ(rig.backing.mappings(rig.reservation), 3U);
}

TEST(MappingBudgetRefusal, CountsABatchAsAWhole) {
  HostRig rig(10, with_room_for(5));
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 1)).has_value());
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(2, 1)).has_value());
  const std::array too_many{rig.granules(4, 1), rig.granules(6, 1)};
  const std::array joining{rig.granules(1, 1), rig.granules(4, 1)};

  const auto refused = rig.backing.commit(rig.reservation, std::span<const ByteRange>(too_many));
  const auto granted = rig.backing.commit(rig.reservation, std::span<const ByteRange>(joining));

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<MappingBudget>(refused.error().kind));
  EXPECT_TRUE(granted.has_value()) << "one run more, one run less";
}

TEST(MappingBudgetRefusal, HoldsForReservationsPrefixesAndBreaksToo) {
  HostRig rig(8, with_room_for(3));
  const Prefix prefix = rig.prefix(3, 1);
  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, 0_B, prefix, rig.granules(0, 3)));

  const auto one_more = rig.backing.reserve(rig.g);
  const auto builder = rig.backing.create_prefix(rig.g);
  const auto broken = rig.backing.break_shared(rig.reservation, rig.granules(1, 1));
  const auto mapped =
      rig.backing.map_shared(rig.reservation, rig.g * 4, prefix, rig.granules(0, 1));

  ASSERT_FALSE(one_more.has_value());
  EXPECT_TRUE(std::holds_alternative<MappingBudget>(one_more.error().kind));
  ASSERT_FALSE(builder.has_value());
  EXPECT_TRUE(std::holds_alternative<MappingBudget>(builder.error().kind));
  ASSERT_FALSE(broken.has_value());
  EXPECT_TRUE(std::holds_alternative<MappingBudget>(broken.error().kind));
  ASSERT_FALSE(mapped.has_value());
  EXPECT_TRUE(std::holds_alternative<MappingBudget>(mapped.error().kind));
  EXPECT_EQ(rig.snapshot().access, "rrr-----");
}

TEST(MappingBudgetCount, ReturnsToWhereItWasWhenEverythingIsGone) {
  const HostRig outer(1);
  const std::uint64_t mappings = outer.backing.mapping_usage().used;
  const std::uint64_t descriptors = outer.backing.descriptor_usage().used;
  const std::size_t open = test::open_descriptors();
  {
    HostRig rig(12);
    const Prefix prefix = rig.prefix(4, 1);
    auto builder = rig.backing.create_prefix(rig.g).value();
    ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(1, 2)).has_value());
    ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(10, 1)).has_value());
    ASSERT_TRUE(rig.backing.map_shared(rig.reservation, rig.g * 4, prefix, rig.granules(0, 4)));
    ASSERT_TRUE(rig.backing.break_shared(rig.reservation, rig.granules(5, 1)).has_value());
    EXPECT_GT(rig.backing.mapping_usage().used, mappings);
  }

  EXPECT_EQ(outer.backing.mapping_usage().used, mappings);
  EXPECT_EQ(outer.backing.descriptor_usage().used, descriptors);
  EXPECT_EQ(test::open_descriptors(), open);
}

//
TEST(MappingBudgetOff, RunningIntoTheKernelsOwnLimitIsAnOsErrorAndTheRangeIsIntact) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP()
      << "at the kernel's limit a sanitizer finds no mapping for its own heap and ends the process";
#endif
  PageBackingOptions options = HostRig::small_options();
  options.mapping_budget = false;
  options.populate = false;
  const std::uint64_t setting = read_mapping_limit().value().value_or(65530);
  ASSERT_LT(setting, 10'000'000U);
  HostRig rig(setting * 2, options);
  std::uint64_t granule = 0;
  std::optional<VirtualMemoryError> error;
  while (!error && granule < setting * 2) {
    auto done = rig.backing.commit(rig.reservation, rig.granules(granule, 1));
    if (done) {
      *rig.data(granule) = std::byte{1};
      granule += 2;
    } else {
      error = std::move(done).error();
    }
    rig.kernel->forget();
  }
  const Bytes committed = rig.backing.committed(rig.reservation);
  const bool released = rig.backing.decommit(rig.reservation, rig.granules(0, 1)).has_value();
  std::uint64_t intact = 0;
  for (std::uint64_t at = 2; at < granule; at += 2) {
    intact += *rig.data(at) == std::byte{1} ? 1U : 0U;
  }
  ASSERT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(2, 1)).has_value());
  const bool usable = rig.backing.commit(rig.reservation, rig.granules(2, 1)).has_value();

  ASSERT_TRUE(error.has_value());
  ASSERT_TRUE(std::holds_alternative<Os>(error->kind));
  EXPECT_EQ(std::get<Os>(error->kind).code, ENOMEM);
  EXPECT_STREQ(std::get<Os>(error->kind).operation, "mprotect");
  EXPECT_EQ(committed, rig.g * (granule / 2));
  EXPECT_TRUE(released);
  EXPECT_EQ(intact, granule / 2 - 1);
  EXPECT_TRUE(usable);
}

}  // namespace
}  // namespace memstrata::host
