// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/trace/trace_statistics.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "frontend/trace/block_index.hpp"
#include "frontend/trace/json_line.hpp"
#include "frontend/trace/stack_distance.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata {
namespace {

constexpr std::array<std::uint64_t, 5> conversation_sizes = {1'000, 3'000, 10'000, 30'000, 50'000};

// The smallest value that at least `percent` of all values do not exceed; reorders `values`.
std::uint64_t nearest_rank(std::vector<std::uint32_t>& values, std::size_t percent) {
  if (values.empty()) {
    return 0;
  }
  const std::size_t rank = std::max<std::size_t>(1, (values.size() * percent + 99) / 100);
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::ranges::nth_element(values, at);
  return *at;
}

TraceLengths lengths_of(std::vector<std::uint32_t> values) {
  const std::uint64_t sum = std::accumulate(values.begin(), values.end(), std::uint64_t{0});
  return {
      .p50 = nearest_rank(values, 50),
      .p90 = nearest_rank(values, 90),
      .p99 = nearest_rank(values, 99),
      .max = nearest_rank(values, 100),
      .mean = values.empty() ? 0.0 : static_cast<double>(sum) / static_cast<double>(values.size())};
}

// Different texts, by 64 bits of their hash.
void count_name(detail::BlockIndex& names, const std::string& name) {
  if (!name.empty()) {
    static_cast<void>(names.insert(detail::content_key(name).low));
  }
}

}  // namespace

class TraceAnalyzer::State {
 public:
  void add(const TraceRecord& record);
  [[nodiscard]] std::uint64_t hits(std::uint64_t blocks) const;
  [[nodiscard]] TraceStatistics statistics() const;

  [[nodiscard]] std::uint64_t requests() const noexcept { return totals_.requests; }

  [[nodiscard]] std::uint64_t distinct_blocks() const noexcept { return index_.size(); }

 private:
  void add_block(std::uint64_t id, bool is_full, std::uint32_t now_ms);

  TraceStatistics totals_;  // What needs only sums; the rest is filled in by `statistics`.
  detail::BlockIndex index_;
  detail::StackDistance distance_;
  std::vector<std::uint64_t> hits_at_;  // By stack distance.
  std::vector<std::uint32_t> last_ms_;  // By block: its last use.
  std::vector<std::uint32_t> gaps_ms_;  // One per hit.
  std::vector<std::uint32_t> inputs_;   // One per request.
  std::vector<std::uint32_t> outputs_;  // One per request.
  std::vector<bool> was_reused_;        // By block.
  detail::BlockIndex tenants_;
  detail::BlockIndex sessions_;
};

void TraceAnalyzer::State::add(const TraceRecord& record) {
  inputs_.push_back(static_cast<std::uint32_t>(record.input_tokens));
  outputs_.push_back(static_cast<std::uint32_t>(record.output_tokens));
  if (totals_.requests == 0 || record.arrival != totals_.span) {
    ++totals_.distinct_arrivals;
  }
  totals_.span = record.arrival;
  ++totals_.requests;
  totals_.input_tokens += record.input_tokens;
  totals_.output_tokens += record.output_tokens;
  totals_.largest_request_tokens =
      std::max(totals_.largest_request_tokens, record.input_tokens + record.output_tokens);
  count_name(tenants_, record.tenant);
  count_name(sessions_, record.session);
  const auto now_ms = static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(record.arrival).count());
  for (std::size_t block = 0; block < record.blocks.size(); ++block) {
    const bool is_full = (block + 1) * trace_block_tokens <= record.input_tokens;
    add_block(record.blocks[block], is_full, now_ms);
  }
}

void TraceAnalyzer::State::add_block(std::uint64_t id, bool is_full, std::uint32_t now_ms) {
  const auto [block, is_new] = index_.insert(id);
  if (is_new) {
    last_ms_.push_back(now_ms);
    was_reused_.push_back(false);
  }
  const auto distance = distance_.use(block);
  ++totals_.block_refs;
  if (!distance) {
    return;
  }
  if (*distance >= hits_at_.size()) {
    hits_at_.resize(*distance + 1);
  }
  ++hits_at_[*distance];
  totals_.unlimited_full_hits += is_full ? 1 : 0;
  was_reused_[block] = true;
  gaps_ms_.push_back(now_ms - last_ms_[block]);
  last_ms_[block] = now_ms;
}

std::uint64_t TraceAnalyzer::State::hits(std::uint64_t blocks) const {
  const std::span<const std::uint64_t> within(hits_at_.data(),
                                              std::min<std::uint64_t>(blocks, hits_at_.size()));
  return std::accumulate(within.begin(), within.end(), std::uint64_t{0});
}

TraceStatistics TraceAnalyzer::State::statistics() const {
  TraceStatistics result = totals_;
  result.unique_blocks = index_.size();
  result.unlimited_hits = result.block_refs - result.unique_blocks;
  result.blocks_used_once = static_cast<std::uint64_t>(std::ranges::count(was_reused_, false));
  result.tenants = tenants_.size();
  result.sessions = sessions_.size();
  result.input = lengths_of(inputs_);
  result.output = lengths_of(outputs_);
  std::vector<std::uint32_t> gaps = gaps_ms_;
  result.reuse_gap_p50 = std::chrono::milliseconds(nearest_rank(gaps, 50));
  result.reuse_gap_p90 = std::chrono::milliseconds(nearest_rank(gaps, 90));
  return result;
}

std::span<const std::uint64_t> default_hit_curve_sizes() noexcept {
  return conversation_sizes;
}

TraceAnalyzer::TraceAnalyzer() : state_(std::make_unique<State>()) {}

TraceAnalyzer::TraceAnalyzer(TraceAnalyzer&& other) noexcept = default;
TraceAnalyzer& TraceAnalyzer::operator=(TraceAnalyzer&& other) noexcept = default;
TraceAnalyzer::~TraceAnalyzer() = default;

Result<void, TraceError> TraceAnalyzer::add(const TraceRecord& record) {
  try {
    state_->add(record);
  } catch (const std::exception&) {
    return fail(TraceError(
        TraceTooLarge{.at = {.source = "the trace", .line = state_->requests(), .offset = {}},
                      .distinct_blocks = state_->distinct_blocks(),
                      .reason = "there is no memory left for the statistics"}));
  }
  return {};
}

std::uint64_t TraceAnalyzer::hits(std::uint64_t blocks) const {
  return state_->hits(blocks);
}

TraceStatistics TraceAnalyzer::statistics(std::span<const std::uint64_t> sizes) const {
  TraceStatistics result = state_->statistics();
  result.hit_curve.reserve(sizes.size());
  for (const std::uint64_t blocks : sizes) {
    result.hit_curve.push_back({.blocks = blocks, .hits = state_->hits(blocks)});
  }
  return result;
}

}  // namespace memstrata
