// SPDX-License-Identifier: Apache-2.0
#include "memstrata/mechanism/host/host_limits.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "support/process_view.hpp"

namespace memstrata::host {
namespace {

/// A tree of files that stands in for `/proc` and `/sys`.
class FakeRoot : public testing::Test {
 protected:
  FakeRoot()
      : root_(testing::TempDir() + "memstrata_root_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
    write("/proc/meminfo",
          "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n");
  }

  ~FakeRoot() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  void remove(const std::string& path) const { std::filesystem::remove(root_ + path); }

  void use_version_2(const std::string& own_path) const {
    write("/proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw,relatime 0 0\n");
    write("/proc/self/cgroup", "0::" + own_path + "\n");
  }

  [[nodiscard]] HostLimits read() const { return read_host_limits(root_); }

  std::string root_;
};

TEST_F(FakeRoot, MemoryFiguresSayWhereTheyWereRead) {
  const HostLimits limits = read();

  EXPECT_EQ(limits.memory_total.value(), (16_GiB).value);
  EXPECT_EQ(limits.memory_total.source(), root_ + "/proc/meminfo MemTotal");
  EXPECT_EQ(limits.memory_available.value(), (8_GiB).value);
}

TEST_F(FakeRoot, UnknownIsATypeWithAReasonAndNeverZero) {
  remove("/proc/meminfo");

  const HostLimits limits = read();

  EXPECT_EQ(limits.memory_total.state(), Figure::State::unknown);
  EXPECT_EQ(limits.memory_total.value(), std::nullopt);
  EXPECT_FALSE(limits.memory_total.reason().empty());
  EXPECT_EQ(limits.effective_limit().state(), Figure::State::unknown);
  EXPECT_EQ(limits.room().state(), Figure::State::unknown);
  EXPECT_FALSE(limits.huge_pages.value.has_value());
  EXPECT_FALSE(limits.huge_pages.reason.empty());
}

TEST_F(FakeRoot, WithoutGroupsTheMachineIsTheLimit) {
  const HostLimits limits = read();

  EXPECT_TRUE(limits.cgroups.empty());
  EXPECT_EQ(limits.effective_limit().value(), (16_GiB).value);
  EXPECT_EQ(limits.room().value(), (8_GiB).value);
  EXPECT_EQ(limits.soft_limit().state(), Figure::State::unlimited);
}

TEST_F(FakeRoot, TheLeastLimitOfAllAncestorsHolds) {
  use_version_2("/a/b");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write("/sys/fs/cgroup/a/b/memory.high", "5368709120\n");
  write("/sys/fs/cgroup/a/b/memory.current", "1073741824\n");
  write("/sys/fs/cgroup/a/memory.max", "4294967296\n");
  write("/sys/fs/cgroup/a/memory.high", "max\n");
  write("/sys/fs/cgroup/a/memory.current", "3221225472\n");

  const HostLimits limits = read();

  ASSERT_EQ(limits.cgroups.size(), 2U) << "the root of version 2 has no such files";
  EXPECT_EQ(limits.cgroups[0].limit.state(), Figure::State::unlimited);
  EXPECT_EQ(limits.effective_limit().value(), (4_GiB).value);
  EXPECT_EQ(limits.effective_limit().source(), root_ + "/sys/fs/cgroup/a/memory.max");
  EXPECT_EQ(limits.room().value(), (1_GiB).value);
  EXPECT_EQ(limits.soft_limit().value(), (5_GiB).value);
}

TEST_F(FakeRoot, HybridSetUpsFindTheLimitUnderVersionOne) {
  write("/proc/self/mounts",
        "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n"
        "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n");
  write("/proc/self/cgroup", "4:cpu,memory:/job\n1:name=systemd:/\n0::/\n");
  write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2147483648\n");
  write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1073741824\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");

  const HostLimits limits = read();

  ASSERT_EQ(limits.cgroups.size(), 2U);
  EXPECT_EQ(limits.cgroups[0].version, 1);
  EXPECT_EQ(limits.cgroups[1].limit.state(), Figure::State::unlimited);
  EXPECT_EQ(limits.effective_limit().value(), (2_GiB).value);
  EXPECT_EQ(limits.room().value(), (1_GiB).value);
}

TEST_F(FakeRoot, APathOfAnotherNamespaceFallsBackToTheGroupThatIsVisible) {
  use_version_2("/system.slice/docker-1.scope");
  write("/sys/fs/cgroup/memory.max", "3221225472\n");
  write("/sys/fs/cgroup/memory.high", "max\n");
  write("/sys/fs/cgroup/memory.current", "0\n");

  EXPECT_EQ(read().effective_limit().value(), (3_GiB).value);
}

TEST_F(FakeRoot, AnUnreadableUsageMakesTheRoomUnknown) {
  use_version_2("/a");
  write("/sys/fs/cgroup/a/memory.max", "4294967296\n");
  write("/sys/fs/cgroup/a/memory.current", "lots\n");

  const Figure room = read().room();

  EXPECT_EQ(room.state(), Figure::State::unknown);
  EXPECT_EQ(room.source(), root_ + "/sys/fs/cgroup/a/memory.current");
}

TEST_F(FakeRoot, UsageAboveTheLimitLeavesNoRoom) {
  use_version_2("/a");
  write("/sys/fs/cgroup/a/memory.max", "1000\n");
  write("/sys/fs/cgroup/a/memory.current", "2000\n");

  EXPECT_EQ(read().room().value(), 0U);
}

TEST_F(FakeRoot, MountPointsWithBlanksAreUnderstood) {
  write("/proc/self/mounts", "cgroup2 /sys/my\\040groups cgroup2 rw 0 0\n");
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/my groups/memory.max", "1073741824\n");
  write("/sys/my groups/memory.current", "0\n");

  EXPECT_EQ(read().effective_limit().value(), (1_GiB).value);
}

TEST_F(FakeRoot, TheDefaultTierIsTheLeastOfLimitSoftLimitAndRoom) {
  const std::uint64_t by_room = (8_GiB).value / 100 * 90 + (8_GiB).value % 100 * 90 / 100;
  EXPECT_EQ(read().default_tier().value(), by_room);

  use_version_2("/a");
  write("/sys/fs/cgroup/a/memory.max", "4294967296\n");
  write("/sys/fs/cgroup/a/memory.current", "0\n");
  EXPECT_EQ(read().default_tier().value(), (3_GiB).value);

  write("/sys/fs/cgroup/a/memory.high", "2147483648\n");
  EXPECT_EQ(read().default_tier().value(), (2_GiB).value);
}

TEST_F(FakeRoot, PagesPoolsAndSettingsAreRead) {
  const std::string thp = "/sys/kernel/mm/transparent_hugepage";
  write(thp + "/enabled", "always [madvise] never\n");
  write(thp + "/defrag", "always defer defer+madvise [madvise] never\n");
  write(thp + "/shmem_enabled", "always within_size advise [never] deny force\n");
  write(thp + "/hpage_pmd_size", "2097152\n");
  write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "7\n");
  write("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3\n");
  write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages", "0\n");
  write("/proc/sys/vm/max_map_count", "65530\n");
  write("/proc/sys/vm/overcommit_memory", "1\n");
  write("/proc/cpuinfo", "address sizes\t: 46 bits physical, 48 bits virtual\n");

