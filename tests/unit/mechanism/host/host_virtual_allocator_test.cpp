// SPDX-License-Identifier: Apache-2.0
#include "memstrata/mechanism/host/host_virtual_allocator.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/contract/memory_governor.hpp"
#include "memstrata/contract/release.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/role.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "support/allocator_rig.hpp"
#include "support/host_bytes.hpp"
#include "support/resident_bytes.hpp"
#include "support/scripted_governor.hpp"

namespace memstrata::host::host_virtual_allocator_test {
namespace {

using test::AllocatorRig;
using test::BooksCall;
using test::kernel_access;
using test::resident_bytes;

constexpr Bytes granule = 64_KiB;

[[nodiscard]] ByteRange part(std::uint64_t first, std::uint64_t count) {
  return {.offset = granule * first, .size = granule * count};
}

TEST(HostVirtualAllocator, OptionsThatMakeNoSenseAreTheBackingsError) {
  PageBackingOptions options;
  options.granule = Bytes{1000};

  const auto refused = HostVirtualAllocator::create(std::move(options));

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<Misaligned>(refused.error().kind));
}

TEST(HostVirtualAllocator, PromisesAccountingOnlyWithAGovernor) {
  AllocatorRig free({.governed = false});
  AllocatorRig governed;

  EXPECT_FALSE(free.allocator().commits_on_demand());
  EXPECT_TRUE(governed.allocator().commits_on_demand());
  EXPECT_NE(free.allocator().virtual_backing(), nullptr);
  EXPECT_NE(free.allocator().shared_mapping(), nullptr);
}

// B-091
TEST(HostVirtualAllocatorAllocate, ReservingIsFreeWhateverTheSize) {
  AllocatorRig rig;

  const AllocationSpan span = rig.reserve(512_GiB);

  EXPECT_EQ(rig.backing().committed_bytes(span), 0_B);
  EXPECT_EQ(rig.used(), 0_B);
}

TEST(HostVirtualAllocatorAllocate, CommittedMemoryIsResidentAndTheRestFaults) {
  AllocatorRig rig;
  const std::array ranges{part(1, 2)};

  const auto address = rig.backing().allocate_committed(granule * 4, 8_B, ranges);

  ASSERT_TRUE(address.has_value());
  EXPECT_EQ(resident_bytes(*address, granule * 4), granule * 2);
  EXPECT_FALSE(test::is_readable(*address));
  EXPECT_TRUE(test::is_readable(*address + granule));
  EXPECT_FALSE(test::is_readable(*address + granule * 3));
}

TEST(HostVirtualAllocatorAllocate, EstimatesAreNeverBelowWhatTheKernelShows) {
  AllocatorRig rig;
  for (const Bytes bytes : {1_B, 65536_B, 65537_B, 300000_B}) {
    const auto estimate = rig.backing().mapped_bytes(bytes, 64_B);
    const auto address = rig.allocator().allocate(bytes, 64_B);
    ASSERT_TRUE(estimate && address);

    EXPECT_GE(*estimate, resident_bytes(*address, *estimate));
    EXPECT_EQ(resident_bytes(*address, *estimate), *estimate);
  }
}

TEST(HostVirtualAllocatorAllocate, LargeAlignmentsAreMet) {
  AllocatorRig rig;
  for (const Bytes alignment : {4096_B, 64_KiB, 1_MiB, 2_MiB, 64_MiB, 1_GiB}) {
    const auto address = rig.allocator().allocate(granule + 1_B, alignment);
    ASSERT_TRUE(address.has_value());

    EXPECT_TRUE(is_multiple(Bytes{address->value()}, alignment)) << alignment.value;
    EXPECT_EQ(resident_bytes(*address, granule * 2), granule * 2);
  }
}

TEST(HostVirtualAllocatorAllocate, NothingBeyondAnAlignedAllocationCanBeCommitted) {
  AllocatorRig rig;
  const auto address = rig.backing().allocate_committed(granule, 1_MiB, {});
  ASSERT_TRUE(address.has_value());
  const AllocationSpan span{.address = *address, .bytes = granule, .alignment = 1_MiB};

  EXPECT_FALSE(rig.backing().commit(span, part(1, 1)).has_value());
  EXPECT_FALSE(rig.backing().commit(span, part(0, 2)).has_value());

  EXPECT_EQ(rig.used(), 0_B);
}

//
TEST(HostVirtualAllocatorAllocate, SizesThatTheAddressSpaceCannotHoldAreTypedErrors) {
  AllocatorRig rig;

  const auto refused = rig.allocator().allocate(Bytes{(1ULL << 63U) - 4096}, 64_B);

  ASSERT_FALSE(refused.has_value());
  const auto* failed = std::get_if<AllocationFailed>(&refused.error().kind);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(std::string(failed->call), "mmap");
  EXPECT_EQ(failed->code, ENOMEM);
  EXPECT_EQ(rig.allocator().live_allocations(), 0U);
}

//
TEST(HostVirtualAllocatorCommit, TheBudgetIsAskedBeforeTheKernel) {
  AllocatorRig rig({.limit = granule});
  const AllocationSpan span = rig.reserve(granule * 4);
  const auto calls = rig.kernel().faults().all_calls();

  const auto refused = rig.backing().commit(span, part(0, 2));

  ASSERT_FALSE(refused.has_value());
  const auto* exhausted = std::get_if<TierExhausted>(&refused.error().kind);
  ASSERT_NE(exhausted, nullptr);
  EXPECT_EQ(exhausted->requested, granule * 2);
  EXPECT_EQ(exhausted->limit, granule);
  EXPECT_EQ(exhausted->tier, Tier::host);
  EXPECT_EQ(rig.kernel().faults().all_calls(), calls);
  EXPECT_EQ(rig.backing().committed_bytes(span), 0_B);
  EXPECT_EQ(rig.used(), 0_B);
}

TEST(HostVirtualAllocatorCommit, ChargesExactlyTheGranulesThatAreNew) {
  AllocatorRig rig;
  const AllocationSpan span = rig.reserve(granule * 8);

  ASSERT_TRUE(rig.backing().commit(span, {.offset = 1_B, .size = 1_B}).has_value());
  EXPECT_EQ(rig.used(), granule);
  ASSERT_TRUE(rig.backing().commit(span, part(0, 4)).has_value());
  EXPECT_EQ(rig.used(), granule * 4);
  ASSERT_TRUE(rig.backing().commit(span, part(1, 2)).has_value());

  EXPECT_EQ(rig.used(), granule * 4);
}

//
TEST(HostVirtualAllocatorCommit, ARefusalOfTheKernelIsRefundedWithCallAndCode) {
  AllocatorRig rig;
  const AllocationSpan span = rig.reserve(granule * 4);
  for (const char* call : {"mprotect", "madvise"}) {
    rig.kernel().faults().fail_next(call);

    const auto refused = rig.backing().commit(span, part(0, 2));

    ASSERT_FALSE(refused.has_value());
    const auto* failed = std::get_if<AllocationFailed>(&refused.error().kind);
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(std::string(failed->call), call);
    EXPECT_EQ(failed->code, ENOMEM);
    EXPECT_EQ(rig.used(), 0_B);
    EXPECT_EQ(resident_bytes(span.address, span.bytes), 0_B);
  }
  EXPECT_EQ(rig.governor().books().count(BooksCall::Kind::claim), 2U);
}

TEST(HostVirtualAllocatorCommit, OurOwnBudgetOfMappingsNamesTheSetting) {
  AllocatorRig rig({.mapping_room = 2});
  const AllocationSpan span = rig.reserve(granule * 16);

  const auto refused = rig.backing().commit_all(
      std::array{AllocationCommitRange{.allocation = span, .range = part(0, 1)},
                 AllocationCommitRange{.allocation = span, .range = part(2, 1)},
                 AllocationCommitRange{.allocation = span, .range = part(4, 1)}});

  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().error.message().find("max_map_count"), std::string::npos)
      << refused.error().error.message();
  EXPECT_TRUE(std::holds_alternative<AllocationFailed>(refused.error().error.kind));
  const auto* below = refused.error().error.cause.target<VirtualMemoryError>();
  ASSERT_NE(below, nullptr);
  EXPECT_TRUE(std::holds_alternative<MappingBudget>(below->kind));
  EXPECT_EQ(rig.used(), 0_B);
}

