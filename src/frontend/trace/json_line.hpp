// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/trace/line_defect.hpp"

namespace memstrata::detail {

/// 128 bits of XXH3.
struct ContentKey {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  [[nodiscard]] friend bool operator==(const ContentKey&, const ContentKey&) = default;
};

/// The key of `bytes`.
[[nodiscard]] ContentKey content_key(std::string_view bytes) noexcept;

/// The fields that are looked for; all others are passed over, whatever is in them.
enum class LineKind : std::uint8_t {
  record,  ///< A line of a trace: record or header.
  log,     ///< A line that is imported.
};

/// What a line of JSON holds, as far as it was understood. A field that is null counts as absent.
struct JsonLine {
  bool is_header = false;  ///< It names a version of our format.
  std::optional<std::uint64_t> version;
  std::optional<std::uint64_t> block_tokens;
  std::optional<std::string> time_unit;
  std::optional<bool> synthetic;
  std::optional<std::string> made_by;

  std::optional<std::uint64_t> timestamp;  ///< In the unit of the trace; any origin in a log.
  std::optional<std::uint64_t> input_length;
  std::optional<std::uint64_t> output_length;
  std::optional<std::vector<std::uint64_t>> hash_ids;
  std::optional<std::string> tenant;
  std::optional<std::string> session;

  std::optional<std::vector<std::uint32_t>> token_ids;  ///< Logs only.
  std::optional<std::vector<ContentKey>>
      block_hashes;  ///< Logs only; the keys of what the log holds.

  std::optional<LineDefect> defect;  ///< The first one; what comes behind it was not read.
};

/// Reads one object of JSON. `largest_time` is the largest `timestamp`. Builds no tree, nests nothing, and keeps at
/// most what a good record can hold. Throws std::bad_alloc.
[[nodiscard]] JsonLine parse_json_line(std::string_view text,
                                       LineKind kind,
                                       std::uint64_t largest_time);

/// The defect of a line that lacks `field`.
[[nodiscard]] LineDefect missing_field(ErrorText field, ErrorText expected);

}  // namespace memstrata::detail
