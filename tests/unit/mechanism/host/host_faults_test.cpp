// SPDX-License-Identifier: Apache-2.0

// Every operation of the host backing of more than one step, once per system call with a failure at that call.

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "support/breaking_system_calls.hpp"
#include "support/host_rig.hpp"
#include "support/process_view.hpp"
#include "support/scripted_governor.hpp"

namespace memstrata::host {
namespace {

using test::Breakage;
using test::HostRig;

using Outcome = Result<void, VirtualMemoryError>;

/// One operation and what must hold before it.
struct Case {
  std::string name;
  std::function<void(HostRig&)> arrange;
  std::function<Outcome(HostRig&)> act;
  std::uint64_t own_files = 256;
  std::uint64_t retained = 0;
  bool populate_shared = false;
  bool content_may_go = false;  ///< A failed decommit may have discarded already.
};

std::ostream& operator<<(std::ostream& out, const Case& of) {
  return out << of.name;
}

[[nodiscard]] HostRig rig_for(const Case& of) {
  PageBackingOptions options = HostRig::small_options();
  options.own_file_prefixes = of.own_files;
  options.populate_shared = of.populate_shared;
  options.retained_tail = options.granule * of.retained;
  options.governor = test::ScriptedGovernor::with_limit(1_GiB);
  return HostRig(12, options);
}

template <class T>
[[nodiscard]] Outcome dropped(Result<T, VirtualMemoryError> result) {
  if (!result) {
    return fail(std::move(result).error());
  }
  return {};
}

void commit_filled(HostRig& rig, std::uint64_t first, std::uint64_t count) {
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(first, count)).has_value());
  rig.fill(first, count, static_cast<std::uint8_t>(first + 1));
}

void map_piece(HostRig& rig, std::uint64_t at, const Prefix& prefix, ByteRange part) {
  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, rig.g * at, prefix, part).has_value());
}

[[nodiscard]] Case commit_of_one_range() {
  return {
      .name = "Commit",
      .arrange = [](HostRig& rig) { commit_filled(rig, 0, 2); },
      .act = [](HostRig& rig) { return rig.backing.commit(rig.reservation, rig.granules(2, 3)); }};
}

[[nodiscard]] Case commit_of_an_isolated_range() {
  return {
      .name = "CommitIsolated",
      .arrange = [](HostRig& rig) { commit_filled(rig, 2, 2); },
      .act = [](HostRig& rig) { return rig.backing.commit(rig.reservation, rig.granules(7, 2)); }};
}

[[nodiscard]] Case commit_beside_a_piece() {
  return {
      .name = "CommitBehindPiece",
      .arrange = [](HostRig& rig) { map_piece(rig, 3, rig.prefix(2, 40), rig.granules(0, 2)); },
      .act = [](HostRig& rig) { return rig.backing.commit(rig.reservation, rig.granules(8, 2)); }};
}

[[nodiscard]] Case commit_of_a_batch() {
  return {.name = "CommitBatch",
          .arrange = [](HostRig& rig) { commit_filled(rig, 4, 1); },
          .act =
              [](HostRig& rig) {
                const std::array ranges{
                    rig.granules(9, 2), rig.granules(0, 1), rig.granules(5, 1), rig.granules(6, 1)};
                return rig.backing.commit(rig.reservation, std::span<const ByteRange>(ranges));
              }};
}

[[nodiscard]] Case commit_over_a_tail() {
  return {
      .name = "CommitOverTail",
      .arrange =
          [](HostRig& rig) {
            commit_filled(rig, 0, 5);
            ASSERT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(2, 3)).has_value());
          },
      .act = [](HostRig& rig) { return rig.backing.commit(rig.reservation, rig.granules(2, 5)); },
      .retained = 3};
}

[[nodiscard]] Case decommit_of_the_middle() {
  return {
      .name = "Decommit",
      .arrange = [](HostRig& rig) { commit_filled(rig, 0, 6); },
      .act = [](HostRig& rig) { return rig.backing.decommit(rig.reservation, rig.granules(2, 2)); },
      .content_may_go = true};
}

[[nodiscard]] Case mapping_a_prefix() {
  const auto prefix = std::make_shared<std::optional<Prefix>>();
  return {.name = "MapShared",
          .arrange =
              [prefix](HostRig& rig) {
                commit_filled(rig, 5, 1);
                *prefix = rig.prefix(3, 60);
              },
          .act =
              [prefix](HostRig& rig) {
                return rig.backing.map_shared(rig.reservation, rig.g, **prefix, rig.granules(0, 3));
              },
          .populate_shared = true};
}

