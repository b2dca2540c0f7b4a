// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/trace_error.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <initializer_list>
#include <string>

#include "memstrata/core/bytes.hpp"

namespace memstrata::trace_error_test {
namespace {

void expect_parts(const TraceError& error, std::initializer_list<const char*> parts) {
  const std::string message = error.message();
  for (const char* part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

[[nodiscard]] TracePlace place() {
  return {.source = "week.jsonl", .line = 7, .offset = 812_B};
}

TEST(TraceErrorMessage, NamesPlaceFieldAndBothValuesOfABadRecord) {
  expect_parts(BadTraceRecord{.at = place(),
                              .defect = TraceDefect::negative,
                              .field = "input_length",
                              .expected = "0 or more",
                              .found = "-3"},
               {"week.jsonl line 7 (byte 812): input_length: expected 0 or more, found -3; ",
                "skip bad records"});
}

TEST(TraceErrorMessage, OfAWholeLineNamesNoField) {
  expect_parts(BadTraceRecord{.at = place(),
                              .defect = TraceDefect::malformed,
                              .field = {},
                              .expected = "an object",
                              .found = "["},
               {"(byte 812): expected an object, found [; "});
}

TEST(TraceErrorMessage, SaysWhatToDoAboutEachKindOfDefect) {
  const auto about = [](TraceDefect defect) {
    return BadTraceRecord{
        .at = place(), .defect = defect, .field = {}, .expected = "a", .found = "b"};
  };

  expect_parts(about(TraceDefect::too_large), {"correct the record"});
  expect_parts(about(TraceDefect::time_went_back), {"sort the trace by arrival"});
  expect_parts(about(TraceDefect::parent_changed), {"number the blocks again"});
  expect_parts(about(TraceDefect::fill_changed), {"number the blocks again"});
  expect_parts(about(TraceDefect::unterminated_line), {"fetch it again"});
  expect_parts(about(TraceDefect::wrong_version), {"the version of memstrata that wrote it"});
}

TEST(TraceErrorMessage, TellsATraceWithoutRecordsFromOneWithoutGoodOnes) {
  EXPECT_EQ(TraceError(EmptyTrace{.source = "t", .skipped = 0}).message(),
            "t holds no record; expected at least one");
  expect_parts(EmptyTrace{.source = "t", .skipped = 1}, {"no good record", "all 1 were bad"});
  expect_parts(EmptyTrace{.source = "t", .skipped = 12}, {"no good record", "all 12 were bad"});
}

TEST(TraceErrorMessage, NamesTheNumbersOfFilesArchivesAndMemory) {
  expect_parts(
      TraceUnavailable{
          .source = "t", .call = "open", .code = ENOENT, .reason = "No such file or directory"},
      {"t cannot be read: open: No such file or directory (os error 2)"});
  expect_parts(
      BrokenTraceArchive{.source = "t.gz", .codec = "gzip", .offset = 4_KiB, .reason = "cut"},
      {"t.gz: the gzip archive is damaged after 4096 bytes of text: cut"});
  expect_parts(TraceTooLarge{.at = place(), .distinct_blocks = 77, .reason = "no memory"},
               {"week.jsonl line 7 (byte 812): no memory after 77 different block ids"});
  expect_parts(TraceNotWritten{.target = "out", .records = 5, .reason = "disk full"},
               {"out could not be written after 5 records: disk full"});
  expect_parts(UnknownTraceFormat{.source = "t", .found = "PK"},
               {"t is no trace", "TIMESTAMP,ContextTokens,GeneratedTokens", "found PK"});
}

}  // namespace
}  // namespace memstrata::trace_error_test
