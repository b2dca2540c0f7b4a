// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/trace/trace_writer.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"
#include "memstrata/frontend/trace/trace_reader.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"
#include "unit/frontend/trace/trace_texts.hpp"

namespace memstrata {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using test::TextSource;

TraceRecord request(nanoseconds arrival, std::uint64_t input, std::vector<std::uint64_t> blocks) {
  TraceRecord record;
  record.arrival = arrival;
  record.input_tokens = input;
  record.output_tokens = 3;
  record.blocks = std::move(blocks);
  return record;
}

TEST(TraceWriterWrite, WritesTheDocumentedText) {
  std::ostringstream out;
  TraceWriter writer(
      out,
      "out",
      {.unit = TraceTimeUnit::milliseconds, .synthetic = true, .made_by = "a \"test\""});
  TraceRecord second = request(milliseconds(7), 1, {9});
  second.tenant = "t\n";
  second.session = "s";

  ASSERT_TRUE(writer.write(request(milliseconds(5), 700, {0, 1})).has_value());
  ASSERT_TRUE(writer.write(second).has_value());
  ASSERT_TRUE(writer.write(request(milliseconds(7), 600, {})).has_value());
  ASSERT_TRUE(writer.finish().has_value());

  EXPECT_EQ(
      out.str(),
      R"({"memstrata_trace":1,"time_unit":"ms","block_tokens":512,"synthetic":true,"made_by":"a \"test\""})"
      "\n"
      R"({"timestamp":0,"input_length":700,"output_length":3,"hash_ids":[0,1]})"
      "\n"
      R"({"timestamp":2,"input_length":1,"output_length":3,"hash_ids":[9],"tenant":"t\n","session":"s"})"
      "\n"
      R"({"timestamp":2,"input_length":600,"output_length":3})"
      "\n");
  EXPECT_EQ(writer.records(), 3U);
}

class TraceWriterUnit : public testing::TestWithParam<TraceTimeUnit> {};

TEST_P(TraceWriterUnit, IsReadBackUnchanged) {
  std::ostringstream out;
  TraceWriter writer(out, "out", {.unit = GetParam(), .synthetic = false, .made_by = "me"});
  TraceRecord record = request(milliseconds(0), 1024, {4, 5});
  record.tenant = "\"\\ä\x01";
  record.session = std::string(256, 's');
  ASSERT_TRUE(writer.write(record).has_value());
  ASSERT_TRUE(writer.write(request(milliseconds(1LL << 31U), 1024, {4, 5})).has_value());

  auto reader = TraceReader::from(std::make_unique<TextSource>(out.str()));

  ASSERT_TRUE(reader.has_value());
  EXPECT_EQ(reader->format(), TraceFormat::memstrata);
  EXPECT_EQ(reader->header().unit, GetParam());
  EXPECT_EQ(reader->header().made_by, "me");
  const auto records = read_all(*reader);
  ASSERT_TRUE(records.has_value()) << records.error().message();
  ASSERT_EQ(records->size(), 2U);
  EXPECT_EQ((*records)[0].tenant, record.tenant);
  EXPECT_EQ((*records)[0].session, record.session);
  EXPECT_EQ((*records)[1].arrival, milliseconds(1LL << 31U));
  EXPECT_EQ((*records)[1].blocks, record.blocks);
}

