// SPDX-License-Identifier: Apache-2.0
// Shared prefixes on real memory: what the kernel lets nobody do, who pays, and what a fault leaves behind.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "memstrata/contract/release.hpp"
#include "memstrata/contract/shared_mapping.hpp"
#include "memstrata/contract/virtual_backing.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/mechanism/host/host_virtual_allocator.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "support/allocator_rig.hpp"
#include "support/host_bytes.hpp"
#include "support/resident_bytes.hpp"

namespace memstrata::host {
namespace {

using test::AllocatorRig;

constexpr Bytes granule = 64_KiB;
using Shared = std::shared_ptr<SharedDevicePrefix>;

[[nodiscard]] ByteRange part(std::uint64_t first, std::uint64_t count) {
  return {.offset = granule * first, .size = granule * count};
}

/// A sealed prefix of `granules` filled with `value`; null if the rig refuses.
[[nodiscard]] Shared sealed(AllocatorRig& rig, std::uint64_t granules, std::uint8_t value) {
  auto made = rig.mapping().create_shared_prefix(granule * granules);
  if (!made) {
    return nullptr;
  }
  test::fill((*made)->address(), granule * granules, value);
  return (*made)->seal() ? std::move(*made) : nullptr;
}

/// Two allocations that read one prefix of two granules, at granule 1.
struct TwoReaders {
  AllocatorRig rig;
  Shared prefix = sealed(rig, 2, 0xB4);
  AllocationSpan one = rig.reserve(granule * 4);
  AllocationSpan two = rig.reserve(granule * 4);

