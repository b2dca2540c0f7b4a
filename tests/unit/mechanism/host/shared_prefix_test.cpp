// SPDX-License-Identifier: Apache-2.0
#include "memstrata/mechanism/host/shared_prefix.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/kernel_figure.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "support/host_rig.hpp"
#include "support/process_view.hpp"
#include "support/resident_bytes.hpp"
#include "support/scripted_governor.hpp"

namespace memstrata::host {
namespace {

using test::HostRig;

/// Tests that hold for prefixes with a file of their own and for those in a file shared with others.
class SharedPrefix : public testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] static PageBackingOptions options() {
    PageBackingOptions options = HostRig::small_options();
    options.own_file_prefixes = GetParam() ? 256 : 0;
    return options;
  }

  [[nodiscard]] static Bytes prefix_bytes(const HostRig& rig) {
    return kernel_figure(rig.backing).value().prefix_files;
  }

  HostRig rig{8, options()};
};

INSTANTIATE_TEST_SUITE_P(Files,
                         SharedPrefix,
                         testing::Values(true, false),
                         [](const testing::TestParamInfo<bool>& of) {
                           return of.param ? "OwnFile" : "ArenaFile";
                         });

TEST_P(SharedPrefix, WhatWasWrittenIsReadThroughEveryMapping) {
  const Prefix prefix = rig.prefix(3, 20);
  auto other = rig.backing.reserve(rig.g * 3).value();

  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, rig.g * 2, prefix, rig.granules(0, 3)));
  ASSERT_TRUE(rig.backing.map_shared(other, 0_B, prefix, rig.granules(1, 2)));

  EXPECT_TRUE(rig.is_filled(2, 1, 20));
  EXPECT_TRUE(rig.is_filled(4, 1, 22));
  EXPECT_EQ(*other.data(), std::byte{21});
  EXPECT_EQ(rig.backing.shared(rig.reservation), rig.g * 3);
  EXPECT_EQ(rig.backing.committed(rig.reservation), 0_B);
}

TEST_P(SharedPrefix, SecondMappingAddsNoPhysicalByte) {
  const Prefix prefix = rig.prefix(4, 1);
  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, 0_B, prefix, rig.granules(0, 4)));
  const Bytes once = kernel_figure(rig.backing).value().total();

  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, rig.g * 4, prefix, rig.granules(0, 4)));
  ASSERT_TRUE(rig.is_filled(4, 1, 1));

  EXPECT_EQ(kernel_figure(rig.backing).value().total(), once);
  EXPECT_EQ(once, rig.g * 4);
}

TEST_P(SharedPrefix, AWriteFaultsAndMakingItWritableIsRefused) {
  const Prefix prefix = rig.prefix(2, 7);
  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, 0_B, prefix, rig.granules(0, 2)));

  const bool writable = test::is_writable(rig.address(0));
  const int unlocked = mprotect(rig.data(0), rig.g.value, PROT_READ | PROT_WRITE);
  const int reason = errno;

  EXPECT_FALSE(writable);
  EXPECT_EQ(unlocked, -1);
  EXPECT_EQ(reason, EACCES);
  EXPECT_TRUE(rig.is_filled(0, 1, 7));
}

TEST_P(SharedPrefix, BytesGoWithTheLastHandleOrMappingWhateverTheOrder) {
  std::optional<Prefix> prefix = rig.prefix(2, 1);
  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, 0_B, *prefix, rig.granules(0, 2)));
  const std::optional<Prefix> copy = prefix;
  prefix.reset();

  const Bytes with_copy = prefix_bytes(rig);
  const auto unmapped = rig.backing.unmap_shared(rig.reservation, rig.granules(0, 2));
  const Bytes copy_only = prefix_bytes(rig);

  EXPECT_EQ(with_copy, rig.g * 2);
  ASSERT_TRUE(unmapped.has_value());
  EXPECT_EQ(*unmapped, 0_B) << "a handle still holds them";
  EXPECT_EQ(copy_only, rig.g * 2);
}