INSTANTIATE_TEST_SUITE_P(Units,
                         TraceWriterUnit,
                         testing::Values(TraceTimeUnit::milliseconds,
                                         TraceTimeUnit::microseconds,
                                         TraceTimeUnit::nanoseconds),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

struct Refused {
  const char* name;
  TraceRecord record;
  TraceDefect defect;
  const char* field;
};

std::vector<Refused> refused_records() {
  std::vector<Refused> all;
  all.push_back(
      {"Back", request(milliseconds(1), 1, {1}), TraceDefect::time_went_back, "timestamp"});
  all.push_back(
      {"Negative", request(milliseconds(-1), 1, {1}), TraceDefect::negative, "timestamp"});
  all.push_back(
      {"FarNegative", request(nanoseconds::min(), 1, {1}), TraceDefect::negative, "timestamp"});
  all.push_back(
      {"Part", request(nanoseconds(3'000'001), 1, {1}), TraceDefect::not_an_integer, "timestamp"});
  all.push_back(
      {"Late", request(std::chrono::hours(600), 1, {1}), TraceDefect::too_large, "timestamp"});
  all.push_back(
      {"Empty", request(milliseconds(3), 0, {}), TraceDefect::empty_prompt, "input_length"});
  all.push_back({"Large",
                 request(milliseconds(3), (1ULL << 31U) + 1, {}),
                 TraceDefect::too_large,
                 "input_length"});
  all.push_back(
      {"Count", request(milliseconds(3), 513, {1}), TraceDefect::wrong_block_count, "hash_ids"});
  all.push_back({"LargeId",
                 request(milliseconds(3), 1, {1ULL << 40U}),
                 TraceDefect::too_large,
                 "hash_ids[0]"});
  all.push_back({"Parent",
                 request(milliseconds(3), 513, {7, 1}),
                 TraceDefect::parent_changed,
                 "hash_ids[1]"});
  all.push_back(
      {"Fill", request(milliseconds(3), 2, {1}), TraceDefect::fill_changed, "hash_ids[0]"});
  Refused output{
      "Output", request(milliseconds(3), 1, {1}), TraceDefect::too_large, "output_length"};
  output.record.output_tokens = (1ULL << 31U) + 1;
  all.push_back(output);
  Refused tenant{"Tenant", request(milliseconds(3), 1, {1}), TraceDefect::wrong_type, "tenant"};
  tenant.record.tenant = "\xff";
  all.push_back(tenant);
  Refused session{"Session", request(milliseconds(3), 1, {1}), TraceDefect::too_large, "session"};
  session.record.session = std::string(257, 's');
  all.push_back(session);
  return all;
}

std::ostream& operator<<(std::ostream& out, const Refused& refused) {
  return out << refused.name;
}

class TraceWriterRefuses : public testing::TestWithParam<Refused> {};

TEST_P(TraceWriterRefuses, WhatAReaderWouldRefuseAndWritesNothing) {
  std::ostringstream out;
  TraceWriter writer(out, "out");
  ASSERT_TRUE(writer.write(request(milliseconds(2), 1, {1})).has_value());
  const std::string before = out.str();

  const auto refused = writer.write(GetParam().record);

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<BadTraceRecord>(&refused.error().kind);
  ASSERT_NE(error, nullptr) << refused.error().message();
  EXPECT_EQ(to_string(error->defect), to_string(GetParam().defect));
  EXPECT_EQ(error->field.view(), GetParam().field);
  EXPECT_EQ(error->at.source.view(), "out");
  EXPECT_EQ(error->at.line, 3U);
  EXPECT_EQ(error->at.offset.value, before.size());
  EXPECT_EQ(out.str(), before);
  EXPECT_TRUE(writer.write(request(milliseconds(2), 1, {1})).has_value());
}

INSTANTIATE_TEST_SUITE_P(Records,
                         TraceWriterRefuses,
                         testing::ValuesIn(refused_records()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(TraceWriterFinish, ATraceWithoutRecordsIsRefused) {
  std::ostringstream out;
  TraceWriter writer(out, "out");

  const auto finished = writer.finish();

  ASSERT_FALSE(finished.has_value());
  EXPECT_TRUE(std::holds_alternative<EmptyTrace>(finished.error().kind));
  EXPECT_TRUE(out.str().empty());
}

TEST(TraceWriterWrite, AnOriginThatAReaderWouldRefuseIsRefused) {
  std::ostringstream out;
  TraceWriter writer(
      out,
      "out",
      {.unit = TraceTimeUnit::milliseconds, .synthetic = false, .made_by = std::string(4097, 'x')});

  const auto refused = writer.write(request(milliseconds(0), 1, {1}));

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<BadTraceRecord>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->field.view(), "made_by");
  EXPECT_TRUE(out.str().empty());
}

// Takes a number of bytes, then nothing more, as a full disk would.
class FullBuffer final : public std::streambuf {
 public:
  explicit FullBuffer(std::streamsize room) : room_(room) {}

 protected:
  int_type overflow(int_type character) override {
    return room_-- > 0 ? character : traits_type::eof();
  }

  std::streamsize xsputn(const char* /*text*/, std::streamsize count) override {
    const std::streamsize taken = std::min(count, room_);
    room_ -= taken;
    return taken;
  }

 private:
  std::streamsize room_;
};

TEST(TraceWriterWrite, AFullDiskIsATypedError) {
  FullBuffer buffer(200);
  std::ostream out(&buffer);
  TraceWriter writer(out, "full.jsonl");
  ASSERT_TRUE(writer.write(request(milliseconds(0), 1, {1})).has_value());

  const auto refused = writer.write(request(milliseconds(0), 1, {1}));

  ASSERT_FALSE(refused.has_value());
  const auto* error = std::get_if<TraceNotWritten>(&refused.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->target.view(), "full.jsonl");
  EXPECT_EQ(error->records, 1U);
  EXPECT_EQ(writer.records(), 1U);
}

}  // namespace
}  // namespace memstrata