/// Two allocations and a batch over both.
struct TwoAllocations {
  AllocatorRig rig;
  AllocationSpan one = rig.reserve(granule * 8);
  AllocationSpan two = rig.reserve(granule * 8);
  std::vector<AllocationCommitRange> batch{{.allocation = two, .range = part(0, 1)},
                                           {.allocation = one, .range = part(1, 2)},
                                           {.allocation = two, .range = part(4, 2)},
                                           {.allocation = one, .range = part(2, 3)}};
};

TEST(HostVirtualAllocatorCommitAll, CommitsSeveralAllocationsAsOne) {
  TwoAllocations both;

  ASSERT_TRUE(both.rig.backing().commit_all(both.batch).has_value());

  EXPECT_EQ(both.rig.backing().committed_bytes(both.one), granule * 4);
  EXPECT_EQ(both.rig.backing().committed_bytes(both.two), granule * 3);
  EXPECT_EQ(both.rig.used(), granule * 7);
}

/// Expects that a batch over both failed without a trace.
void expect_no_trace(TwoAllocations& both, const Result<void, BatchCommitFailure>& failed) {
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().committed_ranges, 0U);
  EXPECT_EQ(both.rig.backing().committed_bytes(both.one), 0_B);
  EXPECT_EQ(both.rig.backing().committed_bytes(both.two), 0_B);
  EXPECT_EQ(resident_bytes(both.one.address, both.one.bytes), 0_B);
  EXPECT_EQ(resident_bytes(both.two.address, both.two.bytes), 0_B);
  EXPECT_EQ(both.rig.used(), 0_B);
}

