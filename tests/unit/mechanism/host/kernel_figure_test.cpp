// SPDX-License-Identifier: Apache-2.0
#include "memstrata/mechanism/host/kernel_figure.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/virtual_memory_error.hpp"
#include "memstrata/mechanism/host/page_backing.hpp"
#include "memstrata/mechanism/host/system_calls.hpp"
#include "support/host_rig.hpp"

namespace memstrata::host {
namespace {

using test::HostRig;

/// A file of the test's own that is gone with the test.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& text)
      : path_(testing::TempDir() + "memstrata_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::ofstream(path_) << text;
  }

  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ScratchFile(ScratchFile&&) = delete;
  ScratchFile& operator=(ScratchFile&&) = delete;

  ~ScratchFile() { std::remove(path_.c_str()); }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

[[nodiscard]] std::string head(std::uint64_t first, std::uint64_t last) {
  std::array<char, 64> line{};
  std::snprintf(line.data(),
                line.size(),
                "%lx-%lx rw-p 00000000 00:00 0 \n",
                static_cast<unsigned long>(first),
                static_cast<unsigned long>(last));
  return line.data();
}

TEST(KernelFigure, IsWhatIsCommittedAndEachPrefixOnce) {
  HostRig rig(40);
  const Prefix prefix = rig.prefix(6, 1);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(3, 9)).has_value());
  for (const std::uint64_t at : {14U, 20U, 30U}) {
    ASSERT_TRUE(rig.backing.map_shared(rig.reservation, rig.g * at, prefix, rig.granules(0, 6)));
    ASSERT_TRUE(rig.is_filled(at, 1, 1));
  }

  const auto figure = kernel_figure(rig.backing);

  ASSERT_TRUE(figure.has_value());
  EXPECT_EQ(figure->anonymous, rig.g * 9);
  EXPECT_EQ(figure->prefix_files, rig.g * 6);
  EXPECT_EQ(figure->total(), rig.g * 15);
}

TEST(KernelFigure, CountsAnIdlePrefixThatNobodyMaps) {
  HostRig rig;
  const Prefix prefix = rig.prefix(4, 1);

  EXPECT_EQ(kernel_figure(rig.backing).value().prefix_files, rig.g * 4);
}

TEST(KernelFigure, CountsOnlyThisBackingsReservations) {
  HostRig rig;
  HostRig other;
  ASSERT_TRUE(other.backing.commit(other.reservation, other.granules(0, 8)).has_value());

  EXPECT_EQ(kernel_figure(rig.backing).value().total(), 0_B);
}

TEST(KernelFigure, CountsARetainedTailThatIsProtected) {
  PageBackingOptions options = HostRig::small_options();
  options.retained_tail = options.granule * 2;
  options.governor = test::ScriptedGovernor::with_limit(1_GiB);
  HostRig rig(8, options);
  ASSERT_TRUE(rig.backing.commit(rig.reservation, rig.granules(0, 4)).has_value());
  ASSERT_TRUE(rig.backing.decommit(rig.reservation, rig.granules(2, 2)).has_value());

  EXPECT_EQ(kernel_figure(rig.backing).value().anonymous, rig.g * 4);
}

TEST(KernelFigure, AddsTheLinesOfMappingsThatTouchAReservation) {
  HostRig rig(8);
  const std::uint64_t base = rig.reservation.base().value();
  const std::uint64_t page = page_size().value;
  const ScratchFile smaps(head(0x1000, 0x2000) + "Anonymous:          4 kB\n" +
                          head(base, base + page) + "Rss:  9 kB\nAnonymous:         12 kB\n" +
                          head(base + page, base + 2 * page) + "Anonymous: 8 kB\n" +
                          head(base + 1024 * page, base + 1025 * page) + "Anonymous: 400 kB\n");

  EXPECT_EQ(kernel_figure(rig.backing, smaps.path()).value().anonymous, 20_KiB);
}

TEST(KernelFigure, AnUnreadableLineIsAnErrorAndNotZero) {
  HostRig rig(8);
  const std::uint64_t base = rig.reservation.base().value();
  const ScratchFile smaps(head(base, base + page_size().value) + "Anonymous:  many kB\n");

  const auto figure = kernel_figure(rig.backing, smaps.path());

  ASSERT_FALSE(figure.has_value());
  EXPECT_STREQ(std::get<Os>(figure.error().kind).operation, "parse");
}

TEST(KernelFigure, AMissingFileIsAnErrorThatNamesIt) {
  HostRig rig;

  const auto figure = kernel_figure(rig.backing, "/nonexistent/smaps");

  ASSERT_FALSE(figure.has_value());
  EXPECT_EQ(std::get<Os>(figure.error().kind).code, ENOENT);
  EXPECT_NE(figure.error().message().find("/nonexistent/smaps"), std::string::npos);
}

}  // namespace
}  // namespace memstrata::host