[[nodiscard]] Case breaking_two_pieces() {
  return {.name = "BreakShared",
          .arrange =
              [](HostRig& rig) {
                map_piece(rig, 1, rig.prefix(3, 60), rig.granules(0, 3));
                map_piece(rig, 4, rig.prefix(3, 80), rig.granules(0, 3));
              },
          .act =
              [](HostRig& rig) {
                return rig.backing.break_shared(rig.reservation, rig.granules(2, 4));
              }};
}

[[nodiscard]] Case unmapping_the_middle() {
  return {.name = "UnmapShared",
          .arrange = [](HostRig& rig) { map_piece(rig, 1, rig.prefix(5, 60), rig.granules(0, 5)); },
          .act =
              [](HostRig& rig) {
                return dropped(rig.backing.unmap_shared(rig.reservation, rig.granules(2, 3)));
              }};
}

[[nodiscard]] Case making_a_prefix(std::uint64_t own_files) {
  return {.name = own_files == 0 ? "CreatePrefixInArena" : "CreatePrefix",
          .arrange = [](HostRig&) {},
          .act = [](HostRig& rig) { return dropped(rig.backing.create_prefix(rig.g * 2)); },
          .own_files = own_files};
}

[[nodiscard]] Case reserving() {
  return {.name = "Reserve",
          .arrange = [](HostRig&) {},
          .act = [](HostRig& rig) { return dropped(rig.backing.reserve(rig.g * 4)); }};
}

class HostFaults : public testing::TestWithParam<Case> {
 protected:
  /// Breaks the operation at each of its calls in turn; a call that breaks without failing the operation is one
  /// that the operation can do without.
  static void run(Breakage how) {
    const Case& of = GetParam();
    std::size_t failed = 0;
    for (std::size_t step = 1;; ++step) {
      HostRig rig = rig_for(of);
      of.arrange(rig);
      auto before = rig.snapshot();
      const auto open = test::open_descriptors();
      rig.kernel->break_nth(step, how);

      const Outcome outcome = of.act(rig);

      if (!rig.kernel->has_broken()) {
        ASSERT_TRUE(outcome.has_value()) << outcome.error().message();
        break;
      }
      rig.kernel->mend();
      if (outcome) {
        continue;
      }
      ++failed;
      auto after = rig.snapshot();
      if (of.content_may_go) {
        after.content = before.content;
        after.resident = before.resident;
      }
      EXPECT_EQ(after, before) << "call " << step << ": " << outcome.error().message();
      EXPECT_EQ(test::open_descriptors(), open) << "call " << step;
      const Outcome again = of.act(rig);
      EXPECT_TRUE(again.has_value()) << "call " << step << ": " << again.error().message();
    }
    EXPECT_GT(failed, 0U);
  }
};

INSTANTIATE_TEST_SUITE_P(Operations,
                         HostFaults,
                         testing::Values(commit_of_one_range(),
                                         commit_of_an_isolated_range(),
                                         commit_beside_a_piece(),
                                         commit_of_a_batch(),
                                         commit_over_a_tail(),
                                         decommit_of_the_middle(),
                                         mapping_a_prefix(),
                                         breaking_two_pieces(),
                                         unmapping_the_middle(),
                                         making_a_prefix(256),
                                         making_a_prefix(0),
                                         reserving()),
                         [](const testing::TestParamInfo<Case>& of) { return of.param.name; });

TEST_P(HostFaults, ACallThatIsRefusedLeavesEverythingAsItWas) {
  run(Breakage::before);
}

TEST_P(HostFaults, ACallThatStopsHalfWayLeavesEverythingAsItWas) {
  run(Breakage::after);
}

class HostReplacingFaults : public HostFaults {};

INSTANTIATE_TEST_SUITE_P(Operations,
                         HostReplacingFaults,
                         testing::Values(mapping_a_prefix(), breaking_two_pieces()),
                         [](const testing::TestParamInfo<Case>& of) { return of.param.name; });

TEST_P(HostReplacingFaults, AMappingThatLeavesAHoleIsRepaired) {
  run(Breakage::hole);
}

TEST(HostUnmapFaults, AHoleInsteadOfAnUnmappingIsFilledAndCountsAsUnmapped) {
  HostRig rig(6);
  map_piece(rig, 1, rig.prefix(4, 60), rig.granules(0, 4));
  rig.kernel->break_nth(1, Breakage::hole);

  const auto unmapped = rig.backing.unmap_shared(rig.reservation, rig.granules(2, 2));

  EXPECT_TRUE(unmapped.has_value());
  EXPECT_EQ(rig.snapshot().access, "-r--r-");
}

