// SPDX-License-Identifier: Apache-2.0
#include "replay_request.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/tier.hpp"
#include "memstrata/frontend/replay/find_limit.hpp"
#include "memstrata/frontend/replay/geometry.hpp"
#include "memstrata/frontend/replay/release_injection.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"
#include "output_file.hpp"
#include "replay_arguments.hpp"
#include "sample_trace.hpp"

namespace memstrata::tool {
namespace {

template <class T>
using Checked = std::expected<T, std::string>;

std::unexpected<std::string> wrong(std::string sentence) {
  return std::unexpected<std::string>(std::move(sentence));
}

/// A whole number and nothing else.
std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

/// The number of bytes that `text` states with its unit; nothing if it states none.
std::optional<std::uint64_t> bytes_stated(const std::string& text) {
  std::string number = text;
  try {
    // Binary units are powers of 1024, decimal ones of 1000; the library throws on what it cannot read.
    if (!CLI::AsSizeValue(true)(number).empty()) {
      return std::nullopt;
    }
  } catch (const CLI::Error&) {
    return std::nullopt;
  }
  return parse_number(number);
}

/// "64KiB", "6GiB", "80GB" or a number of bytes.
Checked<Bytes> parse_size(const char* option, const std::string& text) {
  const auto value = bytes_stated(text);
  if (!value || *value == 0) {
    return wrong(fmt::format(
        "{}: '{}' is no size; write a whole number above 0 with a unit, like 64KiB, 6GiB or "
        "1536MiB",
        option,
        text));
  }
  return Bytes{*value};
}

Checked<Bytes> parse_limit(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) {
    return parse_size("--limit", text);
  }
  const auto tier = parse_tier(text.substr(0, equals));
  if (tier != Tier::host) {
    return wrong(
        fmt::format("--limit: a replay holds its bytes on the host tier; write host=SIZE, "
                    "not '{}'",
                    text));
  }
  return parse_size("--limit", text.substr(equals + 1));
}

Checked<std::uint64_t> parse_scale(std::string_view text) {
  if (text.empty()) {
    return 1;
  }
  const auto value = text.starts_with("1/") ? parse_number(text.substr(2)) : std::nullopt;
  if (!value || *value == 0) {
    return wrong(fmt::format("--scale: '{}' is no scale; write 1/N, for example 1/8", text));
  }
  return *value;
}

Checked<std::optional<std::uint64_t>> parse_prefill(std::string_view text) {
  if (text == "inf") {
    return std::optional<std::uint64_t>{};
  }
  const auto value = parse_number(text);
  if (!value || *value == 0) {
    return wrong(
        fmt::format("--prefill-tps: '{}' is no speed; write a whole number above 0, or inf", text));
  }
  return value;
}

bool has_custom_figures(const ReplayArguments& arguments) {
  return arguments.layers || arguments.kv_heads || arguments.head_dim || arguments.window ||
         arguments.sliding_layers || arguments.latent_dim || arguments.rope_dim;
}

KvGeometry custom_geometry(const ReplayArguments& arguments) {
  KvGeometry geometry{.name = "custom", .source = "command line"};
  geometry.layers = arguments.layers.value_or(0);
  geometry.kv_heads = arguments.kv_heads.value_or(0);
  geometry.head_dim = arguments.head_dim.value_or(0);
  geometry.window = arguments.window.value_or(0);
  geometry.sliding_layers =
      arguments.sliding_layers.value_or(geometry.window == 0 ? 0 : geometry.layers);
  geometry.latent_dim = arguments.latent_dim.value_or(0);
  geometry.rope_dim = arguments.rope_dim.value_or(0);
  return geometry;
}

Checked<KvGeometry> geometry_of(const ReplayArguments& arguments) {
  KvGeometry geometry;
  if (has_custom_figures(arguments)) {
    geometry = custom_geometry(arguments);
  } else {
    auto preset = find_geometry(arguments.model.empty() ? default_model : arguments.model);
    if (!preset) {
      return wrong("--model: " + preset.error().message());
    }
    geometry = *std::move(preset);
  }
  if (const auto dtype = parse_kv_dtype(arguments.dtype)) {
    geometry.dtype = *dtype;
  }
  const auto scale = parse_scale(arguments.scale);
  if (!scale) {
    return wrong(scale.error());
  }
  geometry.scale = *scale;
  if (const auto sound = geometry.check(); !sound) {
    return wrong(sound.error().message());
  }
  return geometry;
}

std::vector<ReplayPolicy> policies_of(const std::vector<std::string>& names,
                                      ReplayBacking backing) {
  std::vector<ReplayPolicy> policies;
  const auto add = [&policies](ReplayPolicy policy) {
    if (std::ranges::find(policies, policy) == policies.end()) {
      policies.push_back(policy);
    }
  };
  for (const std::string& name : names) {
    if (const auto policy = parse_replay_policy(name)) {
      add(*policy);
    } else {  // only "all" is left: the command line accepts nothing else
      std::ranges::for_each(policies_for_all(backing), add);
    }
  }
  return policies;
}

/// What cannot be asked together. Nothing: all is well.
std::optional<std::string> contradiction(const ReplayArguments& arguments, bool is_real) {
  if (!is_real && (arguments.verify || arguments.corrupt)) {
    return "--verify and --corrupt need memory to read; use --backing real";
  }
  if (!is_real && !arguments.inject.empty()) {
    return "--inject needs releases of real memory; use --backing real";
  }
  if (!arguments.inject.empty() && !arguments.find_limit.empty()) {
    return "--find-limit only simulates; leave out --inject";
  }
  if (!arguments.inject.empty() && !arguments.record.empty()) {
    return "--record writes down a sound run; leave out --inject";
  }
  if (!is_real && !arguments.record.empty()) {
    return "--record writes down what is done to real memory; use --backing real";
  }
  if (!arguments.record.empty() && !arguments.find_limit.empty()) {
    return "--find-limit only simulates; leave out --record";
  }
  if (!arguments.find_limit.empty() && !arguments.limit.empty()) {
    return "--find-limit searches the budget; leave out --limit";
  }
  if (is_standard_output(arguments.json) && is_standard_output(arguments.html)) {
    return "--json and --html cannot both go to standard output; name a file for one of them";
  }
  return std::nullopt;
}

Checked<ReplayOptions> options_of(const ReplayArguments& arguments, ReplayBacking backing) {
  ReplayOptions options;
  options.backing = backing;
  auto geometry = geometry_of(arguments);
  if (!geometry) {
    return wrong(std::move(geometry).error());
  }
  options.geometry = *std::move(geometry);
  options.policies = policies_of(arguments.policies, backing);
  if (!arguments.limit.empty()) {
    const auto limit = parse_limit(arguments.limit);
    if (!limit) {
      return wrong(limit.error());
    }
    options.limit = *limit;
  }
  const auto granule = parse_size("--granule", arguments.granule);
  if (!granule) {
    return wrong(granule.error());
  }
  options.granule = *granule;
  const auto prefill = parse_prefill(arguments.prefill_tps);
  if (!prefill) {
    return wrong(prefill.error());
  }
  options.prefill_tps = *prefill;
  options.decode_tps = arguments.decode_tps;
  options.context_tokens = arguments.context.value_or(0);
  options.cache_blocks = arguments.cache_blocks;
  options.verify = arguments.verify || arguments.corrupt.has_value();
  options.corrupt_write = arguments.corrupt;
  if (!arguments.inject.empty()) {
    auto injections = parse_release_injections(arguments.inject);
    if (!injections) {
      return wrong(injections.error().message());
    }
    options.inject = *std::move(injections);
  }
  options.seed = arguments.seed;
  options.record_calls = arguments.record;
  return options;
}

}  // namespace

std::expected<ReplayRequest, std::string> check_arguments(const ReplayArguments& arguments) {
  // A search for a limit simulates, whatever the backing.
  const bool is_real = arguments.backing == "real" && arguments.find_limit.empty();
  if (auto sentence = contradiction(arguments, arguments.backing == "real")) {
    return wrong(*std::move(sentence));
  }
  auto options = options_of(arguments, is_real ? ReplayBacking::real : ReplayBacking::sim);
  if (!options) {
    return wrong(std::move(options).error());
  }
  ReplayRequest request;
  request.trace = arguments.trace.empty() ? sample_trace_path() : arguments.trace;
  request.requests = arguments.requests;
  request.skip_bad = arguments.skip_bad;
  request.hit_curve = arguments.hit_curve;
  request.options = *std::move(options);
  request.json = arguments.json;
  request.html = arguments.html;
  if (!arguments.find_limit.empty()) {
    const auto condition = parse_limit_condition(arguments.find_limit);
    if (!condition) {
      return wrong("--find-limit: " + condition.error().message());
    }
    request.find_limit = *condition;
  }
  return request;
}

}  // namespace memstrata::tool
