// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/trace/trace_reader.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"
#include "unit/frontend/trace/trace_texts.hpp"

namespace memstrata {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using test::line;
using test::Outcome;
using test::read_text;
using test::TextSource;

constexpr const char* azure_header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

TraceReader open_text(std::string text, const TraceReadOptions& options = {}) {
  auto reader = TraceReader::from(std::make_unique<TextSource>(std::move(text)), options);
  EXPECT_TRUE(reader.has_value());
  return *std::move(reader);
}

TEST(TraceReaderNext, ReadsMooncakeRecords) {
  TraceReader reader = open_text(line(0, 700, 5, {0, 1}) + line(3000, 512, 0, {0}));

  EXPECT_EQ(reader.format(), TraceFormat::mooncake);
  EXPECT_EQ(reader.name(), "test.trace");
  const auto records = read_all(reader);

  ASSERT_TRUE(records.has_value());
  ASSERT_EQ(records->size(), 2U);
  EXPECT_EQ((*records)[0].arrival, nanoseconds(0));
  EXPECT_EQ((*records)[0].input_tokens, 700U);
  EXPECT_EQ((*records)[0].output_tokens, 5U);
  EXPECT_EQ((*records)[0].blocks, (std::vector<std::uint64_t>{0, 1}));
  EXPECT_EQ((*records)[1].arrival, milliseconds(3000));
  EXPECT_EQ(reader.records(), 2U);
  EXPECT_EQ(reader.consumed(),
            Bytes{line(0, 700, 5, {0, 1}).size() + line(3000, 512, 0, {0}).size()});
}

TEST(TraceReaderNext, CountsArrivalsFromTheFirstRecord) {
  const Outcome outcome = read_text(line(5000, 1, 1, {1}) + line(5007, 1, 1, {1}));

  ASSERT_EQ(outcome.records.size(), 2U);
  EXPECT_EQ(outcome.records[0].arrival, nanoseconds(0));
  EXPECT_EQ(outcome.records[1].arrival, milliseconds(7));
}

TEST(TraceReaderNext, PassesOverFieldsThatItDoesNotKnow) {
  const Outcome outcome = read_text(
      R"({"x": [{"timestamp": -5}, "]"], "timestamp": 1, "hash_ids": [3], "input_length": 2, )"
      R"("output_length": 4, "y": {"hash_ids": 1.5}, "token_ids": "no"})"
      "\n");

  EXPECT_FALSE(outcome.error.has_value());
  ASSERT_EQ(outcome.records.size(), 1U);
  EXPECT_EQ(outcome.records[0].blocks, (std::vector<std::uint64_t>{3}));
}

TEST(TraceReaderNext, PassesOverBlankLinesCarriageReturnsAndAByteOrderMark) {
  std::string text = line(0, 1, 2, {1});
  text.insert(text.size() - 1, "\r");

  const Outcome outcome = read_text("\xef\xbb\xbf" + text + "\r\n  \n" + text + " \n\n ");

  EXPECT_FALSE(outcome.error.has_value());
  EXPECT_EQ(outcome.records.size(), 2U);
}

TEST(TraceReaderNext, TakesTheLargestNumbers) {
  const Outcome outcome = read_text(
      "{\"memstrata_trace\":1}\n"
      "{\"timestamp\":0,\"input_length\":2147483648,\"output_length\":2147483648}\n"
      "{\"timestamp\":2147483648,\"input_length\":1,\"output_length\":0,"
      "\"hash_ids\":[2147483648]}\n");

  EXPECT_FALSE(outcome.error.has_value());
  ASSERT_EQ(outcome.records.size(), 2U);
  EXPECT_EQ(outcome.records[0].input_tokens, 1ULL << 31U);
  EXPECT_EQ(outcome.records[1].arrival, milliseconds(1LL << 31U));
}

TEST(TraceReaderNext, StopsBehindTheRecordsThatWereAskedFor) {
  TraceReader reader =
      open_text(line(0, 1, 1, {1}) + line(1, 1, 1, {1}) + "garbage", {.max_records = 2});

  const auto records = read_all(reader);

  ASSERT_TRUE(records.has_value());
  EXPECT_EQ(records->size(), 2U);
}

TEST(TraceReaderNext, GoesOnBehindABadRecord) {
  TraceReader reader = open_text(line(0, 1, 1, {1}) + "bad\n" + line(1, 1, 1, {1}));
  ASSERT_TRUE(reader.next().has_value());

  ASSERT_FALSE(reader.next().has_value());
  const auto third = reader.next();

  ASSERT_TRUE(third.has_value());
  ASSERT_TRUE(third->has_value());
  EXPECT_EQ((*third)->arrival, milliseconds(1));
  EXPECT_EQ(reader.skipped(), 0U);
}

