// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace memstrata::tool {

/// The model that is used where none is named: the smallest preset, so that real memory holds a real trace.
inline constexpr const char* default_model = "SmolLM2-135M";

/// The options of `memstrata replay` as they were typed; names are in the spelling of the reports.
struct ReplayArguments {
  std::string trace;  ///< Empty: the sample.
  std::optional<std::uint64_t> requests;
  bool skip_bad = false;
  std::vector<std::uint64_t> hit_curve;

  std::string model;
  std::optional<std::uint32_t> layers;
  std::optional<std::uint32_t> kv_heads;
  std::optional<std::uint32_t> head_dim;
  std::string dtype;
  std::optional<std::uint64_t> window;
  std::optional<std::uint32_t> sliding_layers;
  std::optional<std::uint32_t> latent_dim;
  std::optional<std::uint32_t> rope_dim;
  std::string scale;

  std::vector<std::string> policies{"all"};
  std::string backing = "real";
  std::string limit;
  std::string granule = "64KiB";
  std::optional<std::uint64_t> context;
  std::string prefill_tps = "10000";
  std::uint64_t decode_tps = 20;
  std::optional<std::uint64_t> cache_blocks;
  std::string find_limit;

  bool verify = false;
  std::optional<std::uint64_t> corrupt;
  std::string inject;
  std::uint64_t seed = 1;

  std::string json;
  std::string html;
  std::string record;
};

/// Binds every option of `memstrata replay` to a field of `arguments`, which must outlive `app`.
void add_replay_options(CLI::App& app, ReplayArguments& arguments);

}  // namespace memstrata::tool
