// SPDX-License-Identifier: Apache-2.0
#include "memstrata/mechanism/host/page_backing.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/memory_error.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "support/host_rig.hpp"
#include "support/process_view.hpp"
#include "support/resident_bytes.hpp"
#include "support/scripted_governor.hpp"

namespace memstrata::host {
namespace {

using test::BreakingSystemCalls;
using test::HostRig;

TEST(PageBackingCreate, DefaultsAreThoseMeasuredAsBest) {
  const auto backing = PageBacking::create().value();

  EXPECT_EQ(backing.granularity(), 64_KiB);
  EXPECT_TRUE(backing.options().populate);
  EXPECT_FALSE(backing.options().huge_pages);
  EXPECT_EQ(backing.options().retained_tail, 0_B);
  EXPECT_EQ(backing.physical_memory_accounting(), PhysicalMemoryAccounting::buffer());
}

TEST(PageBackingCreate, GranuleMustBeAMultipleOfThePage) {
  PageBackingOptions options;
  options.granule = page_size() + 1_B;

  const auto refused = PageBacking::create(options);

  ASSERT_FALSE(refused.has_value());
  const auto& error = std::get<Misaligned>(refused.error().kind);
  EXPECT_EQ(error.value, page_size() + 1_B);
  EXPECT_EQ(error.granularity, page_size());
  EXPECT_EQ(error.rounded, page_size() * 2);
}

TEST(PageBackingCreate, AcceptsAGranuleThatIsNoPowerOfTwo) {
  PageBackingOptions options;
  options.granule = page_size() * 3;
  HostRig rig(4, options);

  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(1, 2)).has_value());

  rig.fill(1, 2, 7);
  EXPECT_TRUE(rig.is_filled(1, 2, 7));
  EXPECT_EQ(rig.backing.committed(rig.reservation), page_size() * 6);
}

TEST(PageBackingCreate, RetainedTailWithoutAGovernorIsRefusedWithTheReason) {
  PageBackingOptions options;
  options.retained_tail = 64_KiB;

  const auto refused = PageBacking::create(options);

  ASSERT_FALSE(refused.has_value());
  ASSERT_TRUE(std::holds_alternative<Delegated>(refused.error().kind));
  const auto* cause = refused.error().cause.target<MemoryError>();
  ASSERT_NE(cause, nullptr);
  EXPECT_TRUE(std::holds_alternative<InvalidRequest>(cause->kind));
}

TEST(PageBackingCreate, WithAGovernorTheBackingAccountsToItsBooks) {
  const auto governor = test::ScriptedGovernor::with_limit(1_GiB);
  PageBackingOptions options;
  options.governor = governor;

  const auto backing = PageBacking::create(options).value();

  EXPECT_EQ(backing.physical_memory_accounting(),
            PhysicalMemoryAccounting::backing(governor->authority_id()));
}

// B-096
TEST(PageBackingGranularity, IsAPowerOfTwoOfWhichOneCanBeReservedAndCommitted) {
  auto backing = PageBacking::create().value();
  const Bytes g = backing.granularity();

  auto reservation = backing.reserve(g).value();
  const auto committed = backing.commit(reservation, ByteRange{.offset = 0_B, .size = g});

  EXPECT_TRUE(is_power_of_two(g.value));
  EXPECT_TRUE(committed.has_value());
}

// B-091
TEST(PageBackingReserve, TakesAddressSpaceFarBeyondUseAndCommitsNothing) {
  auto backing = PageBacking::create().value();
  const Bytes length = backing.granularity() * 65536;

  const auto reservation = backing.reserve(length).value();

  EXPECT_EQ(reservation.size(), length);
  EXPECT_EQ(backing.committed(reservation), 0_B);
  EXPECT_EQ(test::resident_bytes(reservation.base(), 1_MiB), 0_B);
}

TEST(PageBackingReserve, BaseIsAlignedToTheGranuleAndToAHugePageWhenLongEnough) {
  auto backing = PageBacking::create().value();

  const auto small = backing.reserve(64_KiB).value();
  const auto large = backing.reserve(4_MiB).value();

  EXPECT_EQ(small.base().value() % (64_KiB).value, 0U);
  EXPECT_EQ(large.base().value() % huge_page_size().value, 0U);
}

TEST(PageBackingReserve, IsOneCallWhateverTheSize) {
  const auto kernel = std::make_shared<BreakingSystemCalls>();
  auto backing = HostRig::make(PageBackingOptions{}, kernel);

  const auto reservation = backing.reserve(64_GiB).value();

  ASSERT_EQ(kernel->calls().size(), 1U);
  EXPECT_EQ(kernel->calls()[0].kind, SystemCallKind::map);
  EXPECT_EQ(kernel->calls()[0].protection, Protection::none);
  EXPECT_LE(kernel->calls()[0].length, (64_GiB + huge_page_size() + page_size()).value);
}

TEST(PageBackingReserve, LengthOfZeroOrBetweenGranulesNamesTheNextLegalOne) {
  auto backing = PageBacking::create().value();

  const auto zero = backing.reserve(0_B);
  const auto odd = backing.reserve(65537_B);

  ASSERT_FALSE(zero.has_value());
  EXPECT_EQ(std::get<Misaligned>(zero.error().kind).rounded, 64_KiB);
  ASSERT_FALSE(odd.has_value());
  EXPECT_EQ(std::get<Misaligned>(odd.error().kind).rounded, 128_KiB);
}

