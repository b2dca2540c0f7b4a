# SPDX-License-Identifier: Apache-2.0
"""memstrata replay: every option does something, and the report carries the documented names."""

import gzip
import json
import os
import pathlib
import re

from tool_case import REAL, SAMPLE, SIM, SMALL_TRACE, ToolCase, main

POLICIES = ["reserve-max", "realloc", "concat", "paged", "virtual"]

TRACE_NAMES = {"path", "format", "requests", "input_tokens", "output_tokens", "block_refs", "unique_blocks", "hit_curve"}
MODEL_NAMES = {"name", "layers", "kv_heads", "head_dim", "dtype", "kv_bytes_per_token", "scale"}
POLICY_NAMES = {
    "policy", "completed", "refused", "preempted", "preempted_requests", "peak_concurrent", "peak_live_tokens",
    "wait_s", "bytes", "kernel_samples", "waste_ratio", "prefix", "op_ns", "verify", "violations",
    "final_leased_bytes", "wall_s", "releases",
}  # fmt: skip
NESTED_NAMES = {
    "wait_s": {"p50", "p95", "p99"},
    "bytes": {
        "peak_reserved", "peak_leased", "peak_committed", "peak_live", "peak_cached", "peak_kernel", "copied",
        "shared_saved",
    },
    "prefix": {"hit_blocks", "hit_tokens", "mapped_blocks", "hit_ratio_blocks"},
    "op_ns": {"reserve", "commit", "grow", "share", "release"},
    "verify": {"bytes_checked", "mismatches"},
    "releases": {"queued", "executed", "released", "quarantined", "residuals"},
}  # fmt: skip