TEST_P(SharedPrefix, UnmappingTheLastReferenceReturnsTheBytesOfThePrefix) {
  {
    const Prefix prefix = rig.prefix(3, 1);
    ASSERT_TRUE(rig.backing.map_shared(rig.reservation, 0_B, prefix, rig.granules(0, 3)));
  }
  const auto part = rig.backing.unmap_shared(rig.reservation, rig.granules(0, 1));
  const Bytes left = prefix_bytes(rig);
  const auto rest = rig.backing.unmap_shared(rig.reservation, rig.granules(1, 2));

  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(*part, 0_B);
  EXPECT_EQ(left, rig.g * 3);
  ASSERT_TRUE(rest.has_value());
  EXPECT_EQ(*rest, rig.g * 3);
  EXPECT_EQ(prefix_bytes(rig), 0_B);
}

TEST_P(SharedPrefix, DestructionOfTheReservationLetsGoOfThePrefix) {
  {
    const Prefix prefix = rig.prefix(2, 1);
    auto other = rig.backing.reserve(rig.g * 2).value();
    ASSERT_TRUE(rig.backing.map_shared(other, 0_B, prefix, rig.granules(0, 2)));
  }

  EXPECT_EQ(prefix_bytes(rig), 0_B);
}

TEST_P(SharedPrefix, UnmappingAPieceInTheMiddleLeavesBothSides) {
  const Prefix prefix = rig.prefix(5, 30);
  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, rig.g, prefix, rig.granules(0, 5)));

  ASSERT_TRUE(rig.backing.unmap_shared(rig.reservation, rig.granules(3, 1)).has_value());

  EXPECT_EQ(rig.snapshot().access, "-rr-rr--");
  EXPECT_TRUE(rig.is_filled(2, 1, 31));
  EXPECT_TRUE(rig.is_filled(4, 1, 33));
  EXPECT_EQ(rig.backing.shared(rig.reservation), rig.g * 4);
}

TEST_P(SharedPrefix, UnmappedGranulesCanBeCommitted) {
  const Prefix prefix = rig.prefix(2, 1);
  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, 0_B, prefix, rig.granules(0, 2)));
  ASSERT_TRUE(rig.backing.unmap_shared(rig.reservation, rig.granules(1, 1)).has_value());

  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(1, 3)).has_value());

  EXPECT_TRUE(rig.is_filled(1, 3, 0));
}

TEST_P(SharedPrefix, BreakingAGranuleCopiesItAndNothingReachesTheOthers) {
  const Prefix prefix = rig.prefix(3, 50);
  auto other = rig.backing.reserve(rig.g * 3).value();
  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, 0_B, prefix, rig.granules(0, 3)));
  ASSERT_TRUE(rig.backing.map_shared(other, 0_B, prefix, rig.granules(0, 3)));

  ASSERT_TRUE(rig.backing.break_shared(rig.reservation, rig.granules(1, 1)).has_value());
  const bool copied = rig.is_filled(1, 1, 51);
  rig.fill(1, 1, 99);

  EXPECT_TRUE(copied);
  EXPECT_EQ(rig.snapshot().access, "rwr-----");
  EXPECT_EQ(other.data()[rig.g.value], std::byte{51});
  EXPECT_EQ(rig.backing.committed(rig.reservation), rig.g);
  EXPECT_EQ(rig.backing.shared(rig.reservation), rig.g * 2);
}

TEST_P(SharedPrefix, BreakingAcrossTwoPrefixesAndEverythingLetsGoOfBoth) {
  {
    const Prefix one = rig.prefix(2, 10);
    const Prefix two = rig.prefix(2, 20);
    ASSERT_TRUE(rig.backing.map_shared(rig.reservation, 0_B, one, rig.granules(0, 2)));
    ASSERT_TRUE(rig.backing.map_shared(rig.reservation, rig.g * 2, two, rig.granules(0, 2)));
  }

  ASSERT_TRUE(rig.backing.break_shared(rig.reservation, rig.granules(0, 4)).has_value());

  EXPECT_EQ(rig.snapshot().access, "wwww----");
  EXPECT_TRUE(rig.is_filled(1, 1, 11));
  EXPECT_TRUE(rig.is_filled(2, 1, 20));
  EXPECT_EQ(prefix_bytes(rig), 0_B);
  EXPECT_EQ(rig.backing.shared(rig.reservation), 0_B);
}

TEST_P(SharedPrefix, BrokenGranulesAreDecommittedLikeAnyOther) {
  const Prefix prefix = rig.prefix(3, 50);
  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, 0_B, prefix, rig.granules(0, 3)));
  ASSERT_TRUE(rig.backing.break_shared(rig.reservation, rig.granules(2, 1)).has_value());
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(3, 2)).has_value());

  ASSERT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(2, 3)).has_value());

  EXPECT_EQ(rig.snapshot().access, "rr------");
  EXPECT_EQ(kernel_figure(rig.backing).value().anonymous, 0_B);
}

