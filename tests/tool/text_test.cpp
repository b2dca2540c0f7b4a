// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "html_page.hpp"
#include "memstrata/core/bytes.hpp"
#include "progress.hpp"
#include "table.hpp"
#include "terminal.hpp"
#include "units.hpp"

namespace memstrata::tool {
namespace {

TEST(FormatBytes, ShowsThreeDigitsWithTheLargestUnitThatFits) {
  EXPECT_EQ(format_bytes(0_B), "0 B");
  EXPECT_EQ(format_bytes(1023_B), "1023 B");
  EXPECT_EQ(format_bytes(1_KiB), "1.00 KiB");
  EXPECT_EQ(format_bytes(64_KiB), "64.0 KiB");
  EXPECT_EQ(format_bytes(96_GiB), "96.0 GiB");
  EXPECT_EQ(format_bytes(134936133120_B), "126 GiB");
}

TEST(FormatBytes, NeverShowsOneThousandAndTwentyFourOfAUnit) {
  EXPECT_EQ(format_bytes(Bytes{(1ULL << 20) - 1}), "1.00 MiB");
  EXPECT_EQ(format_bytes(Bytes::max()), "16.0 EiB");
}

TEST(FormatCount, SeparatesThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(134936133120ULL), "134,936,133,120");
  EXPECT_EQ(format_count(std::numeric_limits<std::uint64_t>::max()), "18,446,744,073,709,551,615");
}

TEST(FormatSeconds, ChoosesAUnitBetweenNanosecondsAndSeconds) {
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_seconds(4e-9), "4.00 ns");
  EXPECT_EQ(format_seconds(4.25e-6), "4.25 us");
  EXPECT_EQ(format_seconds(0.018), "18.0 ms");
  EXPECT_EQ(format_seconds(266), "266 s");
  EXPECT_EQ(format_seconds(36777), "36,777 s");
  EXPECT_EQ(format_nanoseconds(1500), "1.50 us");
}

TEST(FormatShare, ShowsPercent) {
  EXPECT_EQ(format_share(0.3664), "36.6 %");
}

TEST(TableToText, AlignsAndIndentsBelowAGroup) {
  Table table({{.title = "name"}, {.title = "value", .align = Align::right}});
  table.add_group("Group");
  table.add({"first", "1"});
  table.add({"second"});

  EXPECT_EQ(table.to_text(0),
            "name      value\n"
            "Group\n"
            "  first       1\n"
            "  second\n");
}

TEST(TableToText, BreaksAWrappingColumnAtTheWidthOfTheTerminal) {
  Table table({{.title = "a"}, {.title = "b", .align = Align::left, .may_wrap = true}});
  table.add({"key", "some words that do not fit into so few columns"});

  std::istringstream lines(table.to_text(30));

  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 30U) << line;
  }
}

TEST(EscapeHtml, ReplacesWhatMeansSomething) {
  EXPECT_EQ(escape_html("<a href=\"x\" b='&'>"), "&lt;a href=&quot;x&quot; b=&#39;&amp;&#39;&gt;");
}

TEST(RenderPage, DataCannotEndItsElement) {
  const HtmlPage page{.title = "t",
                      .lead = "",
                      .tier_note = "",
                      .facts = {},
                      .table = Table({{.title = "c"}}),
                      .notes = {},
                      .footer = "",
                      .charts = {{"name", "</script><script>alert(1)"}}};

  EXPECT_EQ(render_page(page).find("</script><script>alert"), std::string::npos);
}

TEST(TerminalBehind, StreamInMemoryIsNone) {
  const std::ostringstream stream;

  EXPECT_FALSE(terminal_behind(stream).is_terminal);
}

TEST(ProgressUpdate, DrawsNothingWithoutATerminal) {
  std::ostringstream stream;
  {
    Progress progress(stream, "working");
    progress.update(1, 2);
    EXPECT_FALSE(progress.is_visible());
  }

  EXPECT_EQ(stream.str(), "");
}

TEST(RunTool, BrokenOutputStreamIsCouldNotRun) {
  std::ostringstream out;
  std::ostringstream err;
  out.setstate(std::ios::badbit);
  const std::vector<std::string_view> arguments{"--version"};

  EXPECT_EQ(run_tool(arguments, out, err), 3);
  EXPECT_NE(err.str().find("could not be written"), std::string::npos);
}

}  // namespace
}  // namespace memstrata::tool