  TwoReaders() {
    EXPECT_TRUE(rig.mapping().commit_shared_prefix(*prefix, one, granule).has_value());
    EXPECT_TRUE(rig.mapping().commit_shared_prefix(*prefix, two, granule).has_value());
  }
};

/// How a child process ends that writes one byte to the address: the signal, or 0.
[[nodiscard]] int signal_of_a_write(DeviceAddress address) {
  const pid_t child = fork();
  if (child == 0) {
    // Neither a sanitizer nor gtest may turn the fault into something else.
    std::signal(SIGSEGV, SIG_DFL);
    *static_cast<volatile std::uint8_t*>(test::touch(address)) = 1;
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(HostSharedMapping, AWriteByAUserFaultsAndReachesNobody) {
  TwoReaders readers;

  EXPECT_EQ(signal_of_a_write(readers.one.address + granule), SIGSEGV);

  EXPECT_TRUE(test::holds_only(readers.one.address + granule, granule * 2, 0xB4));
  EXPECT_TRUE(test::holds_only(readers.two.address + granule, granule * 2, 0xB4));
}

TEST(HostSharedMapping, TheKernelRefusesToMakeAUserWritable) {
  TwoReaders readers;
  std::uint8_t* const mapped = test::touch(readers.one.address + granule);

  EXPECT_EQ(mprotect(mapped, granule.value, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);

  EXPECT_FALSE(test::kernel_access(readers.one.address + granule).writable);
  EXPECT_TRUE(test::holds_only(readers.two.address + granule, granule * 2, 0xB4));
}

TEST(HostSharedMapping, TheWindowIsGoneOnceThePrefixIsSealed) {
  AllocatorRig rig;
  const auto prefix = rig.mapping().create_shared_prefix(granule);
  ASSERT_TRUE(prefix.has_value());
  const DeviceAddress window = (*prefix)->address();
  ASSERT_TRUE(test::kernel_access(window).writable);

  ASSERT_TRUE((*prefix)->seal().has_value());

  EXPECT_FALSE(test::kernel_access(window).writable);
  EXPECT_TRUE((*prefix)->address().is_null());
}

TEST(HostSharedMapping, ASecondSealSaysThatItIsTheSecond) {
  AllocatorRig rig;
  const Shared prefix = sealed(rig, 1, 0x01);
  ASSERT_NE(prefix, nullptr);

  const auto refused = prefix->seal();

  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("sealed already"), std::string::npos)
      << refused.error().message();
}

TEST(HostSharedMapping, APrefixIsChargedOnceHoweverManyUseIt) {
  TwoReaders readers;

  EXPECT_EQ(readers.rig.used(), granule * 2);
  EXPECT_EQ(readers.rig.backing().committed_bytes(readers.one), granule * 2);
  EXPECT_EQ(readers.rig.backing().committed_bytes(readers.two), granule * 2);
}

TEST(HostSharedMapping, APrefixThatTheBudgetRefusesCostsNothing) {
  AllocatorRig rig({.limit = granule});

  const auto refused = rig.mapping().create_shared_prefix(granule * 2);

  ASSERT_FALSE(refused.has_value());
  const auto* exhausted = std::get_if<TierExhausted>(&refused.error().kind);
  ASSERT_NE(exhausted, nullptr);
  EXPECT_EQ(exhausted->requested, granule * 2);
  EXPECT_EQ(rig.used(), 0_B);
}

TEST(HostSharedMapping, TheChargeEndsWithTheLastOfHandleAndMappings) {
  TwoReaders readers;
  readers.prefix = nullptr;
  EXPECT_EQ(readers.rig.used(), granule * 2);

  EXPECT_EQ(readers.rig.allocator().release(readers.one).unmapped_bytes(), 0_B);
  EXPECT_EQ(readers.rig.used(), granule * 2);
  const MechanismRelease last = readers.rig.allocator().release(readers.two);

  EXPECT_EQ(last.unmapped_bytes(), granule * 2);
  EXPECT_EQ(readers.rig.used(), 0_B);
}

TEST(HostSharedMapping, AHandleAloneKeepsThePrefixCharged) {
  TwoReaders readers;
  ASSERT_TRUE(readers.rig.allocator().release(readers.one).is_complete());
  ASSERT_TRUE(readers.rig.allocator().release(readers.two).is_complete());
  EXPECT_EQ(readers.rig.used(), granule * 2);

  readers.prefix = nullptr;

  EXPECT_EQ(readers.rig.used(), 0_B);
}

TEST(HostSharedMapping, APrefixThatWasNeverSealedGivesItsBytesBack) {
  AllocatorRig rig;
  {
    const auto open = rig.mapping().create_shared_prefix(granule * 3);
    ASSERT_TRUE(open.has_value());
    EXPECT_EQ(rig.used(), granule * 3);
  }

  EXPECT_EQ(rig.used(), 0_B);
}

TEST(HostSharedMapping, AHandleOutlivesItsAllocator) {
  Shared prefix;
  {
    AllocatorRig rig;
    prefix = sealed(rig, 2, 0x2E);
  }
  ASSERT_NE(prefix, nullptr);

  EXPECT_TRUE(prefix->is_sealed());
  EXPECT_EQ(prefix->mapped_bytes(), granule * 2);

  AllocatorRig other;
  EXPECT_FALSE(other.mapping().incremental_owned_bytes(*prefix).has_value());
}

TEST(HostSharedMapping, UnmappingAPartLeavesTheRestMapped) {
  TwoReaders readers;

  const auto gone = readers.rig.backing().decommit(readers.one, part(1, 1));

  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(*gone, 0_B);
  EXPECT_FALSE(test::is_readable(readers.one.address + granule));
  EXPECT_TRUE(test::holds_only(readers.one.address + granule * 2, granule, 0xB4));
}

TEST(HostSharedMapping, BreakingIsChargedBeforeItIsCopied) {
  AllocatorRig rig({.limit = granule * 2});
  const Shared prefix = sealed(rig, 2, 0x6D);
  ASSERT_NE(prefix, nullptr);
  const AllocationSpan span = rig.reserve(granule * 2);
  ASSERT_TRUE(rig.mapping().commit_shared_prefix(*prefix, span, 0_B).has_value());
  const auto calls = rig.kernel().faults().all_calls();

  const auto refused = rig.mapping().break_shared(span, part(0, 1));

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<TierExhausted>(refused.error().kind));
  EXPECT_EQ(rig.kernel().faults().all_calls(), calls);
  EXPECT_EQ(rig.used(), granule * 2);
  EXPECT_FALSE(test::kernel_access(span.address).writable);
  EXPECT_TRUE(test::holds_only(span.address, granule * 2, 0x6D));
}

TEST(HostSharedMapping, ABrokenGranuleIsWritableChargedAndItsOwn) {
  TwoReaders readers;

  const auto broken = readers.rig.mapping().break_shared(readers.one, part(1, 1));

  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(*broken, granule);
  EXPECT_EQ(readers.rig.used(), granule * 3);
  test::fill(readers.one.address + granule, granule, 0x01);
  EXPECT_TRUE(test::holds_only(readers.one.address + granule * 2, granule, 0xB4));
  EXPECT_TRUE(test::holds_only(readers.two.address + granule, granule * 2, 0xB4));
  EXPECT_FALSE(test::kernel_access(readers.one.address + granule * 2).writable);
}

TEST(HostSharedMapping, SeveralRunsUnderOneRangeAreRefusedBeforeAnythingIsCopied) {
  AllocatorRig rig;
  const Shared prefix = sealed(rig, 1, 0x10);
  ASSERT_NE(prefix, nullptr);
  const AllocationSpan span = rig.reserve(granule * 4);
  ASSERT_TRUE(rig.mapping().commit_shared_prefix(*prefix, span, 0_B).has_value());
  ASSERT_TRUE(rig.mapping().commit_shared_prefix(*prefix, span, granule * 2).has_value());

  const auto refused = rig.mapping().break_shared(span, part(0, 4));

  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(std::holds_alternative<InvalidRequest>(refused.error().kind));
  EXPECT_EQ(rig.used(), granule);
  EXPECT_EQ(rig.mapping().break_shared(span, part(2, 2)).value_or(0_B), granule);
}

TEST(HostSharedMapping, AFaultAtAnyStepOfAMappingLeavesTheTargetEmpty) {
  TwoReaders readers;
  const AllocationSpan third = readers.rig.reserve(granule * 4);
  readers.rig.kernel().faults().fail_next("mmap");

  const auto refused = readers.rig.mapping().commit_shared_prefix(*readers.prefix, third, granule);

  ASSERT_FALSE(refused.has_value());
  const auto* failed = std::get_if<AllocationFailed>(&refused.error().kind);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(std::string(failed->call), "mmap");
  EXPECT_EQ(failed->code, ENOMEM);
  EXPECT_EQ(readers.rig.backing().committed_bytes(third), 0_B);
  EXPECT_FALSE(test::is_readable(third.address + granule));
  EXPECT_EQ(readers.rig.used(), granule * 2);
}

TEST(HostSharedMapping, AFaultAtAnySystemCallOfAPrefixLeavesNothingBehind) {
  std::uint64_t steps = 0;
  {
    AllocatorRig counted;
    const auto before = counted.kernel().faults().all_calls();
    const auto made = counted.mapping().create_shared_prefix(granule * 2);
    ASSERT_TRUE(made.has_value());
    steps = counted.kernel().faults().all_calls() - before;
  }
  ASSERT_GE(steps, 3U);
  std::uint64_t refusals = 0;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    SCOPED_TRACE(step);
    AllocatorRig rig;
    rig.kernel().faults().fail_nth_of_any(step);

    auto made = rig.mapping().create_shared_prefix(granule * 2);

    if (!made) {
      ++refusals;
      EXPECT_TRUE(std::holds_alternative<AllocationFailed>(made.error().kind));
      EXPECT_EQ(rig.used(), 0_B);
    }
    EXPECT_TRUE(rig.mapping().create_shared_prefix(granule * 2).has_value());
  }
  EXPECT_GE(refusals, 2U);
}

TEST(HostSharedMapping, AFaultAtAnySystemCallOfABreakLeavesThePrefixShared) {
  std::uint64_t steps = 0;
  {
    TwoReaders counted;
    const auto before = counted.rig.kernel().faults().all_calls();
    ASSERT_TRUE(counted.rig.mapping().break_shared(counted.one, part(1, 1)).has_value());
    steps = counted.rig.kernel().faults().all_calls() - before;
  }
  std::uint64_t refusals = 0;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    SCOPED_TRACE(step);
    TwoReaders readers;
    readers.rig.kernel().faults().fail_nth_of_any(step);

    const auto broken = readers.rig.mapping().break_shared(readers.one, part(1, 1));

    // Calls that only spare the kernel mappings may fail without harm.
    if (!broken) {
      ++refusals;
      EXPECT_EQ(readers.rig.used(), granule * 2);
      EXPECT_FALSE(test::kernel_access(readers.one.address + granule).writable);
      EXPECT_TRUE(test::holds_only(readers.one.address + granule, granule * 2, 0xB4));
      EXPECT_EQ(readers.rig.mapping().break_shared(readers.one, part(1, 1)).value_or(0_B), granule);
    }
    EXPECT_EQ(readers.rig.backing().committed_bytes(readers.one), granule * 2);
    EXPECT_TRUE(test::holds_only(readers.one.address + granule, granule * 2, 0xB4));
    EXPECT_EQ(readers.rig.used(), granule * 3);
  }
  // The mapping, its population and the copy.
  EXPECT_GE(refusals, 3U);
}

TEST(HostSharedMapping, ARefusedUnmapLeavesTheRestOfTheReleaseUndone) {
  TwoReaders readers;
  ASSERT_TRUE(readers.rig.backing().commit(readers.one, part(0, 1)).has_value());
  readers.rig.kernel().faults().fail_nth_of_any(1);
  readers.rig.kernel().faults().fail_nth_of_any(2);

  const MechanismRelease answer = readers.rig.allocator().release(readers.one);

  EXPECT_TRUE(answer.is_unchanged());
  EXPECT_EQ(readers.rig.backing().committed_bytes(readers.one), granule * 3);
  EXPECT_TRUE(test::holds_only(readers.one.address + granule, granule * 2, 0xB4));
  EXPECT_TRUE(readers.rig.allocator().release(readers.one).is_complete());
  EXPECT_EQ(readers.rig.used(), granule * 2);
}

}  // namespace
}  // namespace memstrata::host