//
TEST(HostVirtualAllocatorCommitAll, AFaultAtAnySystemCallLeavesNoTraceOrNoGap) {
  std::uint64_t steps = 0;
  {
    TwoAllocations counted;
    const auto before = counted.rig.kernel().faults().all_calls();
    ASSERT_TRUE(counted.rig.backing().commit_all(counted.batch).has_value());
    steps = counted.rig.kernel().faults().all_calls() - before;
  }
  std::uint64_t refusals = 0;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    SCOPED_TRACE(step);
    TwoAllocations both;
    both.rig.kernel().faults().fail_nth_of_any(step);

    const auto done = both.rig.backing().commit_all(both.batch);

    // Calls that only spare the kernel mappings may fail without harm.
    if (!done) {
      ++refusals;
      expect_no_trace(both, done);
    }
    EXPECT_TRUE(both.rig.backing().commit_all(both.batch).has_value());
    EXPECT_EQ(both.rig.used(), granule * 7);
    EXPECT_EQ(resident_bytes(both.one.address, both.one.bytes), granule * 4);
    EXPECT_EQ(resident_bytes(both.two.address, both.two.bytes), granule * 3);
  }
  // Each of the three runs needs a protection and a population.
  EXPECT_EQ(refusals, 6U);
}

//
TEST(HostVirtualAllocatorCommitAll, ARefusalOfTheGovernorAtAnyClaimLeavesNoTrace) {
  for (std::uint64_t claim = 1; claim <= 2; ++claim) {
    SCOPED_TRACE(claim);
    TwoAllocations both;
    both.rig.governor().books().faults().fail_nth("claim", claim);

    const auto failed = both.rig.backing().commit_all(both.batch);

    expect_no_trace(both, failed);
    EXPECT_TRUE(std::holds_alternative<TierExhausted>(failed.error().error.kind));
  }
}

TEST(HostVirtualAllocatorCommitAll, WhatWasCommittedBeforeSurvivesAFailedBatch) {
  TwoAllocations both;
  ASSERT_TRUE(both.rig.backing().commit(both.one, part(1, 1)).has_value());
  test::fill(both.one.address + granule, granule, 0x5C);
  // The second claim is that of the allocation at the higher address.
  both.rig.governor().books().faults().fail_nth("claim", 2);

  ASSERT_FALSE(both.rig.backing().commit_all(both.batch).has_value());

  EXPECT_EQ(both.rig.backing().committed_bytes(both.one), granule);
  EXPECT_TRUE(test::holds_only(both.one.address + granule, granule, 0x5C));
  EXPECT_EQ(both.rig.used(), granule);
}

//
TEST(HostVirtualAllocatorDecommit, TheMemoryIsReallyGoneAndTheBudgetBack) {
  AllocatorRig rig;
  const AllocationSpan span = rig.reserve(granule * 8);
  ASSERT_TRUE(rig.backing().commit(span, part(0, 8)).has_value());

  const auto gone = rig.backing().decommit(span, part(2, 5));

  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(*gone, granule * 5);
  EXPECT_EQ(resident_bytes(span.address, span.bytes), granule * 3);
  EXPECT_FALSE(test::is_readable(span.address + granule * 2));
  EXPECT_EQ(rig.used(), granule * 3);
}

