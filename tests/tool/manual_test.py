# SPDX-License-Identifier: Apache-2.0
"""The manual page and the completion name exactly what the help names."""

import os
import pathlib
import re
import shutil
import subprocess

from tool_case import SOURCE, ToolCase, main

SCRIPT = SOURCE / "tools" / "memstrata" / "memstrata.bash"
MANUAL = os.environ.get("MEMSTRATA_MANUAL", "")
COMMANDS = [
    ["replay"], ["trace"], ["trace", "import"], ["trace", "synth"], ["trace", "info"], ["probe"], ["bench"],
    ["bench", "replay-raw"],
]  # fmt: skip


class OptionLists(ToolCase):
    def options_of(self, command):
        text = self.run_tool(*command, "--help").stdout
        return set(re.findall(r"(?m)^  (?:-\w,)?(--[a-z-]+)", text))

    def complete(self, *words):
        """What bash offers for the last of `words`."""
        script = (
            f'source "{SCRIPT}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _memstrata; printf "%s\\n" "${{COMPREPLY[@]}}"'
        )
        done = subprocess.run(
            ["bash", "-c", script, "bash", "memstrata", *words],
            capture_output=True, text=True, cwd=self.folder, check=True,
        )  # fmt: skip
        return set(done.stdout.split())


class Completion(OptionLists):
    def test_every_option_of_every_command_is_offered_and_no_other(self):
        for command in COMMANDS:
            with self.subTest(command=command):
                self.assertEqual(self.complete(*command, "--"), self.options_of(command))

    def test_commands_and_subcommands_are_offered(self):
        self.assertEqual(self.complete(""), {"replay", "trace", "probe", "bench", "help", "--help", "--version"})
        self.assertEqual(self.complete("trace", ""), {"import", "synth", "info"})
        self.assertEqual(self.complete("help", "p"), {"probe"})

    def test_models_are_those_of_the_help(self):
        text = re.sub(r"\s+", " ", self.run_tool("help", "replay").stdout)
        names = set(re.search(r"one of: (.*?) \[default", text).group(1).split(", "))
        self.assertEqual(self.complete("replay", "--model", ""), names)

    def test_policies_are_completed_after_a_comma(self):
        self.assertEqual(self.complete("replay", "--policy", "paged,v"), {"paged,virtual"})

    def test_files_are_offered_where_a_file_is_expected(self):
        self.assertEqual(self.complete("replay", "sm"), {"small.jsonl"})
        self.assertEqual(self.complete("replay", "--json", "sm"), {"small.jsonl"})

    def test_nothing_is_offered_where_a_number_is_expected(self):
        self.assertEqual(self.complete("replay", "--seed", ""), set())


class Manual(OptionLists):
    def setUp(self):
        super().setUp()
        if not MANUAL or not pathlib.Path(MANUAL).exists():
            self.skipTest("the manual page was not built: scdoc is missing (Debian package scdoc)")
        self.text = pathlib.Path(MANUAL).read_text(encoding="utf-8")

    def test_page_is_clean(self):
        if shutil.which("mandoc") is None:
            self.skipTest("mandoc is missing (Debian package mandoc)")
        done = subprocess.run(
            ["mandoc", "-Tlint", "-W", "warning", MANUAL], capture_output=True, text=True, check=False
        )
        # scdoc writes a paragraph macro before every block; it has no effect there.
        found = [line for line in done.stdout.splitlines() if "skipping paragraph macro" not in line]
        self.assertEqual(found, [])

    def test_page_names_every_option_and_no_other(self):
        named = set(re.findall(r"--[a-z][a-z-]*[a-z]", self.text.replace("\\-", "-")))
        known = {"--help", "--version"}
        for command in COMMANDS:
            known |= self.options_of(command)
        self.assertEqual(named, known)


if __name__ == "__main__":
    main()
