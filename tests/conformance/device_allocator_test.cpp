// SPDX-License-Identifier: Apache-2.0
// What every allocator promises. A new one adds its subject and one line to `Allocators`.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "conformance/allocator_subjects.hpp"
#include "memstrata/contract/device_allocator.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "support/host_bytes.hpp"

namespace memstrata {
namespace {

template <class Subject>
class DeviceAllocatorContract : public ::testing::Test {
 protected:
  [[nodiscard]] DeviceAllocator& allocator() { return subject_.allocator(); }

 private:
  Subject subject_;
};

using Allocators = ::testing::Types<test::FakeSubject,
                                    test::EagerHostSubject,
                                    test::VirtualHostSubject,
                                    test::HugePageSubject,
                                    test::OddGranuleSubject,
                                    test::GovernedHostSubject,
                                    test::LedgerHostSubject>;
TYPED_TEST_SUITE(DeviceAllocatorContract, Allocators);

/// Expects a refusal that changed nothing and says why.
void expect_unchanged(const MechanismRelease& answer) {
  ASSERT_TRUE(answer.is_unchanged());
  EXPECT_FALSE(std::get<MechanismRelease::Unchanged>(answer.kind()).why.empty());
}

// B-002, B-003
TYPED_TEST(DeviceAllocatorContract, AddressesAreMultiplesOfTheAlignmentAndCanBeReleased) {
  constexpr std::array shapes{std::pair{1_B, 64_B},
                              std::pair{100_B, 64_B},
                              std::pair{4096_B, 256_B},
                              std::pair{7_B, 8_B},
                              std::pair{64_B, 16_B},
                              std::pair{300000_B, 65536_B},
                              std::pair{10_B, 8_MiB}};
  for (const auto& [bytes, alignment] : shapes) {
    SCOPED_TRACE(alignment.value);
    const auto address = this->allocator().allocate(bytes, alignment);
    ASSERT_TRUE(address.has_value());

    EXPECT_TRUE(is_multiple(Bytes{address->value()}, alignment));

    const AllocationSpan span{.address = *address, .bytes = bytes, .alignment = alignment};
    EXPECT_TRUE(this->allocator().release(span).is_complete());
  }
}

// B-004
TYPED_TEST(DeviceAllocatorContract, ZeroBytesGiveAUsableAddress) {
  const auto address = this->allocator().allocate(0_B, 64_B);

  ASSERT_TRUE(address.has_value());
  EXPECT_FALSE(address->is_null());
  EXPECT_TRUE(this->allocator()
                  .release({.address = *address, .bytes = 0_B, .alignment = 64_B})
                  .is_complete());
}

// B-005
TYPED_TEST(DeviceAllocatorContract, AnAlignmentThatIsNoPowerOfTwoIsRefusedWithItsReason) {
  for (const Bytes alignment : {0_B, 3_B, 24_B}) {
    const auto refused = this->allocator().allocate(64_B, alignment);

    ASSERT_FALSE(refused.has_value());
    const auto* invalid = std::get_if<InvalidRequest>(&refused.error().kind);
    ASSERT_NE(invalid, nullptr);
    EXPECT_EQ(invalid->requested, 64_B);
    EXPECT_EQ(invalid->tier, this->allocator().device().tier);
    EXPECT_NE(refused.error().message().find("power of two"), std::string::npos);
  }
}

//
TYPED_TEST(DeviceAllocatorContract, SizesNearTheAddressMaximumAreTypedRefusals) {
  for (const auto& [bytes, alignment] : {std::pair{Bytes::max(), 64_B},
                                         std::pair{Bytes{Bytes::max().value - 63}, 64_B},
                                         std::pair{1_B, Bytes{1ULL << 63U}},
                                         std::pair{Bytes{1ULL << 63U}, 1_B}}) {
    const auto refused = this->allocator().allocate(bytes, alignment);

    ASSERT_FALSE(refused.has_value());
    EXPECT_TRUE(std::holds_alternative<InvalidRequest>(refused.error().kind));
  }
}

// B-006
TYPED_TEST(DeviceAllocatorContract, LiveAllocationsAreDistinctAndKeepTheirBytes) {
  const auto first = this->allocator().allocate(256_B, 64_B);
  const auto second = this->allocator().allocate(256_B, 64_B);
  ASSERT_TRUE(first && second);

  const std::uint64_t distance = first->value() > second->value()
                                     ? first->value() - second->value()
                                     : second->value() - first->value();
  EXPECT_GE(distance, 256U);
  if constexpr (TypeParam::touchable) {
    test::fill(*first, 256_B, 0x11);
    test::fill(*second, 256_B, 0x22);
    EXPECT_TRUE(test::holds_only(*first, 256_B, 0x11));
    EXPECT_TRUE(test::holds_only(*second, 256_B, 0x22));
  }
}

TYPED_TEST(DeviceAllocatorContract, ItsDeviceAndItsAnswersNeverChange) {
  DeviceAllocator& allocator = this->allocator();

  EXPECT_EQ(allocator.device(), allocator.device());
  EXPECT_EQ(allocator.virtual_backing(), allocator.virtual_backing());
  EXPECT_EQ(allocator.shared_mapping(), allocator.shared_mapping());
  EXPECT_EQ(allocator.commits_on_demand(), TypeParam::charges);
}

TYPED_TEST(DeviceAllocatorContract, ASecondReleaseIsRefusedAndChangesNothing) {
  const auto address = this->allocator().allocate(512_B, 64_B);
  ASSERT_TRUE(address.has_value());
  const AllocationSpan span{.address = *address, .bytes = 512_B, .alignment = 64_B};
  ASSERT_TRUE(this->allocator().release(span).is_complete());

  expect_unchanged(this->allocator().release(span));
}

TYPED_TEST(DeviceAllocatorContract, ASpanThatIsNotExactlyAnAllocationIsRefusedAndItStaysLive) {
  const auto address = this->allocator().allocate(512_B, 64_B);
  ASSERT_TRUE(address.has_value());

  expect_unchanged(
      this->allocator().release({.address = *address, .bytes = 511_B, .alignment = 64_B}));
  expect_unchanged(
      this->allocator().release({.address = *address, .bytes = 512_B, .alignment = 32_B}));
  expect_unchanged(
      this->allocator().release({.address = *address + 1_B, .bytes = 512_B, .alignment = 64_B}));
  expect_unchanged(this->allocator().release({.address = {}, .bytes = 512_B, .alignment = 64_B}));

  EXPECT_TRUE(this->allocator()
                  .release({.address = *address, .bytes = 512_B, .alignment = 64_B})
                  .is_complete());
}

TYPED_TEST(DeviceAllocatorContract, AnAllocationOfAnotherAllocatorIsRefused) {
  TypeParam other;
  // The second, so that two allocators that count addresses from the same start cannot agree by chance.
  ASSERT_TRUE(other.allocator().allocate(64_KiB, 64_B).has_value());
  const auto foreign = other.allocator().allocate(512_B, 64_B);
  ASSERT_TRUE(foreign.has_value());
  const AllocationSpan span{.address = *foreign, .bytes = 512_B, .alignment = 64_B};

  expect_unchanged(this->allocator().release(span));

  EXPECT_TRUE(other.allocator().release(span).is_complete());
}

}  // namespace
}  // namespace memstrata
