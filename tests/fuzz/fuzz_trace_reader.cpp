// SPDX-License-Identifier: Apache-2.0
// Whatever bytes come: the reader answers with records or a typed error; records obey the rules of a trace; the
// writer accepts them and they come back equal; the import neither crashes nor writes what cannot be read.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"
#include "memstrata/frontend/trace/trace_import.hpp"
#include "memstrata/frontend/trace/trace_reader.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"
#include "memstrata/frontend/trace/trace_source.hpp"
#include "memstrata/frontend/trace/trace_statistics.hpp"
#include "memstrata/frontend/trace/trace_writer.hpp"

namespace {

using namespace memstrata;

// An archive of a few bytes may hold a text of many, which would only make the fuzzer slow.
constexpr std::size_t longest_text = std::size_t{64} * 1024;
constexpr Bytes longest_line = 8_KiB;

class MemorySource final : public TraceSource {
 public:
  explicit MemorySource(std::string_view bytes) : rest_(bytes) {}

  [[nodiscard]] Result<std::size_t, TraceError> read(std::span<char> buffer) override {
    const std::size_t count = rest_.copy(buffer.data(), buffer.size());
    rest_.remove_prefix(count);
    return count;
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "fuzz"; }

 private:
  std::string_view rest_;
};

class LimitedSource final : public TraceSource {
 public:
  explicit LimitedSource(std::unique_ptr<TraceSource> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] Result<std::size_t, TraceError> read(std::span<char> buffer) override {
    const std::size_t most = std::min(buffer.size(), longest_text - given_);
    if (most == 0) {
      return 0;
    }
    MEMSTRATA_TRY(const std::size_t count, inner_->read(buffer.first(most)));
    given_ += count;
    return count;
  }

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }

 private:
  std::unique_ptr<TraceSource> inner_;
  std::size_t given_ = 0;
};

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

// The text in `bytes`, or null if they begin an archive that cannot be opened.
std::unique_ptr<TraceSource> text_of(std::string_view bytes) {
  auto source = decompress(std::make_unique<MemorySource>(bytes));
  if (!source) {
    require(!source.error().message().empty());
    return nullptr;
  }
  return std::make_unique<LimitedSource>(*std::move(source));
}

std::vector<TraceRecord> read(std::string_view bytes, bool skip_bad) {
  std::vector<TraceRecord> records;
  auto source = text_of(bytes);
  if (source == nullptr) {
    return records;
  }
  auto reader = TraceReader::from(
      std::move(source), {.skip_bad = skip_bad, .max_records = {}, .max_line = longest_line});
  if (!reader) {
    require(!reader.error().message().empty());
    return records;
  }
  while (true) {
    auto record = reader->next();
    if (!record) {
      require(!record.error().message().empty());
      require(!skip_bad || !std::holds_alternative<BadTraceRecord>(record.error().kind));
      return records;
    }
    if (!*record) {
      require(records.size() == reader->records());
      return records;
    }
    records.push_back(**std::move(record));
  }
}

void check_rules(const std::vector<TraceRecord>& records) {
  std::chrono::nanoseconds last(0);
  for (const TraceRecord& record : records) {
    require(record.arrival >= last);
    last = record.arrival;
    require(record.input_tokens >= 1 && record.input_tokens <= trace_largest_number);
    require(record.output_tokens <= trace_largest_number);
    require(record.blocks.empty() ||
            record.blocks.size() ==
                (record.input_tokens + trace_block_tokens - 1) / trace_block_tokens);
  }
}

void check_round_trip(const std::vector<TraceRecord>& records) {
  if (records.empty()) {
    return;
  }
  std::ostringstream out;
  TraceWriter writer(
      out, "out", {.unit = TraceTimeUnit::nanoseconds, .synthetic = false, .made_by = "fuzz"});
  TraceAnalyzer analyzer;
  for (const TraceRecord& record : records) {
    require(writer.write(record).has_value());
    require(analyzer.add(record).has_value());
  }
  require(writer.finish().has_value());
  const auto statistics = analyzer.statistics();
  require(statistics.unlimited_hits == analyzer.hits(statistics.unique_blocks));
  auto again = TraceReader::from(std::make_unique<MemorySource>(out.view()));
  require(again.has_value());
  const auto back = read_all(*again);
  require(back.has_value() && back->size() == records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    const TraceRecord& a = records[i];
    const TraceRecord& b = (*back)[i];
    require(a.arrival == b.arrival && a.input_tokens == b.input_tokens &&
            a.output_tokens == b.output_tokens && a.blocks == b.blocks && a.tenant == b.tenant &&
            a.session == b.session);
  }
}

void check_import(std::string_view bytes) {
  auto source = text_of(bytes);
  if (source == nullptr) {
    return;
  }
  std::ostringstream out;
  const auto summary = import_trace(
      std::move(source), out, "out", {.skip_bad = true, .max_line = longest_line, .made_by = ""});
  if (!summary) {
    require(!std::holds_alternative<BadTraceRecord>(summary.error().kind));
    return;
  }
  auto reader = TraceReader::from(std::make_unique<MemorySource>(out.view()));
  require(reader.has_value());
  const auto records = read_all(*reader);
  require(records.has_value() && records->size() == summary->records);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static_cast<void>(read(bytes, false));
  const std::vector<TraceRecord> records = read(bytes, true);
  check_rules(records);
  check_round_trip(records);
  check_import(bytes);
  return 0;
}