TEST_P(SharedPrefix, MapsOnlyWhereNothingIs) {
  const Prefix prefix = rig.prefix(2, 1);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(1, 1)).has_value());
  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, rig.g * 4, prefix, rig.granules(0, 2)));
  const auto before = rig.snapshot();

  const auto on_private = rig.backing.map_shared(rig.reservation, 0_B, prefix, rig.granules(0, 2));
  const auto on_shared =
      rig.backing.map_shared(rig.reservation, rig.g * 5, prefix, rig.granules(0, 2));
  const auto commit_on_shared = rig.backing.commit(rig.reservation, rig.granules(3, 2));

  ASSERT_FALSE(on_private.has_value());
  EXPECT_EQ(std::get<AlreadyMapped>(on_private.error().kind).offset, rig.g);
  ASSERT_FALSE(on_shared.has_value());
  EXPECT_EQ(std::get<AlreadyMapped>(on_shared.error().kind).offset, rig.g * 5);
  ASSERT_FALSE(commit_on_shared.has_value());
  EXPECT_EQ(std::get<AlreadyMapped>(commit_on_shared.error().kind).offset, rig.g * 4);
  EXPECT_EQ(rig.snapshot(), before);
}

TEST_P(SharedPrefix, PartsBeyondThePrefixAndPlacesBeyondTheRangeAreRefused) {
  const Prefix prefix = rig.prefix(2, 1);

  const auto part = rig.backing.map_shared(rig.reservation, 0_B, prefix, rig.granules(1, 2));
  const auto place = rig.backing.map_shared(rig.reservation, rig.g * 7, prefix, rig.granules(0, 2));
  const auto odd = rig.backing.map_shared(rig.reservation, 1_B, prefix, rig.granules(0, 2));

  ASSERT_FALSE(part.has_value());
  EXPECT_EQ(std::get<OutOfRange>(part.error().kind).reserved, rig.g * 2);
  ASSERT_FALSE(place.has_value());
  EXPECT_EQ(std::get<OutOfRange>(place.error().kind).overrun, rig.g);
  ASSERT_FALSE(odd.has_value());
  EXPECT_EQ(std::get<Misaligned>(odd.error().kind).value, 1_B);
}

TEST_P(SharedPrefix, BreakAndUnmapOfWhatIsNotSharedNameTheGranule) {
  const Prefix prefix = rig.prefix(2, 1);
  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, 0_B, prefix, rig.granules(0, 2)));
  const auto before = rig.snapshot();

  const auto broken = rig.backing.break_shared(rig.reservation, rig.granules(1, 2));
  const auto unmapped = rig.backing.unmap_shared(rig.reservation, rig.granules(0, 3));

  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(std::get<NotMapped>(broken.error().kind).offset, rig.g * 2);
  ASSERT_FALSE(unmapped.has_value());
  EXPECT_EQ(std::get<NotMapped>(unmapped.error().kind).offset, rig.g * 2);
  EXPECT_EQ(rig.snapshot(), before);
}

TEST_P(SharedPrefix, OfAnotherBackingIsRefusedBeforeAnyCost) {
  HostRig stranger(2, options());
  const Prefix foreign = stranger.prefix(1, 1);
  rig.kernel->forget();
  const auto before = rig.backing.mapping_usage().used;

  const auto refused = rig.backing.map_shared(rig.reservation, 0_B, foreign, rig.granules(0, 1));

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<PrefixRefused>(refused.error().kind));
  EXPECT_TRUE(rig.kernel->calls().empty());
  EXPECT_EQ(rig.backing.mapping_usage().used, before);
  EXPECT_FALSE(rig.backing.owns(foreign));
  EXPECT_TRUE(stranger.backing.owns(foreign));
}

