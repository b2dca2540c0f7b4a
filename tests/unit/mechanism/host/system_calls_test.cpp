// SPDX-License-Identifier: Apache-2.0
#include "memstrata/mechanism/host/system_calls.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "support/process_view.hpp"
#include "support/resident_bytes.hpp"

namespace memstrata::host {
namespace {

[[nodiscard]] SystemResult call(const SystemCall& what) {
  return real_system_calls()->execute(what);
}

[[nodiscard]] std::int32_t file_of(const SystemResult& made) {
  return static_cast<std::int32_t>(made.value);
}

TEST(SystemCalls, AFailureCarriesItsErrnoAndNoValue) {
  const SystemResult result = call({.kind = SystemCallKind::close_file, .descriptor = 1 << 20});

  EXPECT_FALSE(result.is_ok());
  EXPECT_EQ(result.error, EBADF);
}

TEST(SystemCalls, IfVacantNeverReplacesWhatIsThere) {
  const std::uint64_t page = page_size().value;
  const SystemResult first =
      call({.kind = SystemCallKind::map, .protection = Protection::read_write, .length = page});
  ASSERT_TRUE(first.is_ok());

  const SystemResult second = call({.kind = SystemCallKind::map,
                                    .placement = Placement::if_vacant,
                                    .address = first.value,
                                    .length = page});

  EXPECT_EQ(second.error, EEXIST);
  EXPECT_TRUE(test::is_writable(DeviceAddress{first.value}));
  EXPECT_TRUE(
      call({.kind = SystemCallKind::unmap, .address = first.value, .length = page}).is_ok());
}

TEST(SystemCalls, AFileGrowsIsReadHolesAndAnswersWithItsBytes) {
  const std::uint64_t page = page_size().value;
  const std::int32_t file = file_of(call({.kind = SystemCallKind::create_file}));
  ASSERT_TRUE(
      call({.kind = SystemCallKind::resize_file, .descriptor = file, .length = 4 * page}).is_ok());
  ASSERT_EQ(pwrite(file, "abc", 3, static_cast<off_t>(page)), 3);
  std::string text(3, ' ');

  const auto held = call({.kind = SystemCallKind::file_bytes, .descriptor = file});
  const auto read = call({.kind = SystemCallKind::read_file,
                          .descriptor = file,
                          .address = reinterpret_cast<std::uintptr_t>(text.data()),
                          .length = 3,
                          .offset = page});
  const auto punched = call(
      {.kind = SystemCallKind::punch_hole, .descriptor = file, .length = page, .offset = page});
  const auto left = call({.kind = SystemCallKind::file_bytes, .descriptor = file});
  EXPECT_TRUE(call({.kind = SystemCallKind::close_file, .descriptor = file}).is_ok());

  EXPECT_EQ(held.value, page);
  EXPECT_EQ(read.value, 3U);
  EXPECT_EQ(text, "abc");
  EXPECT_TRUE(punched.is_ok());
  EXPECT_EQ(left.value, 0U);
}

TEST(SystemCalls, ASealedFileCanBeNeitherWrittenNorResized) {
  const std::int32_t file = file_of(call({.kind = SystemCallKind::create_file, .sealable = true}));
  ASSERT_TRUE(
      call({.kind = SystemCallKind::resize_file, .descriptor = file, .length = page_size().value})
          .is_ok());

  ASSERT_TRUE(call({.kind = SystemCallKind::seal_file, .descriptor = file}).is_ok());

  EXPECT_EQ(pwrite(file, "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(call({.kind = SystemCallKind::resize_file, .descriptor = file, .length = 0}).error,
            EPERM);
  EXPECT_TRUE(call({.kind = SystemCallKind::close_file, .descriptor = file}).is_ok());
}

TEST(SystemCalls, AReopenedDescriptorCannotMapForWriting) {
  const std::int32_t file = file_of(call({.kind = SystemCallKind::create_file}));
  ASSERT_TRUE(
      call({.kind = SystemCallKind::resize_file, .descriptor = file, .length = page_size().value})
          .is_ok());
  const std::int32_t reader =
      file_of(call({.kind = SystemCallKind::reopen_read_only, .descriptor = file}));

  const SystemResult mapped = call({.kind = SystemCallKind::map,
                                    .protection = Protection::read_write,
                                    .descriptor = reader,
                                    .length = page_size().value});

  EXPECT_EQ(mapped.error, EACCES);
  EXPECT_TRUE(call({.kind = SystemCallKind::close_file, .descriptor = reader}).is_ok());
  EXPECT_TRUE(call({.kind = SystemCallKind::close_file, .descriptor = file}).is_ok());
}

TEST(SystemCalls, RaisingTheDescriptorLimitReachesTheHardOne) {
  struct rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit low = {.rlim_cur = 256, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);

  const SystemResult raised = call({.kind = SystemCallKind::raise_descriptor_limit});

  struct rlimit after = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(raised.value, before.rlim_max);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(SystemCalls, EveryKindHasTheNameOfItsFunction) {
  EXPECT_STREQ(function_name(SystemCallKind::map), "mmap");
  EXPECT_STREQ(function_name(SystemCallKind::unmap), "munmap");
  EXPECT_STREQ(function_name(SystemCallKind::protect), "mprotect");
  EXPECT_STREQ(function_name(SystemCallKind::advise), "madvise");
  EXPECT_STREQ(function_name(SystemCallKind::create_file), "memfd_create");
  EXPECT_STREQ(function_name(SystemCallKind::read_file), "pread");
}

}  // namespace
}  // namespace memstrata::host
