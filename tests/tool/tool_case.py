# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command-line tool share: running the real program and small traces."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

TOOL = os.environ["MEMSTRATA_TOOL"]
SOURCE = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = SOURCE / "samples" / "sample.trace.jsonl"

# Three requests with a shared first block of 512 tokens; the last one arrives when the others are gone.
SMALL_TRACE = """\
{"timestamp": 0, "input_length": 1024, "output_length": 40, "hash_ids": [1, 2]}
{"timestamp": 1000, "input_length": 600, "output_length": 20, "hash_ids": [1, 3]}
{"timestamp": 90000, "input_length": 1024, "output_length": 10, "hash_ids": [1, 2]}
"""

# The small model keeps real memory small: 16 MiB hold every request of the small trace.
REAL = ["--backing", "real", "--model", "smollm2-135m", "--limit", "host=256MiB"]
SIM = ["--backing", "sim", "--model", "smollm2-135m"]


class ToolCase(unittest.TestCase):
    """Runs the tool in a temporary folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.small = self.write("small.jsonl", SMALL_TRACE)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def run_tool(self, *arguments, code=0, stdin="", env=None, timeout=300):
        """Runs the tool and requires its exit code; returns the finished process."""
        done = subprocess.run(
            [TOOL, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            cwd=self.folder,
            timeout=timeout,
            check=False,
            env={**os.environ, **(env or {})},
        )
        self.assertEqual(
            done.returncode,
            code,
            f"{arguments}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}",
        )
        return done

    def refuse(self, *arguments, says, code=2, stdin=""):
        """Requires that the tool refuses, prints nothing as a result, and names every word of `says`."""
        done = self.run_tool(*arguments, code=code, stdin=stdin)
        self.assertEqual(done.stdout, "")
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, done.stderr)
        return done

    def replay_json(self, *arguments, code=0):
        """Runs a replay and returns its JSON from standard output."""
        done = self.run_tool("replay", *arguments, "--json", "-", code=code)
        return json.loads(done.stdout)


def main():
    unittest.main(verbosity=2)
