// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/trace/trace_import.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"
#include "memstrata/frontend/trace/trace_reader.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"
#include "unit/frontend/trace/trace_texts.hpp"

namespace memstrata {
namespace {

using Ids = std::vector<std::uint64_t>;
using test::TextSource;

/// A log that was imported, and the trace that came of it.
struct Imported {
  TraceImportSummary summary;
  std::vector<TraceRecord> records;
  std::string text;
};

Result<TraceImportSummary, TraceError> import_to(std::ostream& out,
                                                 std::string log,
                                                 const TraceImportOptions& options = {}) {
  return import_trace(std::make_unique<TextSource>(std::move(log)), out, "out", options);
}

Imported import_good(std::string log, const TraceImportOptions& options = {}) {
  Imported result;
  std::ostringstream out;
  const auto summary = import_to(out, std::move(log), options);
  EXPECT_TRUE(summary.has_value()) << summary.error().message();
  if (summary) {
    result.summary = *summary;
    result.text = out.str();
    auto reader = TraceReader::from(std::make_unique<TextSource>(result.text));
    auto records = reader ? read_all(*reader) : std::vector<TraceRecord>();
    EXPECT_TRUE(records.has_value());
    result.records = std::move(records).value_or(std::vector<TraceRecord>());
  }
  return result;
}

std::string tokens(std::size_t count, std::size_t changed = SIZE_MAX) {
  std::string list;
  for (std::size_t i = 0; i < count; ++i) {
    list += (i == 0 ? "" : ",") + std::to_string(i == changed ? 999'999 : i);
  }
  return "\"token_ids\":[" + list + "]";
}

std::string log_line(std::uint64_t timestamp, const std::string& rest) {
  return "{\"timestamp\":" + std::to_string(timestamp) + ",\"output_length\":4," + rest + "}\n";
}

TEST(TraceImport, NumbersTokenBlocksByContentAndEverythingBefore) {
  const Imported imported = import_good(
      log_line(1'700'000'000'000, tokens(1100)) + log_line(1'700'000'000'250, tokens(1100, 600)) +
      log_line(1'700'000'001'000, tokens(1100)) + log_line(1'700'000'001'000, tokens(1030)));

  ASSERT_EQ(imported.records.size(), 4U);
  EXPECT_EQ(imported.records[0].arrival, std::chrono::nanoseconds(0));
  EXPECT_EQ(imported.records[1].arrival, std::chrono::milliseconds(250));
  EXPECT_EQ(imported.records[0].input_tokens, 1100U);
  EXPECT_EQ(imported.records[0].output_tokens, 4U);
  EXPECT_EQ(imported.records[0].blocks, (Ids{0, 1, 2}));
  EXPECT_EQ(imported.records[1].blocks,
            (Ids{0, 3, 4}));  // Its last block is equal, what is before is not.
  EXPECT_EQ(imported.records[2].blocks, (Ids{0, 1, 2}));
  EXPECT_EQ(imported.records[3].blocks, (Ids{0, 1, 5}));  // Shorter, so another last block.
  EXPECT_EQ(imported.summary.records, 4U);
  EXPECT_EQ(imported.summary.input_tokens, 4330U);
  EXPECT_EQ(imported.summary.block_refs, 12U);
  EXPECT_EQ(imported.summary.unique_blocks, 6U);
}

TEST(TraceImport, NumbersHashesOfTextAndIntegers) {
  const Imported imported =
      import_good(log_line(5, R"("input_length":600,"block_hashes":["a","b"],"tenant":"t")") +
                  log_line(6, R"("input_length":600,"block_hashes":["a",-7],"session":12)") +
                  log_line(7, R"("input_length":600,"block_hashes":["a","b"])") +
                  log_line(8, R"("input_length":512,"block_hashes":[18446744073709551615])"));

  ASSERT_EQ(imported.records.size(), 4U);
  EXPECT_EQ(imported.records[0].blocks, (Ids{0, 1}));
  EXPECT_EQ(imported.records[1].blocks, (Ids{0, 2}));
  EXPECT_EQ(imported.records[2].blocks, (Ids{0, 1}));
  EXPECT_EQ(imported.records[3].blocks, (Ids{3}));
  EXPECT_EQ(imported.records[0].tenant, "t");
  EXPECT_EQ(imported.records[1].session, "12");
}

TEST(TraceImport, SaysInTheHeaderHowTheTraceWasMade) {
  const Imported imported = import_good(log_line(0, tokens(1)), {.made_by = "by a test"});

  EXPECT_TRUE(imported.text.starts_with(
      R"({"memstrata_trace":1,"time_unit":"ms","block_tokens":512,"synthetic":false,"made_by":"by a test"})"))
      << imported.text;
}

TEST(TraceImport, SkippedLinesLeaveNoMark) {
  const Imported imported = import_good(
      log_line(3, tokens(600)) + "bad\n" + log_line(2, tokens(700, 1)) +
          log_line(9, R"("input_length":600,"block_hashes":["q"])") + log_line(3, tokens(600, 599)),
      {.skip_bad = true});

  EXPECT_EQ(imported.summary.skipped, 3U);
  ASSERT_EQ(imported.records.size(), 2U);
  EXPECT_EQ(imported.records[1].arrival, std::chrono::nanoseconds(0));
  EXPECT_EQ(imported.records[1].blocks, (Ids{0, 2}));
}

struct BadLog {
  const char* name;
  std::string text;
  TraceDefect defect;
  std::string_view field;
};

std::ostream& operator<<(std::ostream& out, const BadLog& bad) {
  return out << bad.name;
}

class TraceImportBad : public testing::TestWithParam<BadLog> {};

TEST_P(TraceImportBad, StopsWithPlaceAndField) {
  const std::string good = log_line(1'000'000'000'000, tokens(1));
  std::ostringstream out;

  const auto summary = import_to(out, good + GetParam().text, {.max_line = Bytes{5000}});

  ASSERT_FALSE(summary.has_value());
  const auto* error = std::get_if<BadTraceRecord>(&summary.error().kind);
  ASSERT_NE(error, nullptr) << summary.error().message();
  EXPECT_EQ(error->at.source.view(), "test.trace");
  EXPECT_EQ(error->at.line, 2U);
  EXPECT_EQ(error->at.offset, Bytes{good.size()});
  EXPECT_EQ(to_string(error->defect), to_string(GetParam().defect));
  EXPECT_EQ(error->field.view(), GetParam().field);
  EXPECT_FALSE(error->expected.empty());
  EXPECT_FALSE(error->found.empty());
}

constexpr std::uint64_t later = 1'000'000'000'001;

INSTANTIATE_TEST_SUITE_P(
    Lines,
    TraceImportBad,
    testing::Values(
        BadLog{"NoJson", "x\n", TraceDefect::malformed, ""},
        BadLog{"NoTime",
               "{\"output_length\":1," + tokens(1) + "}\n",
               TraceDefect::missing_field,
               "timestamp"},
        BadLog{"NoOutput",
               "{\"timestamp\":1," + tokens(1) + "}\n",
               TraceDefect::missing_field,
               "output_length"},
        BadLog{"NoContent",
               log_line(later, "\"input_length\":1"),
               TraceDefect::missing_field,
               "token_ids"},
        BadLog{"Both",
               log_line(later, tokens(1) + ",\"block_hashes\":[1]"),
               TraceDefect::repeated_field,
               "token_ids"},
        BadLog{"NoLength",
               log_line(later, "\"block_hashes\":[1]"),
               TraceDefect::missing_field,
               "input_length"},
        BadLog{"NoTokens", log_line(later, tokens(0)), TraceDefect::empty_prompt, "token_ids"},
        BadLog{"EmptyPrompt",
               log_line(later, "\"input_length\":0,\"block_hashes\":[]"),
               TraceDefect::empty_prompt,
               "input_length"},
        BadLog{"OtherLength",
               log_line(later, tokens(2) + ",\"input_length\":3"),
               TraceDefect::wrong_block_count,
               "token_ids"},
        BadLog{"FewHashes",
               log_line(later, "\"input_length\":513,\"block_hashes\":[1]"),
               TraceDefect::wrong_block_count,
               "block_hashes"},
        BadLog{"NegativeToken",
               log_line(later, "\"token_ids\":[1,-1]"),
               TraceDefect::negative,
               "token_ids[1]"},
        BadLog{"LargeToken",
               log_line(later, "\"token_ids\":[2147483649]"),
               TraceDefect::too_large,
               "token_ids[0]"},
        BadLog{"TextToken",
               log_line(later, "\"token_ids\":[\"a\"]"),
               TraceDefect::not_an_integer,
               "token_ids[0]"},
        BadLog{"FractionHash",
               log_line(later, "\"input_length\":1,\"block_hashes\":[1.5]"),
               TraceDefect::wrong_type,
               "block_hashes[0]"},
        BadLog{"Back",
               log_line(999'999'999'999, tokens(1)),
               TraceDefect::time_went_back,
               "timestamp"},
        BadLog{"FarAhead",
               log_line(1'002'147'483'649, tokens(1)),
               TraceDefect::too_large,
               "timestamp"},
        BadLog{"Year2201",
               log_line(7'258'118'400'001, tokens(1)),
               TraceDefect::too_large,
               "timestamp"},
        BadLog{"Cut", "{\"timestamp\":1", TraceDefect::unterminated_line, ""},
        BadLog{"Long", std::string(6000, 'x') + "\n", TraceDefect::line_too_long, ""}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(TraceImport, ALogWithoutAGoodLineIsEmpty) {
  std::ostringstream out;

  const auto summary = import_to(out, "x\ny\n", {.skip_bad = true});

  ASSERT_FALSE(summary.has_value());
  const auto* error = std::get_if<EmptyTrace>(&summary.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->skipped, 2U);
  EXPECT_TRUE(out.str().empty());
}

class RefusingBuffer final : public std::streambuf {};

TEST(TraceImport, ATargetThatRefusesIsATypedError) {
  RefusingBuffer buffer;
  std::ostream out(&buffer);

  const auto summary = import_to(out, log_line(0, tokens(1)));

  ASSERT_FALSE(summary.has_value());
  const auto* error = std::get_if<TraceNotWritten>(&summary.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->target.view(), "out");
}

// The first block of Python on the page.
std::string documented_program() {
  std::ifstream page(MEMSTRATA_SOURCE_DIR "/docs/trace-format.md");
  std::string program;
  bool is_inside = false;
  for (std::string text; std::getline(page, text);) {
    if (text == "```python") {
      is_inside = true;
    } else if (text == "```" && is_inside) {
      return program;
    } else if (is_inside) {
      program += text + "\n";
    }
  }
  return program;
}

// What `command` prints, or nothing if it fails.
std::string output_of(const std::string& command) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe,cert-env33-c): the test runs one program of its own
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) {
    return {};
  }
  std::string output;
  std::array<char, 4096> buffer{};
  for (std::size_t count = 1; count > 0;) {
    count = std::fread(buffer.data(), 1, buffer.size(), pipe);
    output.append(buffer.data(), count);
  }
  return pclose(pipe) == 0 ? output : std::string();
}

TEST(TraceImportDocumentation, TheProgramOnThePageMakesALogThatIsImported) {
  const std::string program = documented_program();
  ASSERT_FALSE(program.empty());
  if (output_of("python3 -c 'print(1)' 2>&1") != "1\n") {
    GTEST_SKIP() << "python3 does not run here";
  }
  const std::string path = testing::TempDir() + "memstrata_documented_log.py";
  std::ofstream(path) << program;

  const Imported imported = import_good(output_of("python3 '" + path + "'"));

  static_cast<void>(std::remove(path.c_str()));
  ASSERT_EQ(imported.records.size(), 3U);
  EXPECT_EQ(imported.records[1].arrival, std::chrono::milliseconds(4500));
  EXPECT_EQ(imported.records[2].input_tokens, 1753U);
  EXPECT_EQ(imported.records[0].blocks, (Ids{0, 1}));
  EXPECT_EQ(imported.records[1].blocks, (Ids{0, 2}));
  EXPECT_EQ(imported.records[2].blocks, (Ids{0, 3, 4, 5}));
  EXPECT_EQ(imported.records[2].tenant, "shop");
  EXPECT_EQ(imported.records[2].session, "a");
}

}  // namespace
}  // namespace memstrata
