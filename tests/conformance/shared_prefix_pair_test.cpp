// SPDX-License-Identifier: Apache-2.0
// The pair of keys and values over every allocator that can share prefixes.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "conformance/allocator_subjects.hpp"
#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/shared_prefix_pair_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/structure/shared_prefix_pair.hpp"
#include "support/host_bytes.hpp"

namespace memstrata {
namespace {

template <class Subject>
class SharedPrefixPairContract : public ::testing::Test {
 protected:
  SharedPrefixPairContract()
      : keys_(sealed(0x4B)), values_(sealed(0x56)), k_span_(reserve()), v_span_(reserve()) {}

  [[nodiscard]] Subject& subject() { return subject_; }

  [[nodiscard]] Bytes g(std::uint64_t n) const { return subject_.granule() * n; }

  [[nodiscard]] VirtualBacking& backing() { return *subject_.allocator().virtual_backing(); }

  [[nodiscard]] Result<SharedPrefixPairInfo, SharedPrefixPairError> map_both() {
    return commit_shared_prefix_pair(subject_.allocator(),
                                     {.prefix = *keys_, .allocation = k_span_, .offset = g(1)},
                                     {.prefix = *values_, .allocation = v_span_, .offset = g(1)});
  }

  [[nodiscard]] const AllocationSpan& k_span() const { return k_span_; }

  [[nodiscard]] const AllocationSpan& v_span() const { return v_span_; }

 private:
  [[nodiscard]] std::shared_ptr<SharedDevicePrefix> sealed(std::uint8_t value) {
    auto made = subject_.allocator().shared_mapping()->create_shared_prefix(g(2));
    if constexpr (Subject::touchable) {
      test::fill((*made)->address(), g(2), value);
    }
    EXPECT_TRUE((*made)->seal().has_value());
    return std::move(*made);
  }

  [[nodiscard]] AllocationSpan reserve() {
    const auto address = backing().allocate_committed(g(4), 8_B, {});
    return {.address = address.value_or(DeviceAddress{}), .bytes = g(4), .alignment = 8_B};
  }

  Subject subject_;
  std::shared_ptr<SharedDevicePrefix> keys_;
  std::shared_ptr<SharedDevicePrefix> values_;
  AllocationSpan k_span_;
  AllocationSpan v_span_;
};

using Mappings = ::testing::Types<test::FakeSubject,
                                  test::VirtualHostSubject,
                                  test::HugePageSubject,
                                  test::OddGranuleSubject,
                                  test::GovernedHostSubject,
                                  test::LedgerHostSubject>;
TYPED_TEST_SUITE(SharedPrefixPairContract, Mappings);

// G-046
TYPED_TEST(SharedPrefixPairContract, BothAreMappedAndReadTheirOwnBytes) {
  const auto info = this->map_both();

  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->keys.newly_mapped_bytes, this->g(2));
  EXPECT_EQ(info->values.newly_mapped_bytes, this->g(2));
  EXPECT_EQ(info->keys.additional_owned_bytes + info->values.additional_owned_bytes, 0_B);
  if constexpr (TypeParam::touchable) {
    EXPECT_TRUE(test::holds_only(this->k_span().address + this->g(1), this->g(2), 0x4B));
    EXPECT_TRUE(test::holds_only(this->v_span().address + this->g(1), this->g(2), 0x56));
  }
}

// G-044, G-047
TYPED_TEST(SharedPrefixPairContract, AFaultInEitherHalfKeepsNothingAndTheFallbackIsSafe) {
  for (const std::uint64_t half : {1U, 2U}) {
    SCOPED_TRACE(half);
    this->subject().refuse_map(half);

    const auto refused = this->map_both();

    ASSERT_FALSE(refused.has_value());
    EXPECT_TRUE(refused.error().is_fallback_safe());
    EXPECT_EQ(this->backing().committed_bytes(this->k_span()), 0_B);
    EXPECT_EQ(this->backing().committed_bytes(this->v_span()), 0_B);
  }
  EXPECT_TRUE(this->map_both().has_value());
}

}  // namespace
}  // namespace memstrata
