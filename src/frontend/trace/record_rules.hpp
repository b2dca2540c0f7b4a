// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "frontend/trace/block_index.hpp"
#include "frontend/trace/line_defect.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata::detail {

/// The longest name of a tenant or a session, in bytes.
inline constexpr std::size_t longest_name = 256;

/// The longest other text of our format, in bytes.
inline constexpr std::size_t longest_text = 4096;

/// The number of blocks of a prompt of `input_tokens`.
[[nodiscard]] std::uint64_t blocks_of(std::uint64_t input_tokens) noexcept;

/// The rules that hold between the records of a good trace, whatever its format. Single-threaded.
class RecordRules {
 public:
  /// Takes `record`, which arrived at `time` (nanoseconds from any origin), and sets its arrival to the time since
  /// the first record that was taken. A record without blocks has no ids, which is allowed.
  /// On a defect nothing is remembered of it. Throws std::bad_alloc, with nothing remembered.
  [[nodiscard]] Result<void, LineDefect> accept(std::int64_t time, TraceRecord& record);

  [[nodiscard]] std::size_t distinct_blocks() const noexcept { return index_.size(); }

 private:
  struct Node {
    std::uint32_t parent = 0;  // Index + 1 of the block before, or 0 for the first of a prompt.
    std::uint32_t fill = 0;
  };

  [[nodiscard]] std::optional<LineDefect> check_time(std::int64_t time) const;
  [[nodiscard]] std::optional<LineDefect> take_blocks(const TraceRecord& record);
  [[nodiscard]] LineDefect contradiction(std::uint64_t id,
                                         std::size_t position,
                                         Node known,
                                         Node now) const;
  void forget_down_to(std::size_t size) noexcept;

  BlockIndex index_;
  std::vector<Node> nodes_;
  std::optional<std::int64_t> origin_;
  std::int64_t last_ = 0;
};

}  // namespace memstrata::detail