TEST(HostVirtualAllocatorDecommit, ARetainedTailIsNotCountedAsGone) {
  AllocatorRig rig({.retained_tail = granule * 2});
  const AllocationSpan span = rig.reserve(granule * 8);
  ASSERT_TRUE(rig.backing().commit(span, part(0, 8)).has_value());

  const auto gone = rig.backing().decommit(span, part(2, 6));

  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(*gone, granule * 4);
  EXPECT_EQ(resident_bytes(span.address, span.bytes), granule * 4);
  EXPECT_EQ(rig.used(), granule * 4);
  const MechanismRelease answer = rig.allocator().release(span);
  EXPECT_TRUE(answer.is_complete());
  EXPECT_EQ(answer.unmapped_bytes(), granule * 4);
  EXPECT_EQ(rig.used(), 0_B);
}

//
TEST(HostVirtualAllocatorDecommit, AFailureMidwayLeavesBooksAndKernelInAgreement) {
  for (std::uint64_t step = 1; step <= 4; ++step) {
    SCOPED_TRACE(step);
    AllocatorRig rig;
    const AllocationSpan span = rig.reserve(granule * 8);
    const std::array runs{AllocationCommitRange{.allocation = span, .range = part(1, 2)},
                          AllocationCommitRange{.allocation = span, .range = part(4, 2)}};
    ASSERT_TRUE(rig.backing().commit_all(runs).has_value());
    rig.kernel().faults().fail_nth_of_any(step);

    const auto refused = rig.backing().decommit(span, part(0, 8));

    ASSERT_FALSE(refused.has_value());
    const Bytes left = rig.backing().committed_bytes(span);
    EXPECT_EQ(left, step <= 2 ? granule * 4 : granule * 2);
    EXPECT_EQ(rig.used(), left);
    EXPECT_LE(resident_bytes(span.address, span.bytes), left);
    ASSERT_TRUE(rig.backing().decommit(span, part(0, 8)).has_value());
    EXPECT_EQ(rig.used(), 0_B);
    EXPECT_EQ(resident_bytes(span.address, span.bytes), 0_B);
  }
}

TEST(HostVirtualAllocatorRelease, GivesMemoryAddressesAndBudgetBack) {
  AllocatorRig rig;
  const AllocationSpan span = rig.reserve(granule * 8);
  ASSERT_TRUE(rig.backing().commit(span, part(1, 3)).has_value());

  const MechanismRelease answer = rig.allocator().release(span);

  EXPECT_TRUE(answer.is_complete());
  EXPECT_EQ(answer.unmapped_bytes(), granule * 3);
  EXPECT_FALSE(kernel_access(span.address + granule).readable);
  EXPECT_EQ(rig.used(), 0_B);
  EXPECT_FALSE(rig.governor().books().over_released());
  EXPECT_EQ(rig.allocator().live_allocations(), 0U);
}

TEST(HostVirtualAllocatorRelease, ARefusalOfTheFirstStepChangesNothing) {
  AllocatorRig rig;
  const AllocationSpan span = rig.reserve(granule * 4);
  ASSERT_TRUE(rig.backing().commit(span, part(0, 2)).has_value());
  test::fill(span.address, granule * 2, 0x21);
  rig.kernel().faults().fail_next("madvise");

  const MechanismRelease answer = rig.allocator().release(span);

  ASSERT_TRUE(answer.is_unchanged());
  EXPECT_NE(std::get<MechanismRelease::Unchanged>(answer.kind()).why.view().find("madvise"),
            std::string_view::npos);
  EXPECT_EQ(rig.used(), granule * 2);
  EXPECT_TRUE(test::holds_only(span.address, granule * 2, 0x21));
  EXPECT_TRUE(rig.allocator().release(span).is_complete());
}

TEST(HostVirtualAllocatorRelease, ARefusalMidwayIsPartialStaysChargedAndCanBeTriedAgain) {
  AllocatorRig rig;
  const AllocationSpan span = rig.reserve(granule * 8);
  const std::array runs{AllocationCommitRange{.allocation = span, .range = part(0, 1)},
                        AllocationCommitRange{.allocation = span, .range = part(4, 2)}};
  ASSERT_TRUE(rig.backing().commit_all(runs).has_value());
  rig.kernel().faults().fail_nth("madvise", 2);

  const MechanismRelease answer = rig.allocator().release(span);

  ASSERT_TRUE(std::holds_alternative<MechanismRelease::Partial>(answer.kind()));
  const auto& partial = std::get<MechanismRelease::Partial>(answer.kind());
  EXPECT_EQ(partial.unmapped, granule);
  EXPECT_EQ(partial.retained, granule * 2);
  EXPECT_FALSE(partial.why.empty());
  EXPECT_EQ(rig.used(), granule * 2);
  EXPECT_EQ(rig.allocator().live_allocations(), 1U);
  EXPECT_TRUE(rig.allocator().release(span).is_complete());
  EXPECT_EQ(rig.used(), 0_B);
}