  const HostLimits limits = read();

  EXPECT_EQ(limits.huge_pages.value, "madvise");
  EXPECT_EQ(limits.huge_pages_shared.value, "never");
  EXPECT_EQ(limits.huge_page_size.value(), (2_MiB).value);
  ASSERT_EQ(limits.pools.size(), 1U);
  EXPECT_EQ(limits.pools[0].page, 2_MiB);
  EXPECT_EQ(limits.pools[0].pages.value(), 7U);
  EXPECT_EQ(limits.pools[0].free_pages.value(), 3U);
  EXPECT_EQ(limits.mappings.value(), 65530U);
  EXPECT_EQ(limits.overcommit_mode.value(), 1U);
  EXPECT_EQ(limits.address_bits.value(), 48U);
}

TEST_F(FakeRoot, GarbageInANumberIsUnknown) {
  write("/proc/sys/vm/max_map_count", "65530 or so\n");

  const Figure figure = read_mapping_limit(root_);

  EXPECT_EQ(figure.state(), Figure::State::unknown);
  EXPECT_EQ(figure.source(), root_ + "/proc/sys/vm/max_map_count");
}

TEST_F(FakeRoot, TheRoomReaderFollowsTheFiles) {
  use_version_2("/a");
  write("/sys/fs/cgroup/a/memory.max", "4294967296\n");
  write("/sys/fs/cgroup/a/memory.current", "1073741824\n");
  const RoomReader reader(root_);
  const auto before = reader.room();

  write("/sys/fs/cgroup/a/memory.current", "2147483648\n");

  EXPECT_EQ(before, 3_GiB);
  EXPECT_EQ(reader.room(), 2_GiB);
}

TEST_F(FakeRoot, TheRoomReaderSaysNothingWhereAFigureIsMissing) {
  use_version_2("/a");
  write("/sys/fs/cgroup/a/memory.max", "4294967296\n");

  EXPECT_EQ(RoomReader(root_).room(), std::nullopt);
  remove("/proc/meminfo");
  EXPECT_EQ(RoomReader(root_).room(), std::nullopt);
}

TEST(HostLimits, OfThisMachineAreKnownAndConsistent) {
  const HostLimits limits = read_host_limits();
  struct rlimit files = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);

  EXPECT_TRUE(limits.memory_total.value().has_value()) << limits.memory_total.reason();
  EXPECT_TRUE(limits.memory_available.value().has_value());
  EXPECT_TRUE(limits.mappings.value().has_value());
  EXPECT_EQ(limits.descriptors.value().value_or(RLIM_INFINITY), files.rlim_cur);
  EXPECT_LE(limits.effective_limit().value(), limits.memory_total.value());
}

TEST(RoomReader, ClosesItsFilesAndMovesThem) {
  const auto open = test::open_descriptors();
  {
    RoomReader first;
    const auto used = test::open_descriptors();
    RoomReader second = std::move(first);
    first = std::move(second);
    EXPECT_EQ(test::open_descriptors(), used);
    EXPECT_TRUE(first.room().has_value());
  }

  EXPECT_EQ(test::open_descriptors(), open);
}

}  // namespace
}  // namespace memstrata::host
