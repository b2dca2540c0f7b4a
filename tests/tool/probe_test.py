# SPDX-License-Identifier: Apache-2.0
"""memstrata probe: what it shows is what the system says, and each figure tells where it was read."""

import json
import os
import resource
import subprocess

from tool_case import TOOL, ToolCase, main


class Probe(ToolCase):
    def probe(self, *arguments):
        return json.loads(self.run_tool("probe", "--json", "-", *arguments).stdout)

    def test_figures_are_those_of_the_system(self):
        report = self.probe("--no-measure")
        self.assertEqual(report["schema"], "memstrata.probe/1")
        self.assertEqual(report["pages"]["page_size"]["value"], os.sysconf("SC_PAGE_SIZE"))
        self.assertEqual(report["process"]["descriptors_hard"]["value"], resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        with open("/proc/sys/vm/max_map_count", encoding="ascii") as file:
            self.assertEqual(report["process"]["mappings"]["value"], int(file.read()))
        with open("/proc/meminfo", encoding="ascii") as file:
            total = int(file.readline().split()[1]) * 1024
        self.assertEqual(report["memory"]["memory_total"]["value"], total)

    def test_every_figure_says_where_it_was_read_or_why_it_is_unknown(self):
        report = self.probe("--no-measure")
        for group in ["pages", "memory", "process"]:
            for name, figure in report[group].items():
                if isinstance(figure, dict):
                    self.assertTrue(figure["source"] or figure.get("reason"), name)
                    if figure["value"] is None and not figure.get("unlimited", False):
                        self.assertTrue(figure["reason"], name)

    def test_unlimited_is_no_number(self):
        process = self.probe("--no-measure")["process"]
        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            self.skipTest("the address space of this process is limited")
        self.assertEqual((process["address_space"]["value"], process["address_space"]["unlimited"]), (None, True))

    def test_without_measuring_there_are_no_costs(self):
        report = self.probe("--no-measure")
        self.assertIsNone(report["bandwidth"])
        self.assertEqual(report["backings"], [])

    def test_measured_costs_are_positive_and_ordered(self):
        report = self.probe()
        for name in ["fill_bytes_per_s", "read_bytes_per_s", "copy_bytes_per_s"]:
            self.assertGreater(report["bandwidth"][name], 0)
        self.assertGreaterEqual(len(report["backings"]), 2)
        for backing in report["backings"]:
            self.assertIsNone(backing["failure"])
            for name in ["reserve", "commit", "fault", "commit_populated", "release", "map_shared"]:
                spread = backing["ns"][name]
                self.assertGreater(spread["p25"], 0, name)
                self.assertLessEqual(spread["p25"], spread["p50"], name)
                self.assertLessEqual(spread["p50"], spread["p75"], name)

    def test_table_ends_with_the_tier_sentence(self):
        text = self.run_tool("probe", "--no-measure").stdout
        self.assertTrue(text.endswith("host tier; device figures come with the device tier\n"))
        self.assertIn("/proc/meminfo", text)

    def test_address_space_that_is_too_small_is_told_and_does_not_crash(self):
        self.run_limited("probe", "--no-measure")

    def run_limited(self, *arguments):
        old = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, old[1]))
        try:
            self.run_tool(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, old)


class Bench(ToolCase):
    def test_list_names_groups_and_runs_nothing(self):
        self.assertRegex(self.run_tool("bench", "--list").stdout, r"(?m)^lease +\w")

    def test_results_have_ratios_and_equal_checksums(self):
        done = self.run_tool("bench", "lease", "--rounds", "2", "--json", "-")
        report = json.loads(done.stdout)
        self.assertEqual(report["schema"], "memstrata.bench/1")
        self.assertGreater(len(report["results"]), 0)
        for result in report["results"]:
            self.assertEqual(result["rounds"], 2)
            self.assertEqual(result["raw_checksum"], result["our_checksum"])
            self.assertLessEqual(result["ratio"]["q1"], result["ratio"]["median"])
            self.assertLessEqual(result["ratio"]["median"], result["ratio"]["q3"])
            if result["target"] is None:
                self.assertIsNone(result["met"])
        self.assertIn("host tier; device figures come with the device tier", done.stderr)

    def test_check_turns_a_missed_target_into_exit_1(self):
        done = self.run_tool_any("bench", "lease", "--rounds", "2", "--check", "--json", "r.json")
        report = json.loads((self.folder / "r.json").read_text(encoding="utf-8"))
        is_missed = any(result["met"] is False for result in report["results"])
        self.assertEqual(done.returncode, 1 if is_missed else 0)

    def run_tool_any(self, *arguments):
        return subprocess.run([TOOL, *arguments], capture_output=True, text=True, cwd=self.folder, check=False)

    def test_damaged_recording_exits_with_2_and_names_the_line(self):
        path = self.write("calls", "this is no recording\n")
        self.refuse("bench", "replay-raw", path, says=["calls", "1"])


if __name__ == "__main__":
    main()