TEST_P(SharedPrefix, TheWindowIsGoneAfterSealingAndTheBuilderEmpty) {
  auto builder = rig.backing.create_prefix(rig.g * 2).value();
  const DeviceAddress window = builder.base();
  ASSERT_TRUE(test::is_writable(window));

  const auto prefix = builder.seal();
  const auto again = builder.seal();

  ASSERT_TRUE(prefix.has_value());
  EXPECT_EQ(prefix->size(), rig.g * 2);
  EXPECT_FALSE(test::is_readable(window));
  EXPECT_EQ(builder.data(), nullptr);
  EXPECT_EQ(builder.size(), 0_B);
  ASSERT_FALSE(again.has_value());
  EXPECT_TRUE(std::holds_alternative<PrefixRefused>(again.error().kind));
}

TEST_P(SharedPrefix, ABuilderThatIsDroppedGivesEverythingBack) {
  static_cast<void>(rig.prefix(1, 1));  // the file that arena prefixes share stays open
  const auto before = rig.snapshot();
  const auto open = test::open_descriptors();
  {
    auto builder = rig.backing.create_prefix(rig.g * 4).value();
    std::memset(builder.data(), 1, builder.size().value);
    const PrefixBuilder moved = std::move(builder);
    EXPECT_EQ(moved.size(), rig.g * 4);
  }

  EXPECT_EQ(prefix_bytes(rig), 0_B);
  EXPECT_EQ(rig.snapshot(), before);
  EXPECT_EQ(test::open_descriptors(), open);
}

TEST_P(SharedPrefix, OutlivesItsBacking) {
  std::optional<Prefix> prefix;
  std::optional<PageBacking::Reservation> reservation;
  {
    HostRig gone(2, options());
    prefix = gone.prefix(1, 5);
    ASSERT_TRUE(gone.backing.map_shared(gone.reservation, 0_B, *prefix, gone.granules(0, 1)));
    reservation = std::move(gone.reservation);
  }

  EXPECT_EQ(*reservation->data(), std::byte{5});
  EXPECT_EQ(prefix->size(), rig.g);
}

TEST_P(SharedPrefix, CountsItsBytesInTheBackingsOwnBooksUntilTheyAreGone) {
  const auto governor = test::ScriptedGovernor::with_limit(1_GiB);
  PageBackingOptions accounted = options();
  accounted.governor = governor;
  HostRig own(4, accounted);
  {
    const Prefix prefix = own.prefix(2, 1);
    ASSERT_TRUE(own.backing.map_shared(own.reservation, 0_B, prefix, own.granules(0, 2)));
  }
  const Bytes mapped = governor->usage(Tier::host).used;
  ASSERT_TRUE(own.backing.break_shared(own.reservation, own.granules(0, 1)).has_value());
  const Bytes broken = governor->usage(Tier::host).used;
  ASSERT_TRUE(own.backing.unmap_shared(own.reservation, own.granules(1, 1)).has_value());
  const Bytes alone = governor->usage(Tier::host).used;

  EXPECT_EQ(mapped, own.g * 2);
  EXPECT_EQ(broken, own.g * 3);
  EXPECT_EQ(alone, own.g);
  EXPECT_FALSE(governor->books().over_released());
}

TEST(SharedPrefixCreate, SizeMustBeWholeGranules) {
  HostRig rig;

  const auto zero = rig.backing.create_prefix(0_B);
  const auto odd = rig.backing.create_prefix(rig.g + 1_B);
  const auto huge = rig.backing.create_prefix(Bytes::max());
  const auto large = rig.backing.create_prefix(align_down(Bytes::max(), rig.g));

  ASSERT_FALSE(zero.has_value());
  EXPECT_EQ(std::get<Misaligned>(zero.error().kind).rounded, rig.g);
  ASSERT_FALSE(odd.has_value());
  EXPECT_EQ(std::get<Misaligned>(odd.error().kind).rounded, rig.g * 2);
  ASSERT_FALSE(huge.has_value());
  EXPECT_TRUE(std::holds_alternative<TooLarge>(huge.error().kind));
  ASSERT_FALSE(large.has_value());
  EXPECT_TRUE(std::holds_alternative<TooLarge>(large.error().kind));
}

