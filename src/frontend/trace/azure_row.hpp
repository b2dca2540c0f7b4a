// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "frontend/trace/line_defect.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata::detail {

/// The first line of an Azure LLM trace.
inline constexpr std::string_view azure_header = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// A row of an Azure LLM trace.
struct AzureRow {
  std::int64_t time_ns = 0;  ///< Since 1970-01-01 00:00 UTC, exactly.
  std::uint64_t context_tokens = 0;
  std::uint64_t generated_tokens = 0;
};

/// Reads `2023-11-16 18:15:46.6805900,374,44`: up to nine digits behind the second, `T` for the blank, and `Z` or
/// `+hh:mm` behind the time are understood. Years from 1970 to 2200.
[[nodiscard]] Result<AzureRow, LineDefect> parse_azure_row(std::string_view row);

}  // namespace memstrata::detail