def all_names(value, prefix=""):
    """Every name in a document, with those above it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from all_names(inner, prefix + name + ".")
    elif isinstance(value, list):
        for inner in value:
            yield from all_names(inner, prefix)


class Report(ToolCase):
    def test_json_has_every_name_that_was_promised(self):
        report = self.replay_json(self.small, *SIM)
        self.assertEqual(report["schema"], "memstrata.replay/1")
        self.assertLessEqual(TRACE_NAMES, report["trace"].keys())
        self.assertLessEqual(MODEL_NAMES, report["model"].keys())
        self.assertEqual([policy["policy"] for policy in report["policies"]], POLICIES)
        for policy in report["policies"]:
            self.assertLessEqual(POLICY_NAMES, policy.keys())
            for name, inner in NESTED_NAMES.items():
                self.assertLessEqual(inner, policy[name].keys(), name)
            for times in policy["op_ns"].values():
                self.assertLessEqual({"p50", "p99", "max"}, times.keys())
        self.assertEqual(report["trace"]["hit_curve"][0].keys(), {"blocks", "hits"})

    def test_every_name_in_the_json_is_documented(self):
        text = (pathlib.Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
        documents = [
            self.replay_json(self.small, *SIM),
            self.replay_json(self.small, *REAL, "--policy", "virtual", "--verify"),
            self.replay_json(self.small, *REAL, "--policy", "virtual", "--inject", "fail:1", code=1),
            self.replay_json(self.small, *SIM, "--find-limit", "refused<=0"),
            json.loads(self.run_tool("trace", "info", self.small, "--json", "-").stdout),
            json.loads(self.run_tool("probe", "--no-measure", "--json", "-").stdout),
        ]
        for document in documents:
            for name in set(all_names(document)):
                self.assertRegex(text, rf"(?<![a-z0-9_]){re.escape(name)}(?![a-z0-9_])")

    def test_json_on_standard_output_moves_the_table_to_standard_error(self):
        done = self.run_tool("replay", self.small, *SIM, "--json", "-")
        json.loads(done.stdout)
        self.assertIn("host tier; device figures come with the device tier", done.stderr)

    def test_json_in_a_file_leaves_the_table_on_standard_output(self):
        done = self.run_tool("replay", self.small, *SIM, "--json", "report.json")
        self.assertIn("host tier; device figures come with the device tier", done.stdout)
        self.assertEqual(done.stderr, "")
        report = json.loads((self.folder / "report.json").read_text(encoding="utf-8"))
        self.assertEqual(report["trace"]["requests"], 3)

    def test_table_and_json_agree(self):
        done = self.run_tool("replay", self.small, *SIM, "--policy", "virtual", "--json", "r.json")
        policy = json.loads((self.folder / "r.json").read_text(encoding="utf-8"))["policies"][0]
        self.assertRegex(done.stdout, rf"completed +{policy['completed']}\n")
        self.assertRegex(done.stdout, rf"hit blocks +{policy['prefix']['hit_blocks']}\n")

    def test_two_simulations_give_the_same_report_but_for_the_wall_time(self):
        reports = []
        for _ in range(2):
            text = self.run_tool("replay", str(SAMPLE), *SIM, "--json", "-").stdout
            reports.append(re.sub(r'"wall_s": [^,]*', "", text))
        self.assertEqual(*reports)

    def test_path_that_is_no_text_still_gives_valid_json(self):
        path = bytes(self.folder) + b"/\xff.jsonl"
        with open(path, "w", encoding="utf-8") as file:
            file.write(SMALL_TRACE)
        name = path.decode("utf-8", "surrogateescape")
        json.loads(self.run_tool("replay", name, *SIM, "--json", "-", "--html", "page.html").stdout)


class Trace(ToolCase):
    def test_positional_and_option_name_the_same_trace(self):
        self.assertEqual(
            self.replay_json(self.small, *SIM)["trace"], self.replay_json("--trace", self.small, *SIM)["trace"]
        )

    def test_dash_reads_standard_input(self):
        done = self.run_tool("replay", "-", *SIM, "--json", "-", stdin=SMALL_TRACE)
        self.assertEqual(json.loads(done.stdout)["trace"]["path"], "<stdin>")

    def test_compressed_trace_is_recognised_by_content(self):
        path = self.folder / "small"
        path.write_bytes(gzip.compress(SMALL_TRACE.encode()))
        self.assertEqual(self.replay_json(str(path), *SIM)["trace"]["requests"], 3)

    def test_requests_takes_the_first_records(self):
        report = self.replay_json(self.small, *SIM, "--requests", "2")
        self.assertEqual(report["trace"]["requests"], 2)
        self.assertEqual({policy["completed"] for policy in report["policies"]}, {2})

    def test_bad_record_stops_with_line_offset_field_and_exit_2(self):
        lines = SMALL_TRACE.splitlines(keepends=True)
        lines[1] = lines[1].replace("600", "-600")
        bad = self.write("bad.jsonl", "".join(lines))
        self.refuse("replay", bad, *SIM, says=["bad.jsonl", "line 2", str(len(lines[0])), "input_length"])

    def test_skip_bad_counts_and_goes_on(self):
        bad = self.write("bad.jsonl", SMALL_TRACE.replace('"input_length": 600', '"input_length": 0'))
        report = self.replay_json(bad, *SIM, "--skip-bad")
        self.assertEqual((report["trace"]["requests"], report["trace"]["skipped"]), (2, 1))

    def test_missing_trace_exits_with_2(self):
        self.refuse("replay", "no-such-trace", *SIM, says="no-such-trace")

    def test_hit_curve_sizes_are_those_that_were_asked(self):
        curve = self.replay_json(self.small, *SIM, "--hit-curve", "1,100")["trace"]["hit_curve"]
        self.assertEqual([point["blocks"] for point in curve], [1, 100])
        self.assertEqual(curve[1]["hits"], 3)

    def test_trace_without_ids_has_no_hits_and_says_so(self):
        trace = self.write(
            "azure.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
        )
        done = self.run_tool("replay", trace, *SIM, "--policy", "virtual")
        self.assertIn("no block ids", done.stdout)


class Options(ToolCase):
    def test_names_match_without_regard_to_case(self):
        report = self.replay_json(
            self.small, "--backing", "SIM", "--model", "LLAMA-3-8b", "--policy", "Virtual,PAGED", "--dtype", "FP8"
        )
        self.assertEqual(report["model"]["name"], "Llama-3-8B")
        self.assertEqual(report["model"]["dtype"], "fp8")
        self.assertEqual([policy["policy"] for policy in report["policies"]], ["virtual", "paged"])

    def test_every_published_model_can_be_named(self):
        text = re.sub(r"\s+", " ", self.run_tool("help", "replay").stdout)
        names = re.search(r"one of: (.*?) \[default", text).group(1).split(", ")
        self.assertGreaterEqual(len(names), 12)
        for name in names:
            with self.subTest(model=name):
                report = self.replay_json(self.small, "--backing", "sim", "--model", name.lower())
                self.assertEqual(report["model"]["name"], name)

    def test_geometry_may_be_typed(self):
        report = self.replay_json(
            self.small, "--backing", "sim", "--layers", "4", "--kv-heads", "2", "--head-dim", "64", "--dtype", "f16"
        )
        self.assertEqual(report["model"]["kv_bytes_per_token"], 4 * 2 * 64 * 2 * 2)

    def test_sliding_layers_make_hits_partial(self):
        report = self.replay_json(
            self.small, "--backing", "sim", "--policy", "virtual", "--layers", "4", "--kv-heads", "2", "--head-dim",
            "64", "--window", "256", "--sliding-layers", "3",
        )  # fmt: skip
        self.assertTrue(report["policies"][0]["prefix"]["partial"])

    def test_latent_attention_may_be_typed(self):
        report = self.replay_json(
            self.small, "--backing", "sim", "--layers", "10", "--latent-dim", "512", "--rope-dim", "64"
        )
        self.assertEqual(report["model"]["kv_bytes_per_token"], 10 * (512 + 64) * 2)

    def test_scale_divides_the_bytes_and_is_marked(self):
        whole = self.replay_json(self.small, *SIM)
        part = self.replay_json(self.small, *SIM, "--scale", "1/4")
        self.assertEqual(part["model"]["scale"], 4)
        self.assertAlmostEqual(
            part["model"]["kv_bytes_per_token"], whole["model"]["kv_bytes_per_token"] / 4, delta=64
        )
        self.assertTrue(any("scaled" in note for note in part["notes"]))

    def test_limit_bounds_what_is_committed(self):
        report = self.replay_json(str(SAMPLE), *SIM, "--limit", "host=128MiB", "--policy", "virtual")
        policy = report["policies"][0]
        self.assertEqual(report["options"]["limit_bytes"], 128 << 20)
        self.assertLessEqual(policy["bytes"]["peak_committed"], 128 << 20)
        self.assertGreater(policy["wait_s"]["p99"], 0)

    def test_request_that_can_never_fit_is_refused_with_both_numbers(self):
        done = self.run_tool("replay", self.small, *SIM, "--policy", "virtual", "--limit", "host=16MiB")
        self.assertRegex(done.stdout, r"can never fit: it needs [\d.]+ MiB, the\s+limit is 16.0 MiB")

    def test_granule_rounds_what_is_committed(self):
        report = self.replay_json(self.small, *SIM, "--granule", "2MiB", "--policy", "virtual")
        self.assertEqual(report["options"]["granule_bytes"], 2 << 20)
        self.assertEqual(report["policies"][0]["bytes"]["peak_committed"] % (2 << 20), 0)

    def test_context_is_the_slot_of_reserve_max(self):
        small = self.replay_json(self.small, *SIM, "--policy", "reserve-max")
        large = self.replay_json(self.small, *SIM, "--policy", "reserve-max", "--context", "4096")
        self.assertEqual(small["options"]["context_tokens"], 1064)
        self.assertGreater(
            large["policies"][0]["bytes"]["peak_committed"], 2 * small["policies"][0]["bytes"]["peak_committed"]
        )

    def test_cache_blocks_bounds_what_is_cached(self):
        free = self.replay_json(self.small, *SIM, "--policy", "virtual")["policies"][0]
        none = self.replay_json(self.small, *SIM, "--policy", "virtual", "--cache-blocks", "0")["policies"][0]
        self.assertEqual((free["prefix"]["hit_blocks"], none["prefix"]["hit_blocks"]), (3, 1))
        self.assertEqual(none["bytes"]["peak_cached"], 0)

    def test_speeds_change_the_end(self):
        base = ["replay", self.small, *SIM, "--policy", "virtual"]
        slow = self.replay_json(*base[1:], "--decode-tps", "1")["policies"][0]
        fast = self.replay_json(*base[1:], "--prefill-tps", "inf", "--decode-tps", "1000")["policies"][0]
        self.assertEqual(fast["end_s"], 90.01)
        self.assertGreater(slow["end_s"], fast["end_s"] + 9)

    def test_find_limit_prints_the_smallest_budget_and_the_figure_that_people_quote(self):
        done = self.run_tool(
            "replay", str(SAMPLE), *SIM, "--policy", "paged,virtual", "--find-limit", "wait_p99<=5s", "--json", "r.json"
        )
        self.assertRegex(done.stdout, r"this trace needs [\d.]+ [GM]iB paged, [\d.]+ [GM]iB with memstrata")
        found = json.loads((self.folder / "r.json").read_text(encoding="utf-8"))["find_limit"]
        self.assertEqual((found["metric"], found["at_most"]), ("wait_p99", 5.0))
        for limit in found["policies"]:
            above = self.replay_json(
                str(SAMPLE), *SIM, "--policy", limit["policy"], "--limit", f"host={limit['limit_bytes']}"
            )
            self.assertLessEqual(above["policies"][0]["wait_s"]["p99"], 5)
            below = limit["limit_bytes"] - limit["granularity_bytes"]
            if below > 0:
                result = self.replay_json(str(SAMPLE), *SIM, "--policy", limit["policy"], "--limit", f"host={below}")
                policy = result["policies"][0]
                self.assertTrue(policy["wait_s"]["p99"] > 5 or policy["refused"] > 0)


class RealMemory(ToolCase):
    def test_verified_run_checks_bytes_and_leaves_nothing(self):
        report = self.replay_json(self.small, *REAL, "--verify")
        self.assertEqual([policy["policy"] for policy in report["policies"]], [p for p in POLICIES if p != "concat"])
        for policy in report["policies"]:
            with self.subTest(policy=policy["policy"]):
                self.assertEqual((policy["completed"], policy["refused"]), (3, 0))
                self.assertGreater(policy["verify"]["bytes_checked"], 0)
                self.assertEqual(policy["verify"]["mismatches"], 0)
                self.assertEqual((policy["violations"], policy["final_leased_bytes"]), (0, 0))
                self.assertGreater(policy["op_ns"]["reserve"]["max"], 0)
                for sample in policy["kernel_samples"]:
                    off = abs(sample["kernel"] - sample["committed"])
                    self.assertLessEqual(off, max(0.02 * sample["committed"], 8 << 20))

    def test_flipped_bit_is_found_and_named(self):
        done = self.run_tool("replay", self.small, *REAL, "--policy", "virtual", "--corrupt", "3", code=1)
        self.assertRegex(re.sub(r"\s+", " ", done.stdout), r"MISMATCH in request \d+ \((block \d+|private bytes), offset \d+")

    def test_flipped_bit_is_in_the_json(self):
        report = self.replay_json(self.small, *REAL, "--policy", "virtual", "--corrupt", "3", code=1)
        verify = report["policies"][0]["verify"]
        self.assertTrue(verify["corrupted"])
        self.assertGreaterEqual(verify["mismatches"], 1)
        self.assertLessEqual({"request", "block", "offset"}, verify["first"][0].keys())

    def test_write_that_never_comes_is_wrong_usage(self):
        done = self.run_tool("replay", self.small, *REAL, "--policy", "virtual", "--corrupt", "999999999", code=2)
        self.assertIn("NO BIT WAS FLIPPED", done.stdout)

    def test_sound_run_queues_and_executes_its_releases(self):
        for policy in self.replay_json(self.small, *REAL)["policies"]:
            releases = policy["releases"]
            self.assertGreater(releases["queued"], 0)
            self.assertEqual(releases["executed"], releases["queued"])
            self.assertEqual((releases["quarantined"], releases["residual_charged_bytes"]), (0, 0))

    def test_release_that_fails_is_named_and_its_bytes_stay_charged(self):
        done = self.run_tool("replay", self.small, *REAL, "--policy", "virtual", "--inject", "fail:2", code=1)
        text = re.sub(r"\s+", " ", done.stdout)
        self.assertRegex(text, r"RESIDUAL: release 2, (the buffer at 0x\w+ of|a prompt block that) request \d+.*: quarantined \(.*\); .*B stay charged")
        policy = self.replay_json(self.small, *REAL, "--policy", "virtual", "--inject", "fail:2", code=1)["policies"][0]
        releases = policy["releases"]
        self.assertEqual((policy["completed"], policy["violations"]), (3, 0))
        self.assertEqual((releases["injected"], releases["quarantined"], len(releases["residuals"])), (1, 1, 1))
        self.assertGreater(policy["final_leased_bytes"], 0)
        self.assertEqual(policy["final_leased_bytes"], releases["residuals"][0]["charged_bytes"])

    def test_release_that_stops_midway_keeps_the_rest_charged(self):
        arguments = (self.small, *REAL, "--policy", "virtual", "--inject", "midway:1")
        releases = self.replay_json(*arguments, code=1)["policies"][0]["releases"]
        self.assertEqual(releases["residuals"][0]["state"], "partially unmapped")
        self.assertGreater(releases["residuals"][0]["retained_bytes"], 0)

    def test_loss_of_the_device_ends_the_run_with_a_report(self):
        done = self.run_tool("replay", self.small, *REAL, "--policy", "virtual", "--inject", "lose:1", code=1)
        self.assertIn("DEVICE LOST", done.stdout)
        policy = self.replay_json(self.small, *REAL, "--policy", "virtual", "--inject", "lose:1", code=1)["policies"][0]
        self.assertTrue(policy["releases"]["device_lost"])
        self.assertEqual((policy["releases"]["queued"], policy["releases"]["executed"]), (1, 0))
        self.assertEqual(policy["violations"], 0)

    def test_release_that_never_comes_is_wrong_usage(self):
        done = self.run_tool("replay", self.small, *REAL, "--policy", "virtual", "--inject", "fail:999999", code=2)
        self.assertIn("1 OF 1 FAULTS WERE NOT INJECTED", re.sub(r"\s+", " ", done.stdout))

    def test_injection_that_cannot_be_is_refused_before_anything_runs(self):
        for wrong in ("fail", "fail:0", "lose:x", "fail:1,fail:1", "explode:1"):
            done = self.run_tool("replay", self.small, *REAL, "--inject", wrong, code=2)
            self.assertIn("inject", done.stderr)
        self.run_tool("replay", self.small, *SIM, "--inject", "fail:1", code=2)
        self.run_tool("replay", self.small, *REAL, "--find-limit", "refused<=0", "--inject", "fail:1", code=2)
        self.run_tool("replay", self.small, *REAL, "--policy", "virtual", "--record", "c", "--inject", "fail:1", code=2)

    def test_seed_changes_the_pattern_and_not_the_counts(self):
        reports = [self.replay_json(self.small, *REAL, "--policy", "virtual", "--verify", "--seed", s) for s in "12"]
        checked = {report["policies"][0]["verify"]["bytes_checked"] for report in reports}
        self.assertEqual(len(checked), 1)

    def test_real_memory_and_simulation_count_alike(self):
        names = [n for n in POLICY_NAMES if n not in {"wall_s", "op_ns", "kernel_samples", "bytes", "verify", "releases"}]
        real = self.replay_json(str(SAMPLE), *REAL, "--requests", "60", "--policy", "virtual")["policies"][0]
        sim = self.replay_json(str(SAMPLE), *SIM, *REAL[4:], "--requests", "60", "--policy", "virtual")["policies"][0]
        self.assertEqual({n: real[n] for n in names}, {n: sim[n] for n in names})

    def test_recording_can_be_executed_alone(self):
        self.run_tool("replay", self.small, *REAL, "--policy", "virtual", "--record", "calls")
        raw = json.loads(self.run_tool("bench", "replay-raw", "calls", "--json", "-").stdout)
        self.assertGreater(raw["calls"], 0)
        self.assertGreater(raw["filled_bytes"], 0)

    def test_default_is_the_sample_on_real_memory_in_under_a_minute(self):
        begin = os.times()
        report = self.replay_json()
        end = os.times()
        # Time of the processor, so that neighbours on the machine do not decide.
        self.assertLess(end.children_user + end.children_system - begin.children_user - begin.children_system, 60)
        self.assertEqual(report["options"]["backing"], "real")
        self.assertTrue(report["trace"]["path"].endswith("samples/sample.trace.jsonl"))
        self.assertTrue(report["trace"]["synthetic"])
        self.assertEqual({policy["violations"] for policy in report["policies"]}, {0})


if __name__ == "__main__":
    main()
