// SPDX-License-Identifier: Apache-2.0
#include "frontend/replay/holding.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "memstrata/core/bytes.hpp"
#include "memstrata/frontend/replay/geometry.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata::replay_detail {
namespace {

Bytes up(Bytes bytes, Bytes unit) noexcept {
  return align_up(bytes, unit).value_or(align_down(Bytes::max(), unit));
}

std::uint64_t pages(std::uint64_t tokens) noexcept {
  return tokens / page_tokens + (tokens % page_tokens == 0 ? 0 : 1);
}

}  // namespace

Holding::Holding(ReplayPolicy policy,
                 const KvGeometry& geometry,
                 Bytes granule,
                 std::uint64_t context)
    : policy_(policy),
      shares_(policy == ReplayPolicy::paged || policy == ReplayPolicy::virtual_memory),
      granule_(granule),
      page_(up(geometry.full_bytes_per_token() * page_tokens, machine_page)),
      sliding_page_(up(geometry.sliding_bytes_per_token() * page_tokens, machine_page)),
      full_(geometry.full_bytes_per_token()),
      sliding_(geometry.sliding_bytes_per_token()),
      block_(full_ * trace_block_tokens),
      window_(geometry.sliding_layers == 0 ? 0 : geometry.window),
      context_(context) {}

Bytes Holding::sliding_part(std::uint64_t tokens) const noexcept {
  const std::uint64_t kept = std::min(tokens, window_);
  return policy_ == ReplayPolicy::paged ? saturating_mul(sliding_page_, pages(kept))
                                        : up(saturating_mul(sliding_, kept), granule_);
}

Bytes Holding::rounded(std::uint64_t tokens) const noexcept {
  return saturating_add(up(saturating_mul(full_, tokens), granule_), sliding_part(tokens));
}

Bytes Holding::object(std::uint64_t depth) const noexcept {
  if (policy_ == ReplayPolicy::paged) {
    return page_ * (trace_block_tokens / page_tokens);
  }
  return up(block_ * (depth + 1), granule_) - align_down(block_ * depth, granule_);
}

Bytes Holding::mapped(std::uint64_t depth) const noexcept {
  if (policy_ == ReplayPolicy::paged) {
    return page_ * (trace_block_tokens / page_tokens);
  }
  return align_down(block_ * (depth + 1), granule_) - align_down(block_ * depth, granule_);
}

std::uint64_t Holding::mapped_blocks(std::uint64_t hits) const noexcept {
  if (policy_ == ReplayPolicy::paged || block_ == Bytes{}) {
    return hits;
  }
  return align_down(block_ * hits, granule_).value / block_.value;
}

Bytes Holding::seam(std::uint64_t hits) const noexcept {
  if (policy_ == ReplayPolicy::paged) {
    return Bytes{};
  }
  return Bytes{(block_ * hits).value % granule_.value};
}

std::uint64_t Holding::initial_capacity(std::uint64_t tokens) const noexcept {
  return has_slots() ? context_ : tokens;
}

std::uint64_t Holding::doubled_capacity(std::uint64_t input, std::uint64_t tokens) const noexcept {
  if (policy_ != ReplayPolicy::realloc) {
    return tokens;
  }
  std::uint64_t capacity = input;
  while (capacity < tokens) {
    capacity *= 2;
  }
  return capacity;
}

Bytes Holding::private_bytes(std::uint64_t full_blocks, std::uint64_t capacity) const noexcept {
  switch (policy_) {
    case ReplayPolicy::reserve_max:
      return slot();
    case ReplayPolicy::realloc:
    case ReplayPolicy::concat:
      return rounded(capacity);
    case ReplayPolicy::paged:
      return saturating_add(
          saturating_mul(page_, pages(capacity - full_blocks * trace_block_tokens)),
          sliding_part(capacity));
    case ReplayPolicy::virtual_memory:
      return rounded(capacity) - align_down(block_ * full_blocks, granule_);
  }
  std::unreachable();
}

GrowthCost Holding::growth(std::uint64_t full_blocks,
                           std::uint64_t tokens,
                           std::uint64_t capacity) const noexcept {
  if (tokens < capacity && policy_ != ReplayPolicy::concat) {
    return {.taken = {}, .returned = {}, .copied = {}, .capacity = capacity};
  }
  if (shares_) {
    return {.taken = private_bytes(full_blocks, tokens + 1) - private_bytes(full_blocks, tokens),
            .returned = {},
            .copied = {},
            .capacity = tokens + 1};
  }
  const std::uint64_t larger =
      policy_ == ReplayPolicy::realloc ? 2 * std::max<std::uint64_t>(capacity, 1) : tokens + 1;
  return {.taken = private_bytes(full_blocks, larger),
          .returned = private_bytes(full_blocks, capacity),
          .copied = live_private(0, tokens),
          .capacity = larger};
}

Bytes Holding::alone(std::uint64_t full_blocks,
                     std::uint64_t input,
                     std::uint64_t output) const noexcept {
  if (shares_) {
    Bytes objects;
    for (std::uint64_t depth = 0; depth < full_blocks; ++depth) {
      objects = saturating_add(objects, object(depth));
    }
    return saturating_add(objects, private_bytes(full_blocks, input + output));
  }
  if (has_slots() || output == 0) {
    return private_bytes(full_blocks, input);
  }
  const std::uint64_t larger = doubled_capacity(input, input + output);
  const std::uint64_t smaller = policy_ == ReplayPolicy::realloc ? larger / 2 : larger - 1;
  return saturating_add(private_bytes(0, smaller), private_bytes(0, larger));
}

Bytes Holding::reserved(std::uint64_t full_blocks, std::uint64_t capacity) const noexcept {
  switch (policy_) {
    case ReplayPolicy::virtual_memory:
      return rounded(context_);
    case ReplayPolicy::paged:
      return Bytes{};
    case ReplayPolicy::reserve_max:
    case ReplayPolicy::realloc:
    case ReplayPolicy::concat:
      return private_bytes(full_blocks, capacity);
  }
  std::unreachable();
}

Bytes Holding::live_private(std::uint64_t full_blocks, std::uint64_t tokens) const noexcept {
  return full_ * (tokens - full_blocks * trace_block_tokens) + sliding_ * std::min(tokens, window_);
}

}  // namespace memstrata::replay_detail