TEST(SharedPrefixCreate, BeyondTheFilesOfTheirOwnPrefixesShareOne) {
  PageBackingOptions options = HostRig::small_options();
  options.own_file_prefixes = 2;
  HostRig rig(8, options);
  const auto open = test::open_descriptors();

  std::vector<Prefix> prefixes;
  for (std::uint8_t i = 0; i < 6; ++i) {
    prefixes.push_back(rig.prefix(1, i));
    ASSERT_TRUE(
        rig.backing.map_shared(rig.reservation, rig.g * i, prefixes.back(), rig.granules(0, 1)));
  }

  EXPECT_EQ(test::open_descriptors(), open + 4) << "one for each of two files, two for the shared";
  EXPECT_TRUE(rig.is_filled(5, 1, 5));
  EXPECT_EQ(kernel_figure(rig.backing).value().prefix_files, rig.g * 6);
  prefixes.erase(prefixes.begin() + 3);
  ASSERT_TRUE(rig.backing.unmap_shared(rig.reservation, rig.granules(3, 1)).has_value());
  EXPECT_EQ(kernel_figure(rig.backing).value().prefix_files, rig.g * 5);
  EXPECT_TRUE(rig.is_filled(4, 1, 4));
}

TEST(SharedPrefixCreate, AFileOfItsOwnIsFreeForTheNextWhenAPrefixIsGone) {
  PageBackingOptions options = HostRig::small_options();
  options.own_file_prefixes = 1;
  HostRig rig(2, options);
  static_cast<void>(rig.prefix(1, 1));
  rig.kernel->forget();

  const Prefix second = rig.prefix(1, 2);

  EXPECT_TRUE(rig.kernel->calls().front().sealable);
}

TEST(SharedPrefixCreate, DescriptorBudgetRefusesBeforeAnyCallAndNamesTheSetting) {
  PageBackingOptions options = HostRig::small_options();
  HostRig first(1, options);
  const Prefix held = first.prefix(1, 1);
  options.descriptor_limit = first.backing.descriptor_usage().used + 1;
  HostRig rig(2, options);
  rig.kernel->forget();

  const auto refused = rig.backing.create_prefix(rig.g);

  ASSERT_FALSE(refused.has_value());
  const auto& error = std::get<DescriptorBudget>(refused.error().kind);
  EXPECT_EQ(error.limit, *options.descriptor_limit);
  EXPECT_EQ(error.used, *options.descriptor_limit + 1);
  EXPECT_STREQ(error.setting, "RLIMIT_NOFILE");
  EXPECT_NE(refused.error().message().find("RLIMIT_NOFILE"), std::string::npos);
  EXPECT_TRUE(rig.kernel->calls().empty());
}

TEST(SharedPrefixCreate, TheSoftLimitIsRaisedOnceForAllPrefixes) {
  HostRig rig;
  rig.kernel->forget();

  const Prefix one = rig.prefix(1, 1);
  const Prefix two = rig.prefix(1, 2);

  std::size_t raised = 0;
  for (const SystemCall& call : rig.kernel->calls()) {
    raised += call.kind == SystemCallKind::raise_descriptor_limit ? 1U : 0U;
  }
  EXPECT_EQ(raised, 1U);
  EXPECT_TRUE(rig.backing.descriptor_usage().limit.has_value());
}

TEST(SharedPrefixCreate, AHoleThatCannotBePunchedIsParkedCountedAndTriedAgain) {
  const auto governor = test::ScriptedGovernor::with_limit(1_GiB);
  PageBackingOptions options = HostRig::small_options();
  options.own_file_prefixes = 0;
  options.governor = governor;
  HostRig rig(2, options);
  std::optional<Prefix> prefix = rig.prefix(2, 1);
  rig.kernel->break_all(SystemCallKind::punch_hole);

  prefix.reset();
  const ParkedMemory parked = rig.backing.parked();
  const Bytes leased = governor->usage(Tier::host).used;
  rig.kernel->mend();
  const ParkedMemory after = rig.backing.retry_parked();

  EXPECT_EQ(parked.prefix_bytes, rig.g * 2);
  EXPECT_EQ(leased, rig.g * 2) << "the bytes are still there";
  EXPECT_EQ(after.prefix_bytes, 0_B);
  EXPECT_EQ(governor->usage(Tier::host).used, 0_B);
}

TEST(SharedPrefixPopulate, FillsThePageTablesWhenAskedTo) {
  PageBackingOptions options = HostRig::small_options();
  options.populate_shared = true;
  HostRig rig(2, options);
  const Prefix prefix = rig.prefix(2, 1);

  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, 0_B, prefix, rig.granules(0, 2)));

  EXPECT_EQ(test::resident_bytes(rig.address(0), rig.g * 2), rig.g * 2);
}

}  // namespace
}  // namespace memstrata::host
