# SPDX-License-Identifier: Apache-2.0
"""Help, version, exit codes and wrong usage."""

import os
import re
import subprocess

from tool_case import SIM, TOOL, ToolCase, main

COMMANDS = ["replay", "trace", "probe", "bench"]


class Help(ToolCase):
    def test_overview_names_every_command_and_every_exit_status(self):
        text = self.run_tool("--help").stdout
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {command} ")
        self.assertIn("0 done, 1 the check found something, 2 wrong usage or input, 3 could not run", text)

    def test_help_command_and_help_option_say_the_same(self):
        for command in COMMANDS:
            self.assertEqual(self.run_tool("help", command).stdout, self.run_tool(command, "--help").stdout)

    def test_help_of_a_subcommand_names_it(self):
        text = self.run_tool("trace", "info", "--help").stdout
        self.assertIn("Usage: memstrata trace info [OPTIONS] [FILE]", text)

    def test_help_fits_eighty_columns(self):
        for command in COMMANDS:
            for line in self.run_tool("help", command).stdout.splitlines():
                self.assertLess(len(line), 80, line)

    def test_version_is_that_of_the_project(self):
        self.assertRegex(self.run_tool("--version").stdout, r"^memstrata \d+\.\d+\.\d+\n$")


class WrongUsage(ToolCase):
    def test_no_command_shows_the_overview_on_standard_error(self):
        self.refuse(says="Usage: memstrata COMMAND")

    def test_unknown_command_suggests_the_closest(self):
        self.refuse("repaly", says=["no command 'repaly'", "did you mean 'replay'?"])

    def test_unknown_command_far_from_all_suggests_nothing(self):
        self.assertNotIn("did you mean", self.refuse("frobnicate", says="no command").stderr)

    def test_help_of_an_unknown_command_is_refused(self):
        self.refuse("help", "nothing", says="no command 'nothing'")

    def test_unknown_option_points_to_the_help(self):
        self.refuse("replay", "--nonsense", says=["--nonsense", "memstrata replay --help"])

    def test_second_positional_argument_is_refused(self):
        self.refuse("replay", self.small, self.small, says="memstrata replay --help")

    def test_option_twice_is_refused(self):
        self.refuse("replay", "--seed", "1", "--seed", "2", says="--seed")

    def test_trace_needs_a_subcommand(self):
        self.refuse("trace", says="subcommand")

    def test_every_bad_value_is_refused_with_the_name_of_its_option(self):
        for option, value in [
            ("--requests", "0"),
            ("--requests", "-3"),
            ("--requests", "many"),
            ("--hit-curve", "1,x"),
            ("--model", "gpt-17"),
            ("--layers", "x"),
            ("--dtype", "f12"),
            ("--scale", "2"),
            ("--scale", "1/0"),
            ("--policy", "magic"),
            ("--backing", "cloud"),
            ("--limit", "host=lots"),
            ("--limit", "host=0"),
            ("--limit", "device=1GiB"),
            ("--limit", "host=99999999999GiB"),
            ("--granule", "0"),
            ("--granule", "64Kib2"),
            ("--context", "0"),
            ("--cache-blocks", "-1"),
            ("--find-limit", "wait_p99<5s"),
            ("--find-limit", "speed<=5s"),
            ("--prefill-tps", "0"),
            ("--prefill-tps", "fast"),
            ("--decode-tps", "0"),
            ("--corrupt", "0"),
            ("--seed", "x"),
        ]:
            with self.subTest(option=option, value=value):
                self.refuse("replay", *SIM[:2], self.small, option, value, says=option)

    def test_what_cannot_go_together_is_refused(self):
        for arguments in [
            ["--backing", "sim", "--verify"],
            ["--backing", "sim", "--corrupt", "1"],
            ["--backing", "sim", "--record", "calls"],
            ["--find-limit", "refused<=0", "--limit", "1GiB"],
            ["--find-limit", "refused<=0", "--record", "calls"],
            ["--json", "-", "--html", "-"],
            ["--model", "llama-3-8b", "--layers", "3"],
            ["--backing", "real", "--policy", "concat"],
        ]:
            with self.subTest(arguments=arguments):
                self.refuse("replay", self.small, *arguments, says=["memstrata replay"])

    def test_incomplete_geometry_names_the_missing_figure(self):
        self.refuse("replay", self.small, "--backing", "sim", "--layers", "4", says="kv-heads")

    def test_unknown_group_of_measures_is_refused(self):
        self.refuse("bench", "nonsense", says=["nonsense", "--list"])


class CouldNotRun(ToolCase):
    def test_report_that_cannot_be_written_is_refused_before_the_run(self):
        for option in ["--json", "--html"]:
            with self.subTest(option=option):
                self.refuse("replay", self.small, *SIM, option, "no/such/folder/file", says="cannot write", code=3)

    def test_full_standard_output_exits_with_3(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(
                [TOOL, "replay", self.small, *SIM], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        self.assertEqual(done.returncode, 3)
        self.assertIn("could not be written", done.stderr)

    def test_recording_of_calls_that_is_missing_exits_with_3(self):
        self.refuse("bench", "replay-raw", "no-such-file", says="no-such-file", code=3)


class Streams(ToolCase):
    def test_nothing_is_drawn_and_no_colour_is_used_where_there_is_no_terminal(self):
        done = self.run_tool("replay", self.small, *SIM)
        self.assertEqual(done.stderr, "")
        self.assertNotRegex(done.stdout, re.compile("[\x00-\x09\x0b-\x1f]"))

    def test_a_table_needs_no_locale(self):
        plain = self.run_tool("replay", self.small, *SIM, env={"LC_ALL": "C"}).stdout
        other = self.run_tool("replay", self.small, *SIM, env={"LC_ALL": "C.UTF-8"}).stdout
        hide = re.compile(r"(?m)^  time of the run.*$")
        self.assertEqual(hide.sub("", plain), hide.sub("", other))

    def test_progress_is_drawn_on_a_terminal_only(self):
        if not os.path.exists("/usr/bin/script"):
            self.skipTest("script(1) makes the terminal; it is missing (Debian package bsdutils)")
        trace = self.folder / "long.jsonl"
        self.run_tool("trace", "synth", "--scale", "40", "-o", str(trace))
        command = f"{TOOL} replay {trace} --backing sim --find-limit 'refused<=0' > /dev/null"
        shown = subprocess.run(
            ["/usr/bin/script", "-qec", command, "/dev/null"], capture_output=True, text=True, check=False
        ).stdout
        self.assertRegex(shown, r"\[#*\.*\] +\d+ %")


if __name__ == "__main__":
    main()