TEST(HostSealFaults, ARefusedSealLeavesTheWindowWritableAtItsAddress) {
  for (const std::uint64_t own_files : {256U, 0U}) {
    for (std::size_t step = 1;; ++step) {
      PageBackingOptions options = HostRig::small_options();
      options.own_file_prefixes = own_files;
      HostRig rig(4, options);
      auto builder = rig.backing.create_prefix(rig.g * 2).value();
      const DeviceAddress window = builder.base();
      builder.data()[1] = std::byte{77};
      const auto before = rig.snapshot();
      rig.kernel->break_nth(step, Breakage::before, EBUSY);

      auto sealed = builder.seal();

      if (!rig.kernel->has_broken()) {
        break;
      }
      if (!sealed) {
        EXPECT_EQ(rig.snapshot(), before) << "call " << step;
        EXPECT_EQ(builder.base(), window);
        EXPECT_TRUE(test::is_writable(window));
        sealed = builder.seal();
      }
      ASSERT_TRUE(sealed.has_value()) << "call " << step;
      ASSERT_TRUE(rig.backing.map_shared(rig.reservation, 0_B, *sealed, rig.granules(0, 2)));
      EXPECT_EQ(rig.data(0)[1], std::byte{77});
    }
  }
}

TEST(HostSealFaults, ALostWindowKeepsTheContentAndCanStillBeSealed) {
  HostRig rig(4);
  auto builder = rig.backing.create_prefix(rig.g).value();
  builder.data()[1] = std::byte{77};
  rig.kernel->break_from(2, EBUSY);

  const auto refused = builder.seal();
  rig.kernel->mend();
  const bool lost = builder.data() == nullptr;
  const auto sealed = builder.seal();

  EXPECT_FALSE(refused.has_value());
  EXPECT_TRUE(lost);
  ASSERT_TRUE(sealed.has_value());
  ASSERT_TRUE(rig.backing.map_shared(rig.reservation, 0_B, *sealed, rig.granules(0, 1)));
  EXPECT_EQ(rig.data(0)[1], std::byte{77});
}

TEST(HostDoubleFaults, ACommitThatCannotBeUndoneCountsAsCommitted) {
  const auto governor = test::ScriptedGovernor::with_limit(1_GiB);
  PageBackingOptions options = HostRig::small_options();
  options.governor = governor;
  HostRig rig(4, options);
  rig.kernel->break_from(2);

  const auto refused = rig.backing.commit(rig.reservation, rig.granules(0, 2));
  rig.kernel->mend();

  EXPECT_FALSE(refused.has_value());
  EXPECT_EQ(rig.backing.committed(rig.reservation), rig.g * 2);
  EXPECT_EQ(governor->usage(Tier::host).used, rig.g * 2);
  EXPECT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(0, 2)).has_value());
  EXPECT_EQ(governor->usage(Tier::host).used, 0_B);
}

TEST(HostDoubleFaults, ABreakThatCannotBeUndoneNeverShowsWrongContent) {
  for (std::size_t step = 2; step <= 7; ++step) {
    const auto governor = test::ScriptedGovernor::with_limit(1_GiB);
    PageBackingOptions options = HostRig::small_options();
    options.governor = governor;
    HostRig rig(6, options);
    map_piece(rig, 0, rig.prefix(2, 60), rig.granules(0, 2));
    map_piece(rig, 2, rig.prefix(2, 80), rig.granules(0, 2));
    rig.kernel->break_from(step);

    const auto refused = rig.backing.break_shared(rig.reservation, rig.granules(1, 2));
    rig.kernel->mend();

    ASSERT_EQ(refused.has_value(), step == 7) << "step " << step;
    EXPECT_TRUE(rig.is_filled(0, 1, 60));
    EXPECT_TRUE(rig.is_filled(3, 1, 81));
    for (const std::uint64_t granule : {1U, 2U}) {
      if (rig.backing.shared_in(rig.reservation, rig.granules(granule, 1)) == rig.g) {
        EXPECT_TRUE(rig.is_filled(granule, 1, granule == 1 ? 61 : 80)) << "step " << step;
      }
    }
    EXPECT_EQ(governor->usage(Tier::host).used, rig.backing.committed(rig.reservation) + rig.g * 4)
        << "step " << step;
  }
}

}  // namespace
}  // namespace memstrata::host
