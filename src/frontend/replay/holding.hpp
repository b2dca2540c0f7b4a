// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "memstrata/core/bytes.hpp"
#include "memstrata/frontend/replay/geometry.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"

namespace memstrata::replay_detail {

/// Tokens of one page of the paged policy (R10).
inline constexpr std::uint64_t page_tokens = 16;

/// Pages of the paged policy are whole machine pages, so that each can be committed on its own.
inline constexpr Bytes machine_page{4096};

/// What one more token costs a request.
struct GrowthCost {
  Bytes taken;     ///< Needed in addition to what is held.
  Bytes returned;  ///< Given back once the copy is done.
  Bytes copied;
  std::uint64_t capacity;  ///< Tokens of room afterwards.
};

/// The arithmetic of one policy: how many physical bytes hold what. It holds no state and decides nothing.
///
/// A sequence is one range of full-attention bytes, token after token, and, with sliding layers, a second range of
/// at most `window` tokens. A block of the prompt is one prefix object. With granules that do not divide a block,
/// the object holds every granule that the block touches, the front of the first one being a copy of the path
/// before it; the request maps each granule from the object that completes it. Thread-compatible.
class Holding {
 public:
  /// `granule` is above zero; `context` is at least every request's length.
  Holding(ReplayPolicy policy, const KvGeometry& geometry, Bytes granule, std::uint64_t context);

  /// Whether the policy shares prompt blocks.
  [[nodiscard]] bool shares() const noexcept { return shares_; }

  /// Whether every request gets one slot of the whole context.
  [[nodiscard]] bool has_slots() const noexcept { return policy_ == ReplayPolicy::reserve_max; }

  /// Whether one pool in one address range serves every request.
  [[nodiscard]] bool has_pool() const noexcept { return policy_ == ReplayPolicy::paged; }

  /// Physical bytes of one slot.
  [[nodiscard]] Bytes slot() const noexcept { return rounded(context_); }

  /// Physical bytes of the object of the block at `depth`.
  [[nodiscard]] Bytes object(std::uint64_t depth) const noexcept;

  /// Granule-wise part of that object which a request maps without a copy.
  [[nodiscard]] Bytes mapped(std::uint64_t depth) const noexcept;

  /// Of `hits` blocks that are hit, how many are wholly mapped.
  [[nodiscard]] std::uint64_t mapped_blocks(std::uint64_t hits) const noexcept;

  /// Bytes of a run of `hits` blocks that are copied because a granule straddles its end.
  [[nodiscard]] Bytes seam(std::uint64_t hits) const noexcept;

  /// Tokens of room that a request of `tokens` gets at admission.
  [[nodiscard]] std::uint64_t initial_capacity(std::uint64_t tokens) const noexcept;

  /// The first capacity of at least `tokens` that doubling reaches from `input`; `tokens` itself for a policy that
  /// does not double.
  [[nodiscard]] std::uint64_t doubled_capacity(std::uint64_t input,
                                               std::uint64_t tokens) const noexcept;

  /// Physical bytes of a request's own part: `full_blocks` of its prompt lie in objects, it has room for
  /// `capacity` tokens in all. Of a policy with slots: the slot.
  [[nodiscard]] Bytes private_bytes(std::uint64_t full_blocks,
                                    std::uint64_t capacity) const noexcept;

  /// What the token after `tokens` costs a request with room for `capacity`.
  [[nodiscard]] GrowthCost growth(std::uint64_t full_blocks,
                                  std::uint64_t tokens,
                                  std::uint64_t capacity) const noexcept;

  /// R9: the most that a request ever needs at one time, alone on an empty budget.
  [[nodiscard]] Bytes alone(std::uint64_t full_blocks,
                            std::uint64_t input,
                            std::uint64_t output) const noexcept;

  /// Address space of one request with room for `capacity` tokens; 0 for a policy with one pool for all.
  [[nodiscard]] Bytes reserved(std::uint64_t full_blocks, std::uint64_t capacity) const noexcept;

  /// Physical bytes of one page of the paged policy.
  [[nodiscard]] Bytes page() const noexcept { return page_; }

  /// Physical bytes of one page of its sliding layers.
  [[nodiscard]] Bytes sliding_page() const noexcept { return sliding_page_; }

  /// Live bytes of one block.
  [[nodiscard]] Bytes live_block() const noexcept { return block_; }

  /// Live bytes of a request's own part with `tokens` in all.
  [[nodiscard]] Bytes live_private(std::uint64_t full_blocks, std::uint64_t tokens) const noexcept;

  /// Live bytes that the token after `tokens` adds.
  [[nodiscard]] Bytes live_token(std::uint64_t tokens) const noexcept {
    return tokens < window_ ? full_ + sliding_ : full_;
  }

 private:
  [[nodiscard]] Bytes rounded(std::uint64_t tokens) const noexcept;
  [[nodiscard]] Bytes sliding_part(std::uint64_t tokens) const noexcept;

  ReplayPolicy policy_;
  bool shares_;
  Bytes granule_;
  Bytes page_;          // 16 tokens of full attention, rounded up to the machine's page
  Bytes sliding_page_;  // the same of the sliding layers
  Bytes full_;
  Bytes sliding_;
  Bytes block_;
  std::uint64_t window_;
  std::uint64_t context_;
};

}  // namespace memstrata::replay_detail
