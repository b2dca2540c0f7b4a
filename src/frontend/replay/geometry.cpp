// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/replay/geometry.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "frontend/replay/names.hpp"
#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/trace/trace_record.hpp"

namespace memstrata {
namespace {

// R15: scaled bytes per token are whole cache lines.
constexpr Bytes scaled_rounding{64};

// Far above any model; keeps every product of a check below 2^64.
constexpr std::uint64_t most_layers = 1U << 16U;
constexpr std::uint64_t most_elements = 1U << 20U;
constexpr std::uint64_t most_scale = 1U << 20U;

Bytes scaled(Bytes bytes, std::uint64_t scale) noexcept {
  if (scale <= 1) {
    return bytes;
  }
  const Bytes part{bytes.value / scale + (bytes.value % scale == 0 ? 0 : 1)};
  return align_up(part, scaled_rounding).value_or(part);
}

Result<void, ReplayError> bounded(const char* field,
                                  std::uint64_t value,
                                  std::uint64_t least,
                                  std::uint64_t most,
                                  ErrorText expected) {
  if (value < least || value > most) {
    return fail(
        ReplayError(BadGeometry{.field = field, .value = value, .expected = std::move(expected)}));
  }
  return {};
}

}  // namespace

std::string_view to_string(KvDtype dtype) noexcept {
  switch (dtype) {
    case KvDtype::f32:
      return "f32";
    case KvDtype::f16:
      return "f16";
    case KvDtype::bf16:
      return "bf16";
    case KvDtype::fp8:
      return "fp8";
    case KvDtype::int8:
      return "int8";
  }
  std::unreachable();
}

std::optional<KvDtype> parse_kv_dtype(std::string_view name) noexcept {
  struct Name {
    std::string_view text;
    KvDtype dtype;
  };

  static constexpr std::array names{Name{.text = "f32", .dtype = KvDtype::f32},
                                    Name{.text = "fp32", .dtype = KvDtype::f32},
                                    Name{.text = "float32", .dtype = KvDtype::f32},
                                    Name{.text = "f16", .dtype = KvDtype::f16},
                                    Name{.text = "fp16", .dtype = KvDtype::f16},
                                    Name{.text = "float16", .dtype = KvDtype::f16},
                                    Name{.text = "bf16", .dtype = KvDtype::bf16},
                                    Name{.text = "bfloat16", .dtype = KvDtype::bf16},
                                    Name{.text = "fp8", .dtype = KvDtype::fp8},
                                    Name{.text = "int8", .dtype = KvDtype::int8}};
  for (const Name& candidate : names) {
    if (replay_detail::same_name(candidate.text, name)) {
      return candidate.dtype;
    }
  }
  return std::nullopt;
}

Bytes element_size(KvDtype dtype) noexcept {
  switch (dtype) {
    case KvDtype::f32:
      return Bytes{4};
    case KvDtype::f16:
    case KvDtype::bf16:
      return Bytes{2};
    case KvDtype::fp8:
    case KvDtype::int8:
      return Bytes{1};
  }
  std::unreachable();
}

std::string_view to_string(KvLayout layout) noexcept {
  switch (layout) {
    case KvLayout::token_major:
      return "token-major";
    case KvLayout::layer_major:
      return "layer-major";
    case KvLayout::layer_kv_major:
      return "layer-kv-major";
  }
  std::unreachable();
}

Result<void, ReplayError> KvGeometry::check() const {
  MEMSTRATA_TRY_VOID(bounded("layers", layers, 1, most_layers, "1 to 65536"));
  if (latent_dim == 0) {
    MEMSTRATA_TRY_VOID(bounded("kv-heads", kv_heads, 1, most_layers, "1 to 65536"));
    MEMSTRATA_TRY_VOID(bounded("head-dim", head_dim, 1, most_layers, "1 to 65536"));
    MEMSTRATA_TRY_VOID(bounded("rope-dim", rope_dim, 0, 0, "0 without a latent-dim"));
    MEMSTRATA_TRY_VOID(bounded("kv-heads",
                               std::uint64_t{kv_heads} * head_dim,
                               1,
                               most_elements,
                               "kv-heads times head-dim of at most 1048576"));
  } else {
    MEMSTRATA_TRY_VOID(bounded("kv-heads", kv_heads, 0, 0, "0 with a latent-dim"));
    MEMSTRATA_TRY_VOID(bounded("head-dim", head_dim, 0, 0, "0 with a latent-dim"));
    MEMSTRATA_TRY_VOID(bounded("latent-dim", latent_dim, 1, most_elements, "at most 1048576"));
    MEMSTRATA_TRY_VOID(bounded("rope-dim", rope_dim, 0, most_elements, "at most 1048576"));
  }
  MEMSTRATA_TRY_VOID(
      bounded("sliding-layers", sliding_layers, 0, layers, "at most the number of layers"));
  if (sliding_layers != 0) {
    MEMSTRATA_TRY_VOID(bounded(
        "window", window, 1, std::uint64_t{1} << 31U, "1 to 2^31 tokens with sliding layers"));
  }
  if (bytes_per_layer().value % sizeof(std::uint64_t) != 0) {
    return fail(ReplayError(BadGeometry{.field = "head-dim",
                                        .value = bytes_per_layer().value,
                                        .expected = "a multiple of 8 bytes per layer and token"}));
  }
  return bounded("scale", scale, 1, most_scale, "1/1 to 1/1048576");
}

Bytes KvGeometry::bytes_per_layer() const noexcept {
  const Bytes element = element_size(dtype);
  return latent_dim != 0 ? element * (std::uint64_t{latent_dim} + rope_dim)
                         : element * 2 * (std::uint64_t{kv_heads} * head_dim);
}

Bytes KvGeometry::full_bytes_per_token() const noexcept {
  return scaled(bytes_per_layer() * (layers - std::min(sliding_layers, layers)), scale);
}

Bytes KvGeometry::sliding_bytes_per_token() const noexcept {
  return scaled(bytes_per_layer() * std::min(sliding_layers, layers), scale);
}

Bytes KvGeometry::kv_bytes_per_token() const noexcept {
  return full_bytes_per_token() + sliding_bytes_per_token();
}

Bytes KvGeometry::block_bytes() const noexcept {
  return full_bytes_per_token() * trace_block_tokens;
}

Bytes KvGeometry::sequence_bytes(std::uint64_t tokens) const noexcept {
  return saturating_add(saturating_mul(full_bytes_per_token(), tokens),
                        saturating_mul(sliding_bytes_per_token(), std::min(tokens, window)));
}

LayoutFigures layout_figures(const KvGeometry& geometry,
                             KvLayout layout,
                             Bytes granule,
                             std::span<const std::uint64_t> lengths) noexcept {
  const std::uint64_t full_layers = geometry.layers - geometry.sliding_layers;
  const std::uint64_t parts =
      layout == KvLayout::layer_kv_major && geometry.latent_dim == 0 ? 2 : 1;
  // Ranges of each kind; with one range per sequence sliding layers still have a range of their own.
  const bool split = layout != KvLayout::token_major;
  const std::uint64_t full_ranges = split ? full_layers * parts : (full_layers != 0 ? 1 : 0);
  const std::uint64_t sliding_ranges =
      split ? geometry.sliding_layers * parts : (geometry.sliding_layers != 0 ? 1 : 0);
  const auto share = [](Bytes bytes, std::uint64_t ranges) {
    return ranges == 0 ? Bytes{} : Bytes{bytes.value / ranges};
  };
  const Bytes full = share(geometry.full_bytes_per_token(), full_ranges);
  const Bytes sliding = share(geometry.sliding_bytes_per_token(), sliding_ranges);
  const auto loss = [granule](Bytes bytes) {
    return static_cast<double>((granule.value - bytes.value % granule.value) % granule.value);
  };
  double waste = 0;
  for (const std::uint64_t length : lengths) {
    const std::uint64_t kept = std::min(length, geometry.window);
    waste += static_cast<double>(full_ranges) * loss(saturating_mul(full, length));
    waste += static_cast<double>(sliding_ranges) * loss(saturating_mul(sliding, kept));
  }
  const std::uint64_t ranges = full_ranges + sliding_ranges;
  const Bytes block = saturating_mul(full, trace_block_tokens);
  return {.layout = layout,
          .ranges = ranges,
          .floor = saturating_mul(granule, ranges),
          .whole_granule_block = is_multiple(block, granule),
          .mean_waste_bytes = lengths.empty() ? 0.0 : waste / static_cast<double>(lengths.size())};
}

}  // namespace memstrata
