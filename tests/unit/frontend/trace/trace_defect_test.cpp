// SPDX-License-Identifier: Apache-2.0
// Every way in which one record can be bad, with the fields of its error.

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "unit/frontend/trace/trace_texts.hpp"

namespace memstrata {
namespace {

using test::line;
using test::Outcome;
using test::read_text;

const std::string good = line(0, 700, 5, {10, 11});

/// One bad line behind a good one.
struct BadLine {
  const char* name;
  std::string text;
  TraceDefect defect;
  std::string field;
  std::string expected;
  std::string found;
};

std::ostream& operator<<(std::ostream& out, const BadLine& bad) {
  return out << bad.name;
}

std::vector<BadLine> bad_lines() {
  const std::string to_largest = "an integer from 0 to 2147483648";
  const std::string from_one = "an integer from 1 to 2147483648";
  const std::string object = "one object of JSON";
  const std::string many(65, '[');
  return {
      {"NoJson", "hello\n", TraceDefect::malformed, "", object, "'hello' at byte 1 of the line"},
      {"Cut", "{\"timestamp\": 1\n", TraceDefect::malformed, "", object, "the end of the line"},
      {"Behind", "{} x\n", TraceDefect::malformed, "", object, "'x' at byte 4 of the line"},
      {"List", "[1]\n", TraceDefect::malformed, "", object, "a list"},
      {"Scalar", "17\n", TraceDefect::malformed, "", object, "'17'"},
      {"NoUtf8",
       "{\"a\": \"\xff\"}\n",
       TraceDefect::malformed,
       "",
       object,
       "'\\xff\"}' at byte 8 of the line"},
      {"ZeroByte",
       std::string("{\"a\": \0}\n", 9),
       TraceDefect::malformed,
       "",
       object,
       "'\\x00}' at byte 7 of the line"},
      {"NoTime", "{}\n", TraceDefect::missing_field, "timestamp", to_largest, "no such field"},
      {"NoInput",
       "{\"timestamp\": 1}\n",
       TraceDefect::missing_field,
       "input_length",
       from_one,
       "no such field"},
      {"NoOutput",
       "{\"timestamp\": 1, \"input_length\": 1}\n",
       TraceDefect::missing_field,
       "output_length",
       to_largest,
       "no such field"},
      {"NoIds",
       "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\n",
       TraceDefect::missing_field,
       "hash_ids",
       "one id per block of the prompt",
       "no such field"},
      {"NullTime",
       "{\"timestamp\": null}\n",
       TraceDefect::missing_field,
       "timestamp",
       to_largest,
       "no such field"},
      {"Twice",
       "{\"timestamp\": 1, \"timestamp\": 1}\n",
       TraceDefect::repeated_field,
       "timestamp",
       "it once",
       "it twice"},
      {"Fraction",
       "{\"timestamp\": 1.5}\n",
       TraceDefect::not_an_integer,
       "timestamp",
       to_largest,
       "'1.5'"},
      {"WholeFraction",
       "{\"timestamp\": 1.0}\n",
       TraceDefect::not_an_integer,
       "timestamp",
       to_largest,
       "'1.0'"},
      {"Exponent",
       "{\"input_length\": 1e3}\n",
       TraceDefect::not_an_integer,
       "input_length",
       from_one,
       "'1e3'"},
      {"Text",
       "{\"output_length\": \"7\"}\n",
       TraceDefect::not_an_integer,
       "output_length",
       to_largest,
       "'7'"},
      {"Truth",
       "{\"timestamp\": true}\n",
       TraceDefect::not_an_integer,
       "timestamp",
       to_largest,
       "true"},
      {"ListForTime",
       "{\"timestamp\": [1]}\n",
       TraceDefect::not_an_integer,
       "timestamp",
       to_largest,
       "a list"},
      {"FractionInIds",
       "{\"hash_ids\": [1, 2.5]}\n",
       TraceDefect::not_an_integer,
       "hash_ids[1]",
       to_largest,
       "'2.5'"},
      {"NullInIds",
       "{\"hash_ids\": [null]}\n",
       TraceDefect::not_an_integer,
       "hash_ids[0]",
       to_largest,
       "null"},
      {"ListInIds",
       "{\"hash_ids\": [[1]]}\n",
       TraceDefect::not_an_integer,
       "hash_ids[0]",
       to_largest,
       "a list"},
      {"NumberForIds", "{\"hash_ids\": 5}\n", TraceDefect::wrong_type, "hash_ids", "a list", "5"},
      {"ObjectForIds",
       "{\"hash_ids\": {}}\n",
       TraceDefect::wrong_type,
       "hash_ids",
       "a list",
       "an object"},
      {"ListForTenant",
       "{\"tenant\": []}\n",
       TraceDefect::wrong_type,
       "tenant",
       "a text of at most 256 bytes",
       "a list"},
      {"BeyondEveryDouble",
       "{\"timestamp\": 1e999}\n",
       TraceDefect::not_an_integer,
       "timestamp",
       to_largest,
       "'1e999'"},
      {"BeyondEveryDoubleElsewhere",
       "{\"x\": 1e999}\n",
       TraceDefect::malformed,
       "",
       object,
       "'9}' at byte 11 of the line"},
      {"ManyDigits",
       "{\"timestamp\": " + std::string(400, '7') + "}\n",
       TraceDefect::too_large,
       "timestamp",
       to_largest,
       "'" + std::string(48, '7') + "'..."},
      {"Negative", "{\"timestamp\": -1}\n", TraceDefect::negative, "timestamp", to_largest, "-1"},
      {"NegativeId",
       "{\"hash_ids\": [-7]}\n",
       TraceDefect::negative,
       "hash_ids[0]",
       to_largest,
       "-7"},
      {"FarBelow",
       "{\"timestamp\": -99999999999999999999}\n",
       TraceDefect::negative,
       "timestamp",
       to_largest,
       "'-99999999999999999999'"},
      {"TooLarge",
       "{\"input_length\": 2147483649}\n",
       TraceDefect::too_large,
       "input_length",
       from_one,
       "2147483649"},
      {"FarTooLarge",
       "{\"output_length\": 99999999999999999999}\n",
       TraceDefect::too_large,
       "output_length",
       to_largest,
       "'99999999999999999999'"},
      {"LargeId",
       "{\"hash_ids\": [4294967296]}\n",
       TraceDefect::too_large,
       "hash_ids[0]",
       to_largest,
       "4294967296"},
      {"LateTime",
       "{\"timestamp\": 2147483649}\n",
       TraceDefect::too_large,
       "timestamp",
       to_largest,
       "2147483649"},
      {"LongTenant",
       "{\"tenant\": \"" + std::string(257, 'a') + "\"}\n",
       TraceDefect::too_large,
       "tenant",
       "a text of at most 256 bytes",
       "257 bytes"},
      {"EmptyPrompt", line(1, 0, 5, {}), TraceDefect::empty_prompt, "input_length", from_one, "0"},
      {"NoIdsAtAll",
       line(1, 700, 5, {}),
       TraceDefect::wrong_block_count,
       "hash_ids",
       "2 ids, one per 512 of 700 tokens",
       "0 ids"},
      {"FewIds",
       line(1, 513, 5, {10}),
       TraceDefect::wrong_block_count,
       "hash_ids",
       "2 ids, one per 512 of 513 tokens",
       "1 ids"},
      {"ManyIds",
       line(1, 512, 5, {10, 11}),
       TraceDefect::wrong_block_count,
       "hash_ids",
       "1 ids, one per 512 of 512 tokens",
       "2 ids"},
      {"OtherParent",
       line(1, 1100, 5, {10, 12, 11}),
       TraceDefect::parent_changed,
       "hash_ids[2]",
       "id 11 after id 10, as before",
       "after id 12"},
      {"NoParent",
       line(1, 188, 5, {11}),
       TraceDefect::parent_changed,
       "hash_ids[0]",
       "id 11 after id 10, as before",
       "first of its prompt"},
      {"ParentForFirst",
       line(1, 1024, 5, {13, 10}),
       TraceDefect::parent_changed,
       "hash_ids[1]",
       "id 10 first of its prompt, as before",
       "after id 13"},
      {"SameTwice",
       line(1, 1024, 5, {20, 20}),
       TraceDefect::parent_changed,
       "hash_ids[1]",
       "id 20 first of its prompt, as before",
       "after id 20"},
      {"OtherFill",
       line(1, 701, 5, {10, 11}),
       TraceDefect::fill_changed,
       "hash_ids[1]",
       "id 11 with 188 tokens, as before",
       "189 tokens"},
      {"Unterminated",
       "{\"timestamp\": 1",
       TraceDefect::unterminated_line,
       "",
       "a line end behind the last line",
       "the end of the text behind '{\"timestamp\": 1'"},
      {"Deep",
       "{\"x\": " + many + "\n",
       TraceDefect::nested_too_deep,
       "",
       "at most 64 nested lists and objects",
       "more"},
      {"Long",
       std::string(2000, 'x') + "\n",
       TraceDefect::line_too_long,
       "",
       "at most 1000 bytes in a line",
       "more, beginning with '" + std::string(48, 'x') + "'..."},
  };
}

class TraceDefects : public testing::TestWithParam<BadLine> {};

TEST_P(TraceDefects, StopWithPlaceFieldExpectationAndFinding) {
  const BadLine& bad = GetParam();

  const Outcome outcome = read_text(good + "\n" + bad.text, {.max_line = Bytes{1000}});

  EXPECT_EQ(outcome.records.size(), 1U);
  const auto* error = outcome.as<BadTraceRecord>();
  ASSERT_NE(error, nullptr) << (outcome.error ? outcome.error->message() : "no error");
  EXPECT_EQ(error->at.source.view(), "test.trace");
  EXPECT_EQ(error->at.line, 3U);
  EXPECT_EQ(error->at.offset, Bytes{good.size() + 1});
  EXPECT_EQ(to_string(error->defect), to_string(bad.defect));
  EXPECT_EQ(error->field.view(), bad.field);
  EXPECT_EQ(error->expected.view(), bad.expected);
  EXPECT_EQ(error->found.view(), bad.found);
}

TEST_P(TraceDefects, AreCountedAndPassedOverWhenSkipping) {
  const BadLine& bad = GetParam();
  const bool is_last = !bad.text.ends_with('\n');
  const std::string more = is_last ? "" : line(9, 700, 6, {10, 11});

  const Outcome outcome =
      read_text(good + bad.text + more, {.skip_bad = true, .max_line = Bytes{1000}});

  EXPECT_FALSE(outcome.error.has_value());
  EXPECT_EQ(outcome.skipped, 1U);
  EXPECT_EQ(outcome.records.size(), is_last ? 1U : 2U);
}

INSTANTIATE_TEST_SUITE_P(Reader,
                         TraceDefects,
                         testing::ValuesIn(bad_lines()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(TraceReaderNext, TimeThatGoesBackIsRefusedWithTheDistance) {
  const Outcome outcome = read_text(line(3000, 1, 1, {1}) + line(2999, 1, 1, {1}));

  const auto* error = outcome.as<BadTraceRecord>();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->defect, TraceDefect::time_went_back);
  EXPECT_EQ(error->field.view(), "timestamp");
  EXPECT_EQ(error->expected.view(), "not earlier than the record before");
  EXPECT_EQ(error->found.view(), "1 ms earlier");
}

TEST(TraceReaderNext, ABadRecordLeavesNoMarkOnWhatIsKnown) {
  // The second line is bad in its last id; 30 and 31 must be free for other prompts afterwards, and its time too.
  const Outcome outcome = read_text(
      line(0, 512, 1, {10}) + line(500, 2048, 1, {30, 31, 32, 10}) + line(100, 1024, 1, {31, 30}),
      {.skip_bad = true});

  EXPECT_FALSE(outcome.error.has_value());
  EXPECT_EQ(outcome.skipped, 1U);
  ASSERT_EQ(outcome.records.size(), 2U);
  EXPECT_EQ(outcome.records[1].blocks, (std::vector<std::uint64_t>{31, 30}));
}

TEST(TraceErrorMessage, NamesFileLineByteFieldExpectationFindingAndRemedy) {
  const Outcome outcome = read_text(good + line(1, 513, 5, {10}));

  ASSERT_TRUE(outcome.error.has_value());
  EXPECT_EQ(
      outcome.error->message(),
      "test.trace line 2 (byte 80): hash_ids: expected 2 ids, one per 512 of 513 tokens, found "
      "1 ids; correct the record, or skip bad records");
}

TEST(TraceErrorMessage, EscapesWhatATerminalWouldObey) {
  const Outcome outcome = read_text(good + "\x1b[2Jx\n");

  ASSERT_TRUE(outcome.error.has_value());
  EXPECT_EQ(outcome.error->message().find('\x1b'), std::string::npos);
  EXPECT_NE(outcome.error->message().find("\\x1b"), std::string::npos);
}

}  // namespace
}  // namespace memstrata