TEST(TraceReaderNext, ATraceOfBadRecordsOnlyIsEmptyWithTheirNumber) {
  const Outcome outcome = read_text("{}\n{}\n{}\n", {.skip_bad = true});

  const auto* error = outcome.as<EmptyTrace>();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->source.view(), "test.trace");
  EXPECT_EQ(error->skipped, 3U);
}

TEST(TraceReaderNext, AFinalErrorIsReportedAgain) {
  TraceReader reader = open_text("{}\n", {.skip_bad = true});
  ASSERT_FALSE(reader.next().has_value());

  const auto again = reader.next();

  ASSERT_FALSE(again.has_value());
  EXPECT_TRUE(std::holds_alternative<EmptyTrace>(again.error().kind));
}

class TraceReaderEmpty : public testing::TestWithParam<const char*> {};

TEST_P(TraceReaderEmpty, IsATypedError) {
  const Outcome outcome = read_text(GetParam());

  const auto* error = outcome.as<EmptyTrace>();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->skipped, 0U);
  EXPECT_EQ(outcome.error->message(), "test.trace holds no record; expected at least one");
}

INSTANTIATE_TEST_SUITE_P(Texts,
                         TraceReaderEmpty,
                         testing::Values("",
                                         "\n \r\n",
                                         "\xef\xbb\xbf",
                                         "{\"memstrata_trace\":1}\n",
                                         "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"));

class TraceReaderForeign : public testing::TestWithParam<std::string> {};

TEST_P(TraceReaderForeign, IsAnUnknownFormat) {
  const Outcome outcome = read_text(GetParam(), {.skip_bad = true});

  const auto* error = outcome.as<UnknownTraceFormat>();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->source.view(), "test.trace");
  EXPECT_FALSE(error->found.empty());
}

