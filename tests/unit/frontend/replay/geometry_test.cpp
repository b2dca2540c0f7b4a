// SPDX-License-Identifier: Apache-2.0
#include "memstrata/frontend/replay/geometry.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/error/replay_error.hpp"

namespace memstrata {
namespace {

struct Published {
  const char* name;
  std::uint64_t full;
  std::uint64_t sliding;
};

// Bytes per token: 2 x layers x heads x dimension x 2 bytes, or layers x (latent + rotary) x 2 bytes.
constexpr std::array published{
    Published{"llama-3-8b", 131'072, 0},
    Published{"LLAMA-3-70B", 327'680, 0},
    Published{"Llama-3.1", 131'072, 0},
    Published{"Llama-3.1-8B", 131'072, 0},
    Published{"qwen2.5-7b", 57'344, 0},
    Published{"Qwen3-8B", 147'456, 0},
    Published{"Qwen3-32B", 262'144, 0},
    Published{"mistral-7b", 131'072, 0},
    Published{"gpt-oss-20b", 24'576, 24'576},
    Published{"gemma-3-270m", 3'072, 15'360},
    Published{"Gemma-3-27B", 81'920, 425'984},
    Published{"SmolLM2-135M", 23'040, 0},
    Published{"deepseek-v3", 70'272, 0},
};

TEST(GeometryPreset, NeedsThePublishedBytesPerToken) {
  for (const Published& model : published) {
    const auto geometry = find_geometry(model.name);
    ASSERT_TRUE(geometry.has_value()) << model.name;
    EXPECT_EQ(geometry->full_bytes_per_token().value, model.full) << model.name;
    EXPECT_EQ(geometry->sliding_bytes_per_token().value, model.sliding) << model.name;
    EXPECT_TRUE(geometry->check().has_value()) << model.name;
    EXPECT_FALSE(geometry->source.empty()) << model.name;
  }
  EXPECT_EQ(geometry_presets().size(), published.size());
}

// R14: with granules of 64 KiB each preset's block is a whole number of granules in all three layouts.
TEST(GeometryPreset, HasBlocksOfWholeGranulesInEveryLayout) {
  for (const KvGeometry& geometry : geometry_presets()) {
    for (const KvLayout layout :
         {KvLayout::token_major, KvLayout::layer_major, KvLayout::layer_kv_major}) {
      EXPECT_TRUE(layout_figures(geometry, layout, 64_KiB, {}).whole_granule_block)
          << geometry.name << " " << to_string(layout);
    }
  }
}

TEST(GeometryFind, NamesTheModelsThatExist) {
  const auto missing = find_geometry("llama-2");

  ASSERT_FALSE(missing.has_value());
  const auto* unknown = std::get_if<UnknownModel>(&missing.error().kind);
  ASSERT_NE(unknown, nullptr);
  EXPECT_EQ(unknown->name.view(), "llama-2");
  EXPECT_NE(unknown->known.view().find("SmolLM2-135M"), std::string_view::npos);
  EXPECT_TRUE(missing.error().is_usage_error());
}

// 15 sliding layers hold 512 tokens, 3 full ones all 8,192: 31.5 MiB.
TEST(GeometrySequence, StopsGrowingInSlidingLayersAtTheWindow) {
  const KvGeometry gemma = find_geometry("gemma-3-270m").value();

  EXPECT_EQ(gemma.sequence_bytes(8'192).value, 33'030'144U);
  EXPECT_EQ(gemma.sequence_bytes(100), gemma.kv_bytes_per_token() * 100);
}

// R15: scaled bytes per token are rounded up to 64.
TEST(GeometryScale, RoundsUpToCacheLines) {
  KvGeometry geometry = find_geometry("smollm2-135m").value();
  geometry.scale = 100;

  EXPECT_EQ(geometry.kv_bytes_per_token(), Bytes{256});
}

// The floor of one range per layer for K and V each is 2 x 32 granules; of one range per sequence one granule.
TEST(GeometryLayouts, HaveTheFloorOfTheirRanges) {
  const KvGeometry llama = find_geometry("llama-3-8b").value();
  const std::vector<std::uint64_t> lengths{100};

  const auto one = layout_figures(llama, KvLayout::token_major, 2_MiB, lengths);
  const auto layers = layout_figures(llama, KvLayout::layer_major, 2_MiB, lengths);
  const auto both = layout_figures(llama, KvLayout::layer_kv_major, 2_MiB, lengths);

  EXPECT_EQ(one.floor, 2_MiB);
  EXPECT_EQ(layers.floor, 64_MiB);
  EXPECT_EQ(both.floor, 128_MiB);
  // 100 tokens are 12.5 MiB.
  EXPECT_DOUBLE_EQ(one.mean_waste_bytes, 1.5 * 1'048'576);
  EXPECT_DOUBLE_EQ(both.mean_waste_bytes, 115.5 * 1'048'576);
}

TEST(GeometryDtype, IsFoundUnderItsCommonNames) {
  EXPECT_EQ(parse_kv_dtype("FP16"), KvDtype::f16);
  EXPECT_EQ(parse_kv_dtype("bfloat16"), KvDtype::bf16);
  EXPECT_EQ(parse_kv_dtype("fp8"), KvDtype::fp8);
  EXPECT_EQ(parse_kv_dtype("f64"), std::nullopt);
  for (const KvDtype dtype :
       {KvDtype::f32, KvDtype::f16, KvDtype::bf16, KvDtype::fp8, KvDtype::int8}) {
    EXPECT_EQ(parse_kv_dtype(to_string(dtype)), dtype);
  }
  EXPECT_EQ(element_size(KvDtype::f32), Bytes{4});
  EXPECT_EQ(element_size(KvDtype::int8), Bytes{1});
}

/// The field that a geometry is refused for.
std::string refused_field(const KvGeometry& geometry) {
  const auto checked = geometry.check();
  if (checked) {
    return "none";
  }
  const auto* bad = std::get_if<BadGeometry>(&checked.error().kind);
  return bad == nullptr ? "another error" : bad->field;
}

TEST(GeometryCheck, NamesTheFieldThatMakesNoSense) {
  const KvGeometry sound = find_geometry("gpt-oss-20b").value();
  const auto with = [&](auto change) {
    KvGeometry changed = sound;
    change(changed);
    return refused_field(changed);
  };

  EXPECT_EQ(refused_field(sound), "none");
  EXPECT_EQ(with([](KvGeometry& geometry) { geometry.layers = 0; }), "layers");
  EXPECT_EQ(with([](KvGeometry& geometry) { geometry.kv_heads = 0; }), "kv-heads");
  EXPECT_EQ(with([](KvGeometry& geometry) { geometry.head_dim = 0; }), "head-dim");
  EXPECT_EQ(with([](KvGeometry& geometry) { geometry.rope_dim = 64; }), "rope-dim");
  EXPECT_EQ(with([](KvGeometry& geometry) { geometry.latent_dim = 512; }), "kv-heads");
  EXPECT_EQ(with([](KvGeometry& geometry) { geometry.sliding_layers = 25; }), "sliding-layers");
  EXPECT_EQ(with([](KvGeometry& geometry) { geometry.window = 0; }), "window");
  EXPECT_EQ(with([](KvGeometry& geometry) { geometry.scale = 0; }), "scale");
  EXPECT_EQ(with([](KvGeometry& geometry) {
              geometry.kv_heads = 1;
              geometry.head_dim = 1;
            }),
            "head-dim");
}

}  // namespace
}  // namespace memstrata
