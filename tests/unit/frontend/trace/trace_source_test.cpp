// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/trace/trace_source.hpp"

#include <zlib.h>
#include <zstd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <ios>
#include <istream>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_reader.hpp"
#include "unit/frontend/trace/trace_texts.hpp"

namespace memstrata {
namespace {

using test::line;
using test::Outcome;
using test::read_source;
using test::TextSource;

std::string gzip(std::string text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.erase(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd(std::string_view text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size = ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3);
  EXPECT_EQ(ZSTD_isError(size), 0U);
  packed.resize(size);
  return packed;
}

struct Codec {
  const char* name;
  std::string (*pack)(std::string);
};

// Everything in `packed`, or the error.
Result<std::string, TraceError> unpack(std::string packed, std::size_t at_once = 5) {
  MEMSTRATA_TRY(auto source, decompress(std::make_unique<TextSource>(std::move(packed), at_once)));
  std::string text;
  std::array<char, 13> buffer{};
  while (true) {
    MEMSTRATA_TRY(const std::size_t count, source->read(buffer));
    if (count == 0) {
      return text;
    }
    text.append(buffer.data(), count);
  }
}

class TraceArchive : public testing::TestWithParam<Codec> {
 protected:
  [[nodiscard]] static std::string packed(std::string text) {
    return GetParam().pack(std::move(text));
  }
};

TEST_P(TraceArchive, IsRecognisedByItsFirstBytes) {
  std::string text;
  for (std::uint64_t i = 0; i < 500; ++i) {
    text += line(i, 512, i % 7, {i % 50});
  }

  const Outcome outcome = read_source(*decompress(std::make_unique<TextSource>(packed(text))));

  EXPECT_FALSE(outcome.error.has_value());
  ASSERT_EQ(outcome.records.size(), 500U);
  EXPECT_EQ(outcome.records[499].output_tokens, 499U % 7U);
}

TEST_P(TraceArchive, SeveralOneAfterTheOtherAreOneText) {
  EXPECT_EQ(unpack(packed("one ") + packed("") + packed("two")).value_or("?"), "one two");
}

TEST_P(TraceArchive, CutAnywhereIsATypedError) {
  const std::string whole = packed(line(0, 512, 1, {1}) + line(1, 512, 1, {1}));
  for (std::size_t length = 4; length < whole.size(); ++length) {
    const auto text = unpack(whole.substr(0, length));

    ASSERT_FALSE(text.has_value()) << length << " of " << whole.size() << " bytes";
    const auto* error = std::get_if<BrokenTraceArchive>(&text.error().kind);
    ASSERT_NE(error, nullptr);
    ASSERT_EQ(std::string_view(error->codec), GetParam().name);
    ASSERT_EQ(error->source.view(), "test.trace");
    ASSERT_FALSE(error->reason.empty());
  }
}

TEST_P(TraceArchive, CutStopsTheReaderEvenWhenSkipping) {
  std::string text;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    text += line(i, 512, (i * i * 7919) % 1000, {i});
  }
  std::string cut = packed(text);
  cut.resize(cut.size() / 2);

  const Outcome outcome = read_source(
      *decompress(std::make_unique<TextSource>(std::move(cut), 1000)), {.skip_bad = true});

  const auto* error = outcome.as<BrokenTraceArchive>();
  ASSERT_NE(error, nullptr);
  EXPECT_GT(outcome.records.size(), 100U);
  EXPECT_GT(error->offset, Bytes{100});
  EXPECT_LT(error->offset, Bytes{text.size()});
  EXPECT_EQ(outcome.error->message(),
            "test.trace: the " + std::string(GetParam().name) + " archive is damaged after " +
                std::to_string(error->offset.value) +
                " bytes of text: it is cut short; fetch the file again");
}

TEST_P(TraceArchive, DamageIsATypedError) {
  std::string text;
  for (int i = 0; i < 3'000; ++i) {
    text += static_cast<char>('a' + (i * i * 31 + i) % 23);
  }
  std::string bad = packed(text);
  for (std::size_t i = bad.size() / 3; i < bad.size() / 3 + 40; ++i) {
    bad[i] = static_cast<char>(bad[i] ^ 0x5a);
  }

  const auto unpacked = unpack(bad);

  ASSERT_FALSE(unpacked.has_value());
  EXPECT_TRUE(std::holds_alternative<BrokenTraceArchive>(unpacked.error().kind));
}

TEST_P(TraceArchive, GarbageBehindItIsATypedError) {
  const auto unpacked = unpack(packed("text") + "garbage");

  ASSERT_FALSE(unpacked.has_value());
  const auto* error = std::get_if<BrokenTraceArchive>(&unpacked.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->offset, Bytes{4});
}

INSTANTIATE_TEST_SUITE_P(
    Codecs,
    TraceArchive,
    testing::Values(Codec{.name = "gzip", .pack = gzip},
                    Codec{.name = "zstd", .pack = [](std::string text) { return zstd(text); }}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(TraceSourceDecompress, LeavesShortAndPlainTextAsItIs) {
  EXPECT_EQ(unpack("").value_or("?"), "");
  EXPECT_EQ(unpack("ab").value_or("?"), "ab");
  EXPECT_EQ(unpack("plain text, longer than one buffer").value_or("?"),
            "plain text, longer than one buffer");
}

TEST(TraceSourceOpen, AFileThatIsNotThereNamesCallAndErrno) {
  const std::string path = testing::TempDir() + "no/such/trace";

  const auto reader = TraceReader::open(path);

  ASSERT_FALSE(reader.has_value());
  const auto* error = std::get_if<TraceUnavailable>(&reader.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->source.view(), path);
  EXPECT_STREQ(error->call, "fopen");
  EXPECT_EQ(error->code, ENOENT);
  EXPECT_EQ(reader.error().message(),
            path + " cannot be read: fopen: No such file or directory (os error 2)");
}

TEST(TraceSourceOpen, AFolderNamesCallAndErrno) {
  const auto reader = TraceReader::open(testing::TempDir());

  ASSERT_FALSE(reader.has_value());
  const auto* error = std::get_if<TraceUnavailable>(&reader.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_STREQ(error->call, "fread");
  EXPECT_EQ(error->code, EISDIR);
}

// A file in the test's folder that goes away with the object.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, std::string_view content)
      : path_(testing::TempDir() + name) {
    std::ofstream(path_, std::ios::binary) << content;
  }

  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  TemporaryFile(TemporaryFile&&) = delete;
  TemporaryFile& operator=(TemporaryFile&&) = delete;

  ~TemporaryFile() { static_cast<void>(std::remove(path_.c_str())); }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

TEST(TraceSourceOpen, ReadsAFileWhateverItsName) {
  const TemporaryFile file("memstrata_trace_source.txt", gzip(line(0, 1, 2, {1})));

  auto reader = TraceReader::open(file.path());

  ASSERT_TRUE(reader.has_value());
  EXPECT_EQ(reader->name(), file.path());
  const auto records = read_all(*reader);
  ASSERT_TRUE(records.has_value());
  EXPECT_EQ(records->size(), 1U);
}

TEST(TraceSourceOpen, ADashReadsStandardInput) {
  const TemporaryFile file("memstrata_trace_stdin.txt", zstd(line(0, 1, 2, {1}) + "bad\n"));
  ASSERT_NE(std::freopen(file.path().c_str(), "rb", stdin), nullptr);

  auto reader = TraceReader::open("-");

  ASSERT_TRUE(reader.has_value());
  EXPECT_EQ(reader->name(), "<stdin>");
  EXPECT_TRUE(reader->next().has_value());
  const auto bad = reader->next();
  ASSERT_FALSE(bad.has_value());
  EXPECT_TRUE(bad.error().message().starts_with("<stdin> line 2 (byte 73): "))
      << bad.error().message();
}

class BrokenBuffer final : public std::streambuf {
 protected:
  int_type underflow() override { throw std::runtime_error("the disk is gone"); }
};

TEST(TraceSourceStream, ABadStreamIsATypedError) {
  BrokenBuffer buffer;
  std::istream stream(&buffer);

  const auto reader = TraceReader::from(stream, "a stream");

  ASSERT_FALSE(reader.has_value());
  const auto* error = std::get_if<TraceUnavailable>(&reader.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->source.view(), "a stream");
  EXPECT_STREQ(error->call, "istream::read");
}

TEST(TraceSourceStream, AStreamThatThrowsIsATypedError) {
  BrokenBuffer buffer;
  std::istream stream(&buffer);
  stream.exceptions(std::ios::badbit);

  const auto reader = TraceReader::from(stream, "a stream");

  ASSERT_FALSE(reader.has_value());
  const auto* error = std::get_if<TraceUnavailable>(&reader.error().kind);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->reason.view(), "the disk is gone");
}

// Gives one good line, then throws.
template <class Thrown>
class ThrowingSource final : public TraceSource {
 public:
  [[nodiscard]] Result<std::size_t, TraceError> read(std::span<char> buffer) override {
    if (std::exchange(has_given_, true)) {
      throw Thrown();
    }
    return line(0, 1, 2, {1}).copy(buffer.data(), buffer.size());
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "throwing"; }

 private:
  bool has_given_ = false;
};

struct Failure : std::runtime_error {
  Failure() : std::runtime_error("gone") {}
};

TEST(TraceReaderNext, ASourceThatThrowsBecomesAFinalError) {
  auto reader = TraceReader::from(std::make_unique<ThrowingSource<Failure>>());
  ASSERT_TRUE(reader.has_value());
  ASSERT_TRUE(reader->next().has_value());

  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto record = reader->next();

    ASSERT_FALSE(record.has_value());
    const auto* error = std::get_if<TraceUnavailable>(&record.error().kind);
    ASSERT_NE(error, nullptr);
    EXPECT_STREQ(error->call, "TraceSource::read");
    EXPECT_EQ(error->reason.view(), "gone");
  }
}

TEST(TraceReaderNext, NoMemoryBecomesATypedErrorWithThePlace) {
  auto reader = TraceReader::from(std::make_unique<ThrowingSource<std::bad_alloc>>());
  ASSERT_TRUE(reader.has_value());
  ASSERT_TRUE(reader->next().has_value());

  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto record = reader->next();

    ASSERT_FALSE(record.has_value());
    const auto* error = std::get_if<TraceTooLarge>(&record.error().kind);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->at.source.view(), "throwing");
    EXPECT_EQ(error->distinct_blocks, 1U);
    EXPECT_EQ(error->reason.view(), "there is no memory left");
  }
}

}  // namespace
}  // namespace memstrata
