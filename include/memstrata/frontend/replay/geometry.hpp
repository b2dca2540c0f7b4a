// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"

namespace memstrata {

/// Number format of one element of KV.
enum class KvDtype : std::uint8_t { f32, f16, bf16, fp8, int8 };

/// The stable name: `f32`, `f16`, `bf16`, `fp8`, `int8`.
[[nodiscard]] std::string_view to_string(KvDtype dtype) noexcept;

/// The format of that name (also `fp16`, `fp32`, `float16`, `bfloat16`), without regard to case, or nothing.
[[nodiscard]] std::optional<KvDtype> parse_kv_dtype(std::string_view name) noexcept;

/// Bytes of one element.
[[nodiscard]] Bytes element_size(KvDtype dtype) noexcept;

/// Where the bytes of one token lie when a sequence is stored.
enum class KvLayout : std::uint8_t {
  token_major,     ///< One range per sequence; a token's layers lie side by side.
  layer_major,     ///< One range per layer; K and V of a token lie side by side.
  layer_kv_major,  ///< Two ranges per layer, one for K and one for V.
};

/// The stable name: `token-major`, `layer-major`, `layer-kv-major`.
[[nodiscard]] std::string_view to_string(KvLayout layout) noexcept;

/// What decides how many bytes of KV a token needs. A value; the defaults describe no model. Thread-compatible.
struct KvGeometry {
  std::string name;            ///< As published, or `custom`.
  std::uint32_t layers = 0;    ///< All layers, sliding ones included.
  std::uint32_t kv_heads = 0;  ///< 0 with latent attention.
  std::uint32_t head_dim = 0;  ///< 0 with latent attention.
  KvDtype dtype = KvDtype::bf16;
  std::uint32_t sliding_layers = 0;  ///< Layers that keep only the last `window` tokens.
  std::uint64_t window = 0;          ///< Tokens that a sliding layer keeps; 0 if there is none.
  std::uint32_t latent_dim = 0;      ///< Elements of the latent vector; 0 without latent attention.
  std::uint32_t rope_dim = 0;        ///< Elements of the rotary part beside the latent vector.
  std::uint64_t published_context =
      0;                    ///< Longest sequence that the model's authors state; 0 if unknown.
  std::string source;       ///< Where the figures come from.
  std::uint64_t scale = 1;  ///< Bytes per token are divided by this number (R15).

  /// Whether the figures make a usable geometry. Errors: BadGeometry naming the field.
  [[nodiscard]] Result<void, ReplayError> check() const;

  /// Bytes of one token in one full-attention or sliding layer, unscaled.
  [[nodiscard]] Bytes bytes_per_layer() const noexcept;

  /// Bytes per token of the layers that keep every token, scaled and then rounded up to 64.
  [[nodiscard]] Bytes full_bytes_per_token() const noexcept;

  /// Bytes per token of the sliding layers while the token is inside the window; scaled and rounded likewise.
  [[nodiscard]] Bytes sliding_bytes_per_token() const noexcept;

  /// Bytes per token as published tables state them: full and sliding layers together.
  [[nodiscard]] Bytes kv_bytes_per_token() const noexcept;

  /// Bytes of the full-attention layers for a block of 512 tokens.
  [[nodiscard]] Bytes block_bytes() const noexcept;

  /// Bytes of a sequence of `tokens`: sliding layers hold at most `window` of them.
  [[nodiscard]] Bytes sequence_bytes(std::uint64_t tokens) const noexcept;
};

/// The geometries that are known by name, in the order of the documentation. Lives as long as the program.
[[nodiscard]] std::span<const KvGeometry> geometry_presets();

/// The preset of that name, without regard to case. Errors: UnknownModel with the names that exist.
[[nodiscard]] Result<KvGeometry, ReplayError> find_geometry(std::string_view name);

/// What a layout costs per sequence for one geometry and granule, by arithmetic.
struct LayoutFigures {
  KvLayout layout;
  std::uint64_t ranges;      ///< Ranges per sequence, each rounded up to granules on its own.
  Bytes floor;               ///< Physical bytes of a sequence of one token.
  bool whole_granule_block;  ///< Whether 512 tokens are a whole number of granules in every range.
  double mean_waste_bytes;   ///< Mean rounding loss per sequence over the lengths that were asked.

  friend bool operator==(const LayoutFigures&, const LayoutFigures&) = default;
};

/// The figures of `layout` over sequences of the given lengths (tokens). An empty list gives a mean of 0.
[[nodiscard]] LayoutFigures layout_figures(const KvGeometry& geometry,
                                           KvLayout layout,
                                           Bytes granule,
                                           std::span<const std::uint64_t> lengths) noexcept;

}  // namespace memstrata
