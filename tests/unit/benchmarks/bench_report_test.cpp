// SPDX-License-Identifier: Apache-2.0
#include "support/bench_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/paired_rounds.hpp"

namespace memstrata::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

BenchResult sample() {
  BenchResult result;
  result.name = "a \"quoted\" \\ name\n";
  result.unit = "ns";
  result.raw_name = "A";
  result.our_name = "lease";
  result.raw = {.q1 = 9, .median = 10, .q3 = 11};
  result.ours = {.q1 = 19, .median = 20, .q3 = 21};
  result.ratio = {.q1 = 1.9, .median = 2, .q3 = 2.125};
  result.target = Target{.bound = Target::Bound::at_most, .ratio = 2.5};
  result.rounds = 15;
  return result;
}

TEST(BenchReportJson, IsOneLineWithEveryFigure) {
  EXPECT_EQ(to_json_line(sample()),
            R"({"name":"a \"quoted\" \\ name\u000a","unit":"ns","raw_name":"A","our_name":"lease",)"
            R"("raw":{"q1":9,"median":10,"q3":11},"ours":{"q1":19,"median":20,"q3":21},)"
            R"("ratio":{"q1":1.9,"median":2,"q3":2.125},"rounds":15,)"
            R"("target":{"bound":"at_most","ratio":2.5},"met":true})");
}

TEST(BenchReportJson, LeavesOutWhatThereIsNot) {
  BenchResult result = sample();
  result.target.reset();

  const std::string line = to_json_line(result);

  EXPECT_THAT(line, Not(HasSubstr("target")));
  EXPECT_THAT(line, Not(HasSubstr("checksum")));
  EXPECT_THAT(line, Not(HasSubstr("note")));
}

TEST(BenchReportTable, SaysWhetherTheTargetIsMet) {
  BenchResult result = sample();

  EXPECT_THAT(to_table({&result, 1}), HasSubstr("1.900 / 2.000 / 2.125   <= 2.5  met\n"));
  result.ratio.q1 = 2.6;
  EXPECT_THAT(to_table({&result, 1}), HasSubstr("<= 2.5  NOT MET\n"));
}

TEST(BenchReportTable, SaysWhereTheSidesWroteDifferentBytes) {
  BenchResult result = sample();
  result.raw_checksum = 1;

  EXPECT_THAT(to_table({&result, 1}), HasSubstr("WROTE DIFFERENT BYTES"));
}

}  // namespace
}  // namespace memstrata::bench
