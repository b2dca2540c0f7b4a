// SPDX-License-Identifier: Apache-2.0
#include "memstrata/structure/shared_prefix_pair.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <variant>

#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "support/fake_allocator.hpp"

namespace memstrata {
namespace {

using test::FakeAllocator;
using test::FakeOptions;

/// An allocator with one allocation and one sealed prefix of 64 bytes for keys and for values.
class PairRig {
 public:
  explicit PairRig(FakeOptions options = {}) : allocator(options) {
    keys = target(keys_prefix, 128_B);
    values = target(values_prefix, 128_B);
  }

  [[nodiscard]] Result<SharedPrefixPairInfo, SharedPrefixPairError> commit() {
    return commit_shared_prefix_pair(
        allocator,
        {.prefix = *keys_prefix, .allocation = keys, .offset = 32_B},
        {.prefix = *values_prefix, .allocation = values, .offset = {}});
  }

  [[nodiscard]] Bytes mapped(const AllocationSpan& span) {
    return allocator.virtual_backing()->committed_bytes(span);
  }

  /// An empty allocation of `bytes` where the allocator can reserve, and a prefix for it.
  [[nodiscard]] AllocationSpan target(std::shared_ptr<SharedDevicePrefix>& prefix, Bytes bytes) {
    // An allocator without a capability has neither; what it is asked with comes from another one.
    FakeAllocator& source =
        allocator.virtual_backing() != nullptr && allocator.shared_mapping() != nullptr ? allocator
                                                                                        : maker;
    prefix = source.shared_mapping()->create_shared_prefix(64_B).value();
    EXPECT_TRUE(prefix->seal().has_value());
    return {.address = source.virtual_backing()->allocate_committed(bytes, 8_B, {}).value(),
            .bytes = bytes,
            .alignment = 8_B};
  }

  FakeAllocator allocator;
  FakeAllocator maker;
  std::shared_ptr<SharedDevicePrefix> keys_prefix;
  std::shared_ptr<SharedDevicePrefix> values_prefix;
  AllocationSpan keys{};
  AllocationSpan values{};
};

// G-046
TEST(SharedPrefixPair, BothMappedReportsEachAndDecommitsNothing) {
  PairRig rig;

  const auto done = rig.commit();

  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->keys.newly_mapped_bytes, 64_B);
  EXPECT_EQ(done->values.newly_mapped_bytes, 64_B);
  EXPECT_EQ(done->keys.additional_owned_bytes, Bytes{});
  EXPECT_EQ(rig.mapped(rig.keys), 64_B);
  EXPECT_EQ(rig.mapped(rig.values), 64_B);
  EXPECT_EQ(rig.allocator.faults().calls("decommit"), 0U);
}

// G-044
TEST(SharedPrefixPair, FailedValuesUnmapTheKeysAndLeaveTheFallbackSafe) {
  PairRig rig;
  rig.allocator.faults().fail_nth("map_prefix", 2);

  const auto refused = rig.commit();

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().is_fallback_safe());
  const auto* error = std::get_if<PairRefused>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_TRUE(std::holds_alternative<AllocationFailed>(error->cause.kind));
  EXPECT_EQ(rig.allocator.faults().calls("map_prefix"), 2U);
  EXPECT_EQ(rig.allocator.faults().calls("decommit"), 1U);
  EXPECT_EQ(rig.mapped(rig.keys), Bytes{});
  EXPECT_EQ(rig.mapped(rig.values), Bytes{});
}

// G-045
TEST(SharedPrefixPair, AFailedRollBackForbidsTheFallbackAndReportsBothCauses) {
  PairRig rig;
  rig.allocator.faults().fail_nth("map_prefix", 2);
  rig.allocator.faults().fail_next("decommit");

  const auto refused = rig.commit();

  ASSERT_FALSE(refused.has_value());
  EXPECT_FALSE(refused.error().is_fallback_safe());
  const auto* error = std::get_if<PairRollbackFailed>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_TRUE(std::holds_alternative<AllocationFailed>(error->cause.kind));
  EXPECT_TRUE(std::holds_alternative<AllocationFailed>(error->rollback.kind));
  EXPECT_EQ(rig.mapped(rig.keys), 64_B);
}

// G-047
TEST(SharedPrefixPair, FailedKeysNeedNoRollBack) {
  PairRig rig;
  rig.allocator.faults().fail_next("map_prefix");

  const auto refused = rig.commit();

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().is_fallback_safe());
  EXPECT_EQ(rig.allocator.faults().calls("map_prefix"), 1U);
  EXPECT_EQ(rig.allocator.faults().calls("decommit"), 0U);
  EXPECT_EQ(rig.mapped(rig.keys), Bytes{});
}

// G-048
TEST(SharedPrefixPair, WithoutVirtualBackingNothingIsMappedBecauseRollBackNeedsIt) {
  PairRig rig({.virtual_backing = false});

  const auto refused = rig.commit();

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().is_fallback_safe());
  EXPECT_NE(refused.error().message().find("roll back"), std::string::npos);
  EXPECT_EQ(rig.allocator.faults().calls("map_prefix"), 0U);
}

TEST(SharedPrefixPair, WithoutSharedMappingNothingIsTried) {
  PairRig rig({.shared_mapping = false});

  const auto refused = rig.commit();

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().is_fallback_safe());
  EXPECT_NE(refused.error().message().find("shared mapping"), std::string::npos);
  EXPECT_EQ(rig.allocator.faults().calls("decommit"), 0U);
}

TEST(SharedPrefixPair, ForeignValuesLeaveNothingOfTheKeys) {
  PairRig rig;
  rig.values_prefix = rig.maker.shared_mapping()->create_shared_prefix(64_B).value();
  ASSERT_TRUE(rig.values_prefix->seal().has_value());

  const auto refused = rig.commit();

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().is_fallback_safe());
  EXPECT_EQ(rig.mapped(rig.keys), Bytes{});
}

TEST(SharedPrefixPair, RollBackReachesTheLastGranuleOfAnAllocationThatEndsInsideIt) {
  PairRig rig;
  std::shared_ptr<SharedDevicePrefix> prefix =
      rig.allocator.shared_mapping()->create_shared_prefix(60_B).value();
  ASSERT_TRUE(prefix->seal().has_value());
  const AllocationSpan odd{
      .address = rig.allocator.virtual_backing()->allocate_committed(60_B, 8_B, {}).value(),
      .bytes = 60_B,
      .alignment = 8_B};
  rig.allocator.faults().fail_nth("map_prefix", 2);

  const auto refused = commit_shared_prefix_pair(
      rig.allocator,
      {.prefix = *prefix, .allocation = odd, .offset = {}},
      {.prefix = *rig.values_prefix, .allocation = rig.values, .offset = {}});

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().is_fallback_safe());
  EXPECT_EQ(rig.mapped(odd), Bytes{});
}

}  // namespace
}  // namespace memstrata