INSTANTIATE_TEST_SUITE_P(Texts,
                         TraceReaderForeign,
                         testing::Values(std::string("hello\n"),
                                         std::string("[{}]\n"),
                                         std::string("TIMESTAMP,ContextTokens\n"),
                                         std::string("Timestamp,Model,Request tokens\n"),
                                         std::string("\x7f\x45LF\x02\x01\x01\0\0\n", 10),
                                         std::string(300'000, '\0')));

TEST(TraceReaderAzure, ReadsTimesToTheNanosecond) {
  TraceReader reader = open_text(std::string(azure_header) +
                                 "2023-12-31 23:59:59.6805900,374,44\r\n"
                                 "2024-01-01T00:00:00.680590001Z,1,0\r\n"
                                 "2024-01-01 02:00:01+02:00,2147483648,7\n"
                                 "2023-12-31 20:00:02.5-04:00,5,5\n");

  EXPECT_EQ(reader.format(), TraceFormat::azure);
  const auto records = read_all(reader);

  ASSERT_TRUE(records.has_value()) << records.error().message();
  ASSERT_EQ(records->size(), 4U);
  EXPECT_EQ((*records)[0].arrival, nanoseconds(0));
  EXPECT_EQ((*records)[0].input_tokens, 374U);
  EXPECT_EQ((*records)[0].output_tokens, 44U);
  EXPECT_TRUE((*records)[0].blocks.empty());
  EXPECT_EQ((*records)[1].arrival, nanoseconds(1'000'000'001));
  EXPECT_EQ((*records)[2].arrival, nanoseconds(1'319'410'000));
  EXPECT_EQ((*records)[3].arrival, nanoseconds(2'819'410'000));
}

TEST(TraceReaderAzure, CountsTheLeapDay) {
  const Outcome outcome = read_text(std::string(azure_header) +
                                    "2024-02-28 00:00:00,1,1\n2024-02-29 00:00:00,1,1\n"
                                    "2024-03-01 00:00:00,1,1\n");

  ASSERT_EQ(outcome.records.size(), 3U);
  EXPECT_EQ(outcome.records[2].arrival, std::chrono::hours(48));
}

struct BadRow {
  const char* row;
  TraceDefect defect;
  const char* field;
  const char* found;
};

class TraceReaderAzureRow : public testing::TestWithParam<BadRow> {};

TEST_P(TraceReaderAzureRow, IsRefusedWithItsField) {
  const BadRow& bad = GetParam();

  const Outcome outcome = read_text(std::string(azure_header) + bad.row + "\n");

  const auto* error = outcome.as<BadTraceRecord>();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->at.line, 2U);
  EXPECT_EQ(error->at.offset, Bytes{40});
  EXPECT_EQ(to_string(error->defect), to_string(bad.defect));
  EXPECT_EQ(error->field.view(), bad.field);
  EXPECT_EQ(error->found.view(), bad.found);
  EXPECT_FALSE(error->expected.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Rows,
    TraceReaderAzureRow,
    testing::Values(
        BadRow{"2023-11-16 18:15:46,1", TraceDefect::malformed, "", "2 in '2023-11-16 18:15:46,1'"},
        BadRow{"a,1,2,3", TraceDefect::malformed, "", "4 in 'a,1,2,3'"},
        BadRow{"yesterday,1,2", TraceDefect::wrong_type, "TIMESTAMP", "'yesterday'"},
        BadRow{",1,2", TraceDefect::wrong_type, "TIMESTAMP", "''"},
        BadRow{"2023-02-29 00:00:00,1,2",
               TraceDefect::wrong_type,
               "TIMESTAMP",
               "'2023-02-29 00:00:00'"},
        BadRow{"2023-13-01 00:00:00,1,2",
               TraceDefect::wrong_type,
               "TIMESTAMP",
               "'2023-13-01 00:00:00'"},
        BadRow{"1969-12-31 00:00:00,1,2",
               TraceDefect::wrong_type,
               "TIMESTAMP",
               "'1969-12-31 00:00:00'"},
        BadRow{"2023-01-01 24:00:00,1,2",
               TraceDefect::wrong_type,
               "TIMESTAMP",
               "'2023-01-01 24:00:00'"},
        BadRow{"2023-01-01 00:60:00,1,2",
               TraceDefect::wrong_type,
               "TIMESTAMP",
               "'2023-01-01 00:60:00'"},
        BadRow{"2023-01-01 00:00:60,1,2",
               TraceDefect::wrong_type,
               "TIMESTAMP",
               "'2023-01-01 00:00:60'"},
        BadRow{"2023-01-01 00:00:00.,1,2",
               TraceDefect::wrong_type,
               "TIMESTAMP",
               "'2023-01-01 00:00:00.'"},
        BadRow{"2023-01-01 00:00:00.1234567890,1,2",
               TraceDefect::wrong_type,
               "TIMESTAMP",
               "'2023-01-01 00:00:00.1234567890'"},
        BadRow{"2023-01-01 00:00:00 +01,1,2",
               TraceDefect::wrong_type,
               "TIMESTAMP",
               "'2023-01-01 00:00:00 +01'"},
        BadRow{"2023-01-01 00:00:00-0100,1,2",
               TraceDefect::wrong_type,
               "TIMESTAMP",
               "'2023-01-01 00:00:00-0100'"},
        BadRow{"2023-01-01 00:00:00Zulu,1,2",
               TraceDefect::wrong_type,
               "TIMESTAMP",
               "'2023-01-01 00:00:00Zulu'"},
        BadRow{"2023-01-01 00:00:00,1.5,2", TraceDefect::not_an_integer, "ContextTokens", "'1.5'"},
        BadRow{"2023-01-01 00:00:00,,2", TraceDefect::not_an_integer, "ContextTokens", "''"},
        BadRow{"2023-01-01 00:00:00,1, 2", TraceDefect::not_an_integer, "GeneratedTokens", "' 2'"},
        BadRow{"2023-01-01 00:00:00,-1,2", TraceDefect::negative, "ContextTokens", "'-1'"},
        BadRow{"2023-01-01 00:00:00,1,2147483649",
               TraceDefect::too_large,
               "GeneratedTokens",
               "'2147483649'"},
        BadRow{"2023-01-01 00:00:00,99999999999999999999999,2",
               TraceDefect::too_large,
               "ContextTokens",
               "'99999999999999999999999'"},
        BadRow{"2023-01-01 00:00:00,0,2", TraceDefect::empty_prompt, "input_length", "0"}));

TEST(TraceReaderAzure, ARowTooFarFromTheFirstIsAbsurd) {
  const Outcome outcome =
      read_text(std::string(azure_header) + "2023-01-01 00:00:00,1,1\n2023-01-26 00:00:00,1,1\n");

  const auto* error = outcome.as<BadTraceRecord>();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->defect, TraceDefect::too_large);
  EXPECT_EQ(error->expected.view(), "at most 2147483648 ms after the first record");
  EXPECT_EQ(error->found.view(), "2160000000 ms after it");
}

TEST(TraceReaderAzure, AHeaderWithoutLineEndIsCut) {
  const Outcome outcome = read_text("TIMESTAMP,ContextTokens,GeneratedTokens");

  const auto* error = outcome.as<BadTraceRecord>();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->defect, TraceDefect::unterminated_line);
  EXPECT_EQ(error->at.line, 1U);
}

TEST(TraceReaderOurs, ReadsHeaderTenantAndSession) {
  TraceReader reader = open_text(
      R"({"memstrata_trace":1,"time_unit":"us","block_tokens":512,"synthetic":true,"made_by":"me"})"
      "\n"
      R"({"timestamp":1,"input_length":1,"output_length":2,"hash_ids":[7],"tenant":"ä","session":5})"
      "\n"
      R"({"timestamp":3,"input_length":600,"output_length":2,"tenant":null})"
      "\n");

  EXPECT_EQ(reader.format(), TraceFormat::memstrata);
  EXPECT_EQ(reader.header().unit, TraceTimeUnit::microseconds);
  EXPECT_TRUE(reader.header().synthetic);
  EXPECT_EQ(reader.header().made_by, "me");
  const auto records = read_all(reader);

  ASSERT_TRUE(records.has_value()) << records.error().message();
  ASSERT_EQ(records->size(), 2U);
  EXPECT_EQ((*records)[0].tenant, "ä");
  EXPECT_EQ((*records)[0].session, "5");
  EXPECT_EQ((*records)[1].arrival, std::chrono::microseconds(2));
  EXPECT_TRUE((*records)[1].blocks.empty());
  EXPECT_TRUE((*records)[1].tenant.empty());
}

TEST(TraceReaderOurs, IsRecognisedByASessionWithoutAHeader) {
  const TraceReader reader =
      open_text("{\"timestamp\":0,\"input_length\":1,\"output_length\":2,\"session\":\"a\"}\n");

  EXPECT_EQ(reader.format(), TraceFormat::memstrata);
}

struct BadHeader {
  const char* text;
  TraceDefect defect;
  const char* field;
  const char* found;
};

class TraceReaderHeader : public testing::TestWithParam<BadHeader> {};

TEST_P(TraceReaderHeader, OfAnotherKindIsRefusedEvenWhenSkipping) {
  const BadHeader& bad = GetParam();

  const Outcome outcome = read_text(std::string(bad.text) + "\n", {.skip_bad = true});

  const auto* error = outcome.as<BadTraceRecord>();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->at.line, 1U);
  EXPECT_EQ(to_string(error->defect), to_string(bad.defect));
  EXPECT_EQ(error->field.view(), bad.field);
  EXPECT_EQ(error->found.view(), bad.found);
}

INSTANTIATE_TEST_SUITE_P(Headers,
                         TraceReaderHeader,
                         testing::Values(BadHeader{R"({"memstrata_trace":2})",
                                                   TraceDefect::wrong_version,
                                                   "memstrata_trace",
                                                   "version 2"},
                                         BadHeader{R"({"memstrata_trace":null})",
                                                   TraceDefect::wrong_version,
                                                   "memstrata_trace",
                                                   "none"},
                                         BadHeader{R"({"memstrata_trace":"1"})",
                                                   TraceDefect::not_an_integer,
                                                   "memstrata_trace",
                                                   "'1'"},
                                         BadHeader{R"({"memstrata_trace":1,"block_tokens":256})",
                                                   TraceDefect::wrong_version,
                                                   "block_tokens",
                                                   "256"},
                                         BadHeader{R"({"memstrata_trace":1,"time_unit":"s"})",
                                                   TraceDefect::wrong_version,
                                                   "time_unit",
                                                   "'s'"},
                                         BadHeader{R"({"memstrata_trace":1,"synthetic":1})",
                                                   TraceDefect::wrong_type,
                                                   "synthetic",
                                                   "1"}));

TEST(TraceReaderFrom, ReadsAStream) {
  std::istringstream stream(line(0, 1, 2, {1}));

  auto reader = TraceReader::from(stream, "a stream");

  ASSERT_TRUE(reader.has_value());
  EXPECT_EQ(reader->name(), "a stream");
  const auto records = read_all(*reader);
  ASSERT_TRUE(records.has_value());
  EXPECT_EQ(records->size(), 1U);
}

}  // namespace
}  // namespace memstrata
