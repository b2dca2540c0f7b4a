// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata::replay_detail {

/// A full prompt block, numbered from 0 in the order of its first appearance.
using BlockIndex = std::uint32_t;

/// One request as the engine needs it.
struct InputRequest {
  std::int64_t arrival_ns;
  std::uint64_t input;
  std::uint64_t output;
  std::uint64_t first_block;  ///< Where its full blocks begin in the list of all.
  std::uint32_t full_blocks;  ///< 0 if the trace has no ids.
  std::uint32_t block_refs;   ///< Ids of the record, a partly filled one too.
};

/// The selection with block ids replaced by dense numbers, shared by the runs of all policies. Thread-compatible.
class ReplayInput {
 public:
  /// Reads the records once. Errors: EmptySelection; BadReplayOption("trace") if times go back, a prompt is
  /// empty or an id changes its parent.
  [[nodiscard]] static Result<ReplayInput, ReplayError> prepare(
      std::span<const TraceRecord> records);

  [[nodiscard]] std::size_t size() const noexcept { return requests_.size(); }

  [[nodiscard]] const InputRequest& request(std::size_t index) const noexcept {
    return requests_[index];
  }

  /// The full blocks of a request, root first.
  [[nodiscard]] std::span<const BlockIndex> path(std::size_t index) const noexcept {
    const InputRequest& request = requests_[index];
    return std::span(blocks_).subspan(request.first_block, request.full_blocks);
  }

  /// Distinct full blocks.
  [[nodiscard]] std::size_t block_count() const noexcept { return ids_.size(); }

  /// The trace's id of a block.
  [[nodiscard]] std::uint64_t id(BlockIndex block) const noexcept { return ids_[block]; }

  /// The largest input + output.
  [[nodiscard]] std::uint64_t longest() const noexcept { return longest_; }

  /// Whether any record has ids.
  [[nodiscard]] bool has_ids() const noexcept { return has_ids_; }

 private:
  ReplayInput() = default;

  std::vector<InputRequest> requests_;
  std::vector<BlockIndex> blocks_;
  std::vector<std::uint64_t> ids_;
  std::uint64_t longest_ = 0;
  bool has_ids_ = false;
};

}  // namespace memstrata::replay_detail
