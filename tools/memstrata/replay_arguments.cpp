// SPDX-License-Identifier: Apache-2.0
#include "replay_arguments.hpp"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <set>
#include <string>

#include "command_line.hpp"
#include "memstrata/frontend/replay/geometry.hpp"
#include "memstrata/frontend/replay/replay_options.hpp"

namespace memstrata::tool {
namespace {

/// Geometry figures above this are absurd.
constexpr std::uint64_t largest_figure = 1ULL << 31;

std::set<std::string> policy_names() {
  std::set<std::string> names{"all"};
  for (const ReplayPolicy policy : all_replay_policies) {
    names.emplace(to_string(policy));
  }
  return names;
}

std::string model_names() {
  std::string names;
  for (const KvGeometry& preset : geometry_presets()) {
    names += (names.empty() ? "" : ", ") + preset.name;
  }
  return names;
}

void add_trace_options(CLI::App& app, ReplayArguments& arguments) {
  app.add_option("--trace,TRACE",
                 arguments.trace,
                 "trace to replay (Mooncake JSONL, Azure LLM CSV or memstrata's own; plain, .gz or "
                 ".zst); '-' reads standard input; default: the sample")
      ->type_name("FILE|-")
      ->group("Trace");
  app.add_option("--requests", arguments.requests, "take only the first N records")
      ->type_name("N")
      ->check(whole_number(1))
      ->group("Trace");
  app.add_flag("--skip-bad",
               arguments.skip_bad,
               "count bad records and go on instead of stopping at the first")
      ->group("Trace");
  app.add_option(
         "--hit-curve", arguments.hit_curve, "cache sizes, in blocks, for the trace analysis")
      ->type_name("N,N,...")
      ->check(whole_number(0))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Trace");
}

void add_model_options(CLI::App& app, ReplayArguments& arguments) {
  constexpr const char* group = "Model";
  CLI::Option* const model =
      app.add_option("--model", arguments.model, "without regard to case, one of: " + model_names())
          ->type_name("NAME")
          ->default_str(default_model)
          ->group(group);
  const auto figure = [&](const char* name, auto& value, const char* text) {
    app.add_option(name, value, text)
        ->type_name("N")
        ->check(whole_number(0, largest_figure))
        ->excludes(model)
        ->group(group);
  };
  figure("--layers", arguments.layers, "layers, instead of a model's name");
  figure("--kv-heads", arguments.kv_heads, "heads of K and V");
  figure("--head-dim", arguments.head_dim, "elements of a head");
  figure("--window", arguments.window, "tokens that a sliding layer keeps");
  figure("--sliding-layers",
         arguments.sliding_layers,
         "layers that keep only the window; default with --window: all");
  figure("--latent-dim", arguments.latent_dim, "elements of the latent vector, instead of heads");
  figure("--rope-dim", arguments.rope_dim, "elements of the rotary part beside the latent vector");
  app.add_option("--dtype", arguments.dtype, "type of an element: f32, f16, bf16, fp8, int8")
      ->type_name("NAME")
      ->check(CLI::IsMember(
          {"f32", "fp32", "f16", "fp16", "float16", "bf16", "bfloat16", "fp8", "int8"},
          CLI::ignore_case))
      ->group(group);
  app.add_option("--scale", arguments.scale, "hold one N-th of the bytes per token")
      ->type_name("1/N")
      ->group(group);
}

void add_memory_options(CLI::App& app, ReplayArguments& arguments) {
  constexpr const char* group = "Memory";
  app.add_option("--policy",
                 arguments.policies,
                 "ways of holding KV: all, or names from reserve-max, realloc, concat, paged, "
                 "virtual; concat runs in the simulation only")
      ->type_name("NAME,...")
      ->transform(CLI::IsMember(policy_names(), CLI::ignore_case))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("all")
      ->group(group);
  app.add_option("--backing",
                 arguments.backing,
                 "real: memory of this machine; sim: counted only, for budgets of any size")
      ->type_name("real|sim")
      ->transform(CLI::IsMember({"real", "sim"}, CLI::ignore_case))
      ->capture_default_str()
      ->group(group);
  app.add_option("--limit",
                 arguments.limit,
                 "budget; default: a share of the free memory for real, none for sim")
      ->type_name("host=SIZE")
      ->group(group);
  app.add_option("--granule", arguments.granule, "unit of commit; 2MiB uses huge pages")
      ->type_name("SIZE")
      ->capture_default_str()
      ->group(group);
  app.add_option("--context",
                 arguments.context,
                 "tokens of a reserve-max slot; default: the largest request of the selection")
      ->type_name("N")
      ->check(whole_number(1))
      ->group(group);
  app.add_option("--cache-blocks", arguments.cache_blocks, "keep at most N idle blocks")
      ->type_name("N")
      ->check(whole_number(0))
      ->group(group);
  app.add_option("--find-limit",
                 arguments.find_limit,
                 "search the smallest budget per policy in the simulation, e.g. 'wait_p99<=5s', "
                 "'preempted<=0', 'refused<=0'")
      ->type_name("COND")
      ->group(group);
}

void add_run_options(CLI::App& app, ReplayArguments& arguments) {
  app.add_option(
         "--prefill-tps", arguments.prefill_tps, "prompt tokens per second and request, or inf")
      ->type_name("N|inf")
      ->capture_default_str()
      ->group("Speed");
  app.add_option("--decode-tps", arguments.decode_tps, "generated tokens per second and request")
      ->type_name("N")
      ->check(whole_number(1))
      ->capture_default_str()
      ->group("Speed");
  app.add_flag("--verify",
               arguments.verify,
               "read and check every byte of every completed request before its release")
      ->group("Check");
  app.add_option("--corrupt",
                 arguments.corrupt,
                 "flip one bit after the N-th write; the check must find it (implies --verify)")
      ->type_name("N")
      ->check(whole_number(1))
      ->group("Check");
  app.add_option("--inject",
                 arguments.inject,
                 "make the N-th release fail, stop midway or lose the device: fail:N, midway:N or "
                 "lose:N, several with commas between them")
      ->type_name("SPEC")
      ->group("Check");
  app.add_option("--seed", arguments.seed, "seed of the pattern that is written")
      ->type_name("N")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group("Check");
}

void add_report_options(CLI::App& app, ReplayArguments& arguments) {
  constexpr const char* group = "Report";
  app.add_option("--json",
                 arguments.json,
                 "write the report as JSON; with '-' the table goes to standard error")
      ->type_name("FILE|-")
      ->group(group);
  app.add_option("--html", arguments.html, "write a page with charts that needs no network")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--record",
                 arguments.record,
                 "write the system calls and fills of a real run, for 'memstrata bench replay-raw'")
      ->type_name("FILE")
      ->group(group);
}

}  // namespace

void add_replay_options(CLI::App& app, ReplayArguments& arguments) {
  add_trace_options(app, arguments);
  add_model_options(app, arguments);
  add_memory_options(app, arguments);
  add_run_options(app, arguments);
  add_report_options(app, arguments);
}

}  // namespace memstrata::tool
