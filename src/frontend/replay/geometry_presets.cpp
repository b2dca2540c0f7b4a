// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "frontend/replay/names.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/replay_error.hpp"
#include "memstrata/core/result.hpp"
#include "memstrata/frontend/replay/geometry.hpp"

namespace memstrata {
namespace {

/// A model with the same K and V heads in every layer.
KvGeometry dense(const char* name,
                 std::uint32_t layers,
                 std::uint32_t kv_heads,
                 std::uint32_t head_dim,
                 std::uint64_t context,
                 const char* source) {
  KvGeometry geometry;
  geometry.name = name;
  geometry.layers = layers;
  geometry.kv_heads = kv_heads;
  geometry.head_dim = head_dim;
  geometry.published_context = context;
  geometry.source = source;
  return geometry;
}

/// The same with layers that keep the last `window` tokens only.
KvGeometry windowed(KvGeometry geometry, std::uint32_t sliding_layers, std::uint64_t window) {
  geometry.sliding_layers = sliding_layers;
  geometry.window = window;
  return geometry;
}

/// A model that keeps one latent vector and a rotary part per token and layer.
KvGeometry latent(KvGeometry geometry, std::uint32_t latent_dim, std::uint32_t rope_dim) {
  geometry.latent_dim = latent_dim;
  geometry.rope_dim = rope_dim;
  return geometry;
}

// Source of every line: the model's published config.json (num_hidden_layers, num_key_value_heads, head_dim or
// hidden_size / num_attention_heads, max_position_embeddings, sliding_window and its pattern, kv_lora_rank,
// qk_rope_head_dim).
std::array<KvGeometry, 13> make_presets() {
  return {
      dense("Llama-3-8B", 32, 8, 128, 8'192, "meta-llama/Meta-Llama-3-8B config.json"),
      dense("Llama-3-70B", 80, 8, 128, 8'192, "meta-llama/Meta-Llama-3-70B config.json"),
      dense("Llama-3.1", 32, 8, 128, 131'072, "meta-llama/Llama-3.1-8B config.json"),
      dense("Qwen2.5-7B", 28, 4, 128, 131'072, "Qwen/Qwen2.5-7B config.json"),
      dense("Qwen3-8B", 36, 8, 128, 40'960, "Qwen/Qwen3-8B config.json"),
      dense("Qwen3-32B", 64, 8, 128, 40'960, "Qwen/Qwen3-32B config.json"),
      dense("Mistral-7B", 32, 8, 128, 32'768, "mistralai/Mistral-7B-v0.3 config.json (no window)"),
      windowed(dense("gpt-oss-20b", 24, 8, 64, 131'072, "openai/gpt-oss-20b config.json"), 12, 128),
      windowed(
          dense("Gemma-3-270M", 18, 1, 256, 32'768, "google/gemma-3-270m config.json"), 15, 512),
      windowed(dense("Gemma-3-27B",
                     62,
                     16,
                     128,
                     131'072,
                     "google/gemma-3-27b-pt config.json (5 sliding layers to 1 full one)"),
               52,
               1'024),
      dense("SmolLM2-135M", 30, 3, 64, 8'192, "HuggingFaceTB/SmolLM2-135M config.json"),
      latent(
          dense("DeepSeek-V3", 61, 0, 0, 163'840, "deepseek-ai/DeepSeek-V3 config.json"), 512, 64),
      dense("Llama-3.1-8B", 32, 8, 128, 131'072, "meta-llama/Llama-3.1-8B config.json"),
  };
}

}  // namespace

std::span<const KvGeometry> geometry_presets() {
  static const auto presets = make_presets();
  return presets;
}

Result<KvGeometry, ReplayError> find_geometry(std::string_view name) {
  std::string known;
  for (const KvGeometry& preset : geometry_presets()) {
    if (replay_detail::same_name(preset.name, name)) {
      return preset;
    }
    known += (known.empty() ? "" : ", ") + preset.name;
  }
  return fail(
      ReplayError(UnknownModel{.name = ErrorText::copy(name), .known = ErrorText::copy(known)}));
}

}  // namespace memstrata
