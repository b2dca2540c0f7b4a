// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/replay/raw_replay.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <variant>

#include "memstrata/core/error/replay_error.hpp"
#include "real_rig.hpp"
#include "support/process_view.hpp"

namespace memstrata::test {
namespace {

/// A file of its own that goes with the test.
class RawReplay : public testing::Test {
 protected:
  ~RawReplay() override {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  void record_run(ReplayPolicy policy) const {
    ReplayOptions options = real_options(policy, tight_limit(policy));
    options.record_calls = path_;
    static_cast<void>(replayed(small_trace(), options));
  }

  void write(const std::string& text) const { std::ofstream(path_) << text; }

  [[nodiscard]] std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  /// The line at which the file is refused.
  [[nodiscard]] std::uint64_t bad_line() const {
    const auto result = run_raw_replay(path_);
    EXPECT_FALSE(result.has_value());
    const auto* bad = std::get_if<BadRecording>(&result.error().kind);
    return bad == nullptr ? 0 : bad->line;
  }

  std::string path_ =
      (std::filesystem::temp_directory_path() / ("memstrata-calls-" + std::to_string(::getpid())))
          .string();
};

/// Mappings that the heap may add meanwhile; a sanitizer's heap keeps what was freed and adds more.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t heap_mappings = 16;
#else
constexpr std::size_t heap_mappings = 2;
#endif

// The checksum is that of the recorded fills, or the run would be refused; everything is given back.
TEST_F(RawReplay, RepeatsTheCallsAndFillsOfEveryPolicy) {
  for (const ReplayPolicy policy : policies_for_all(ReplayBacking::real)) {
    record_run(policy);
    static_cast<void>(run_raw_replay(path_));  // what the heap needs for it is there afterwards
    const std::size_t descriptors = open_descriptors();
    const std::size_t mappings = kernel_mappings_of_process().size();

    const auto result = run_raw_replay(path_);

    ASSERT_TRUE(result.has_value()) << result.error().message();
    EXPECT_GT(result->calls, 5U);
    EXPECT_GT(result->fills, 100U);
    EXPECT_GT(result->filled, tokens(4'000));
    EXPECT_NE(result->checksum, 0U);
    EXPECT_GT(result->recorded.count(), 0);
    EXPECT_EQ(open_descriptors(), descriptors);
    EXPECT_LE(kernel_mappings_of_process().size(), mappings + heap_mappings);
  }
}

// Checks and kernel samples are no work: a run with checks records the same steps.
TEST_F(RawReplay, LeavesOutWhatOnlyLooks) {
  ReplayOptions options = real_options(ReplayPolicy::virtual_memory, g * 9);
  options.record_calls = path_;
  static_cast<void>(replayed(small_trace(), options));
  const std::string checked = text();
  options.verify = false;
  static_cast<void>(replayed(small_trace(), options));
  const std::string unchecked = text();

  EXPECT_EQ(std::ranges::count(checked, '\n'), std::ranges::count(unchecked, '\n'));
  EXPECT_EQ(checked.find("fstat"), std::string::npos);
}

TEST_F(RawReplay, RefusesDamagedFilesWithTheLine) {
  record_run(ReplayPolicy::virtual_memory);
  const std::string sound = text();
  const std::string header = "memstrata-replay-calls 1\n";
  ASSERT_TRUE(sound.starts_with(header));

  write("something else\n");
  EXPECT_EQ(bad_line(), 1U);
  write(header + "x 1 2 3\n");
  EXPECT_EQ(bad_line(), 2U);
  write(header + "f 4096 64 1 64\n");
  EXPECT_EQ(bad_line(), 2U);
  write(header + "f 4096 64 1 64 0\n");  // nothing is mapped there
  EXPECT_EQ(bad_line(), 2U);
  write(header + "f 4096 63 1 64 0\n");
  EXPECT_EQ(bad_line(), 2U);
  write(header + "s close 11 0 0 0 9 0 0 0 0 0\n");  // no such descriptor
  EXPECT_EQ(bad_line(), 2U);
  write(header + "s mmap 77 0 0 0 -1 0 0 4096 0 4096\n");
  EXPECT_EQ(bad_line(), 2U);
  write(header + "e 5 0 0\n");
  EXPECT_EQ(bad_line(), 2U);
  write(sound.substr(0, sound.rfind("\ne ") + 1));
  EXPECT_EQ(bad_line(), static_cast<std::uint64_t>(std::ranges::count(sound, '\n')));
  write(sound + "s\n");
  EXPECT_GT(bad_line(), 2U);
}

TEST_F(RawReplay, RefusesAFileThatIsNotThere) {
  const auto result = run_raw_replay(path_ + "/missing");

  ASSERT_FALSE(result.has_value());
  EXPECT_NE(std::get_if<RecordingFailed>(&result.error().kind), nullptr);
  EXPECT_FALSE(result.error().is_usage_error());
}

TEST_F(RawReplay, CannotBeRecordedWhereNoFileCanBe) {
  ReplayOptions options = real_options(ReplayPolicy::virtual_memory, g * 9);
  options.record_calls = path_ + "/missing/calls";

  const auto report = run_replay(small_trace(), options);

  ASSERT_FALSE(report.has_value());
  EXPECT_NE(std::get_if<RecordingFailed>(&report.error().kind), nullptr);
}

}  // namespace
}  // namespace memstrata::test