TEST(HostVirtualAllocatorRelease, LostContentIsNeverCalledUnchanged) {
  AllocatorRig rig;
  const AllocationSpan span = rig.reserve(granule * 4);
  ASSERT_TRUE(rig.backing().commit(span, part(0, 2)).has_value());
  rig.kernel().faults().fail_next("mprotect");

  const MechanismRelease answer = rig.allocator().release(span);

  EXPECT_FALSE(answer.is_unchanged());
  EXPECT_FALSE(answer.is_complete());
  EXPECT_EQ(rig.used(), granule * 2);
}

TEST(HostVirtualAllocator, DestructionGivesBackWhatIsStillLive) {
  const auto governor = test::ScriptedGovernor::with_limit(1_GiB);
  AllocationSpan span;
  {
    PageBackingOptions options;
    options.governor = governor;
    auto allocator = HostVirtualAllocator::create(std::move(options));
    ASSERT_TRUE(allocator.has_value());
    const auto address = (*allocator)->allocate(granule * 4, 8_B);
    ASSERT_TRUE(address.has_value());
    span = {.address = *address, .bytes = granule * 4, .alignment = 8_B};
    ASSERT_EQ(governor->books().used(Tier::host), granule * 4);
  }

  EXPECT_FALSE(kernel_access(span.address).readable);
  EXPECT_EQ(governor->books().used(Tier::host), 0_B);
}

TEST(HostVirtualAllocator, AGovernorMayCallBackIntoOtherAllocations) {
  // Books that ask the allocator about another allocation while they are asked for bytes.
  class NosyBooks final : public LeaseAccounting {
   public:
    [[nodiscard]] Result<void> try_claim(Tier, Bytes, MemoryRole) override {
      if (allocator != nullptr) {
        seen = allocator->virtual_backing()->committed_bytes(other);
      }
      return {};
    }

    void release(Tier, Bytes) noexcept override {}

    HostVirtualAllocator* allocator = nullptr;
    AllocationSpan other;
    Bytes seen;
  };

  class NosyGovernor final : public MemoryGovernor {
   public:
    [[nodiscard]] MemoryAuthorityId authority_id() const noexcept override { return id_; }

    [[nodiscard]] Result<MemoryLease> reserve(Tier tier,
                                              Bytes bytes,
                                              MemoryRole role,
                                              HolderId holder) override {
      MEMSTRATA_TRY_VOID(books->try_claim(tier, bytes, role));
      return MemoryLease::adopt(tier, bytes, role, holder, books);
    }

    [[nodiscard]] Result<MemoryLease> record_committed(Tier tier,
                                                       Bytes bytes,
                                                       MemoryRole role,
                                                       HolderId holder) override {
      return MemoryLease::adopt(tier, bytes, role, holder, books);
    }

    [[nodiscard]] TierUsage usage(Tier) const noexcept override { return {}; }

    std::shared_ptr<NosyBooks> books = std::make_shared<NosyBooks>();

   private:
    MemoryAuthorityId id_ = MemoryAuthorityId::issue(DeviceKey::host());
  };

  const auto governor = std::make_shared<NosyGovernor>();
  PageBackingOptions options;
  options.governor = governor;
  auto allocator = HostVirtualAllocator::create(std::move(options));
  ASSERT_TRUE(allocator.has_value());
  const auto other = (*allocator)->allocate(granule * 2, 8_B);
  ASSERT_TRUE(other.has_value());
  governor->books->other = {.address = *other, .bytes = granule * 2, .alignment = 8_B};
  governor->books->allocator = allocator->get();

  ASSERT_TRUE((*allocator)->allocate(granule, 8_B).has_value());

  EXPECT_EQ(governor->books->seen, granule * 2);
  governor->books->allocator = nullptr;
}

}  // namespace
}  // namespace memstrata::host::host_virtual_allocator_test
