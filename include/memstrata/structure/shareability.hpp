// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "memstrata/core/bytes.hpp"

namespace memstrata {

/// How the keys and values of a sequence lie in memory.
enum class KvLayout : std::uint8_t {
  head_major,   ///< One run per layer, K or V, and head.
  seq_major,    ///< One run per layer and K or V.
  token_major,  ///< One run for everything.
};

/// The shape of a key-value cache.
struct KvShape {
  std::uint64_t layers;
  std::uint64_t kv_heads;
  std::uint64_t head_dim;
  Bytes element;  ///< Bytes of one number.
};

/// What one token adds: layers * 2 * heads * dimension * element; the same in each layout. Saturates.
[[nodiscard]] Bytes bytes_per_token(const KvShape& shape) noexcept;

/// A prefix as it lies in memory: so many runs, each contiguous.
struct PrefixFragments {
  std::uint64_t fragments;
  Bytes contiguous_bytes_per_token;  ///< In each fragment.
};

/// The fragments of a layout; fragments * contiguous bytes is `bytes_per_token`. Saturates.
[[nodiscard]] PrefixFragments prefix_fragments(const KvShape& shape, KvLayout layout) noexcept;

/// How much of a prefix can be shared by mapping: only granules that lie wholly inside it. The rest of each
/// fragment is private to every sequence. All products saturate.
struct Shareability {
  std::uint64_t fragments;
  Bytes fragment_bytes;
  Bytes granule;
  std::uint64_t granules_per_fragment;  ///< Whole ones, rounded down.
  std::uint64_t map_operations;         ///< Mapping calls for one more sequence, one per granule.
  Bytes waste;                          ///< Private bytes of each sequence that are prefix content.

  [[nodiscard]] bool is_shareable() const noexcept { return granules_per_fragment != 0; }

  /// Bytes that one sharer maps instead of holding.
  [[nodiscard]] Bytes shared_bytes() const noexcept;

  /// Why the prefix cannot be shared, with the numbers; empty if it can.
  [[nodiscard]] std::string reason() const;
};

/// For any arrangement that can be described as fragments of equal size. A granule of zero means that the
/// platform cannot map: nothing is shareable and all is waste.
[[nodiscard]] Shareability shareability(std::uint64_t fragments,
                                        Bytes fragment_bytes,
                                        Bytes granule) noexcept;

/// For a prefix of `tokens` in a known layout.
[[nodiscard]] Shareability shareability(const KvShape& shape,
                                        KvLayout layout,
                                        std::uint64_t tokens,
                                        Bytes granule) noexcept;

/// How many sequences a budget holds if each keeps its own copy of the prefix. The sum of `prefix` and `owned`,
/// what a sequence holds for itself, is above zero.
[[nodiscard]] std::uint64_t sequences_without_sharing(Bytes budget,
                                                      Bytes prefix,
                                                      Bytes owned) noexcept;

/// How many sequences a budget holds if one keeps the prefix and the others map it: one more than fit beside it.
/// `owned` is above zero. Zero if not even the prefix fits.
[[nodiscard]] std::uint64_t sequences_with_sharing(Bytes budget,
                                                   Bytes prefix,
                                                   Bytes owned) noexcept;

}  // namespace memstrata
