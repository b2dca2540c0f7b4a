// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_reader.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"
#include "memstrata/frontend/trace/trace_source.hpp"

namespace memstrata::test {

/// A source that gives `text`, a few bytes at a time, so that lines and archives lie across reads.
class TextSource final : public TraceSource {
 public:
  explicit TextSource(std::string text, std::size_t at_once = 7)
      : text_(std::move(text)), at_once_(at_once) {}

  [[nodiscard]] Result<std::size_t, TraceError> read(std::span<char> buffer) override {
    const std::size_t count = text_.copy(buffer.data(), std::min(buffer.size(), at_once_), given_);
    given_ += count;
    return count;
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "test.trace"; }

 private:
  std::string text_;
  std::size_t at_once_;
  std::size_t given_ = 0;
};

/// What came out of a text: the records before the first error, and that error.
struct Outcome {
  std::vector<TraceRecord> records;
  std::uint64_t skipped = 0;
  std::optional<TraceError> error;

  /// The error as an `E`, or null.
  template <class E>
  [[nodiscard]] const E* as() const {
    return error ? std::get_if<E>(&error->kind) : nullptr;
  }
};

inline Outcome read_source(std::unique_ptr<TraceSource> source,
                           const TraceReadOptions& options = {}) {
  Outcome outcome;
  auto reader = TraceReader::from(std::move(source), options);
  if (!reader) {
    outcome.error = std::move(reader).error();
    return outcome;
  }
  while (true) {
    auto record = reader->next();
    outcome.skipped = reader->skipped();
    if (!record) {
      outcome.error = std::move(record).error();
      return outcome;
    }
    if (!*record) {
      return outcome;
    }
    outcome.records.push_back(**std::move(record));
  }
}

inline Outcome read_text(std::string text, const TraceReadOptions& options = {}) {
  return read_source(std::make_unique<TextSource>(std::move(text)), options);
}

/// A line of a Mooncake trace.
inline std::string line(std::uint64_t timestamp,
                        std::uint64_t input,
                        std::uint64_t output,
                        const std::vector<std::uint64_t>& ids) {
  std::ostringstream text;
  text << R"({"timestamp": )" << timestamp << R"(, "input_length": )" << input
       << R"(, "output_length": )" << output << R"(, "hash_ids": [)";
  for (std::size_t i = 0; i < ids.size(); ++i) {
    text << (i == 0 ? "" : ", ") << ids[i];
  }
  text << "]}\n";
  return text.str();
}

}  // namespace memstrata::test