// X-033, W-22
TEST(PageBackingReserve, LengthsNearTheAddressMaximumAreTypedRefusals) {
  auto backing = PageBacking::create().value();

  const auto unrounded = backing.reserve(Bytes::max());
  const auto with_slack = backing.reserve(align_down(Bytes::max(), 64_KiB));
  const auto too_much = backing.reserve(Bytes{1ULL << 62U});

  ASSERT_FALSE(unrounded.has_value());
  EXPECT_TRUE(std::holds_alternative<TooLarge>(unrounded.error().kind));
  ASSERT_FALSE(with_slack.has_value());
  EXPECT_TRUE(std::holds_alternative<TooLarge>(with_slack.error().kind));
  ASSERT_FALSE(too_much.has_value());
  EXPECT_STREQ(std::get<Os>(too_much.error().kind).operation, "mmap");
}

TEST(PageBackingReserve, RefusedByTheKernelIsAnOsErrorWithItsCodeAndCountsNothing) {
  HostRig rig;
  const std::uint64_t mappings = rig.backing.mapping_usage().used;
  rig.kernel->break_nth(1, test::Breakage::before, ENOMEM);

  const auto refused = rig.backing.reserve(rig.g);

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(std::get<Os>(refused.error().kind).code, ENOMEM);
  EXPECT_EQ(rig.backing.mapping_usage().used, mappings);
}

TEST(PageBackingReservation, DestructionUnmapsEverythingAndMovesDoNot) {
  auto backing = PageBacking::create().value();
  std::optional<PageBacking::Reservation> first = backing.reserve(1_MiB).value();
  ASSERT_TRUE(backing.commit(*first, ByteRange{.offset = 0_B, .size = 1_MiB}).has_value());
  const DeviceAddress base = first->base();

  PageBacking::Reservation second = std::move(*first);
  first.reset();
  const bool mapped_after_move = test::kernel_access(base).writable;
  {
    const PageBacking::Reservation gone = std::move(second);
  }

  EXPECT_TRUE(mapped_after_move);
  EXPECT_FALSE(test::is_readable(base));
}

TEST(PageBackingReservation, OutlivesItsBacking) {
  std::optional<PageBacking::Reservation> reservation;
  {
    auto backing = PageBacking::create().value();
    reservation = backing.reserve(64_KiB).value();
    ASSERT_TRUE(backing.commit(*reservation, ByteRange{.offset = 0_B, .size = 64_KiB}).has_value());
  }

  *reservation->data() = std::byte{5};

  EXPECT_EQ(*reservation->data(), std::byte{5});
}

TEST(PageBackingReservation, AddressesThatTheKernelKeepsAreParkedCountedAndTriedAgain) {
  const auto governor = test::ScriptedGovernor::with_limit(1_GiB);
  PageBackingOptions options = HostRig::small_options();
  options.governor = governor;
  HostRig rig(2, options);
  const std::uint64_t mappings = rig.backing.mapping_usage().used;
  {
    auto doomed = rig.backing.reserve(rig.g * 4).value();
    ASSERT_TRUE(rig.backing.commit(doomed, rig.granules(0, 4)).has_value());
    rig.kernel->break_all(SystemCallKind::unmap);
  }

  const ParkedMemory parked = rig.backing.parked();
  const Bytes leased = governor->usage(Tier::host).used;
  const std::uint64_t counted = rig.backing.mapping_usage().used;
  const ParkedMemory still = rig.backing.retry_parked();
  rig.kernel->mend();
  const ParkedMemory after = rig.backing.retry_parked();

  EXPECT_EQ(parked.ranges, 1U);
  EXPECT_GE(parked.address_space, rig.g * 4);
  EXPECT_EQ(leased, 0_B) << "the memory behind the addresses went back";
  EXPECT_GT(counted, mappings);
  EXPECT_EQ(still.ranges, 1U);
  EXPECT_EQ(after.ranges, 0U);
  EXPECT_EQ(rig.backing.mapping_usage().used, mappings);
}

TEST(PageBackingReservation, ParkedAddressesGoWithTheNextReservation) {
  HostRig rig;
  {
    const auto doomed = rig.backing.reserve(rig.g).value();
    rig.kernel->break_all(SystemCallKind::unmap);
  }
  rig.kernel->mend();
  ASSERT_EQ(rig.backing.parked().ranges, 1U);

  const auto next = rig.backing.reserve(rig.g);

  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(rig.backing.parked().ranges, 0U);
}

TEST(PageBackingDescribe, NamesPlaceAndTotals) {
  HostRig rig(4);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(1, 2)).has_value());

  const std::string text = rig.backing.describe(rig.reservation);

  EXPECT_NE(text.find(std::to_string((rig.g * 4).value) + " bytes"), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string((rig.g * 2).value) + " committed in 1 runs"),
            std::string::npos)
      << text;
}

// B-088
TEST(PageBackingErrors, ARefusalOfTheGovernorIsDelegatedWithItsOwnType) {
  const auto governor = test::ScriptedGovernor::with_limit(page_size());
  PageBackingOptions options = HostRig::small_options();
  options.governor = governor;
  HostRig rig(4, options);

  const auto refused = rig.backing.commit(rig.reservation, rig.granules(0, 2));

  ASSERT_FALSE(refused.has_value());
  const auto* cause = refused.error().cause.target<MemoryError>();
  ASSERT_NE(cause, nullptr);
  EXPECT_TRUE(std::holds_alternative<TierExhausted>(cause->kind));
  EXPECT_EQ(refused.error().message(), "commit failed: " + cause->message());
  EXPECT_EQ(refused.error().message().find("os error"), std::string::npos);
}

}  // namespace
}  // namespace memstrata::host
