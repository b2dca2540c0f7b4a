# SPDX-License-Identifier: Apache-2.0
"""memstrata trace: import, synth and info."""

import json

from tool_case import SAMPLE, SMALL_TRACE, ToolCase, main

LOG = """\
{"timestamp": 5000, "output_length": 3, "token_ids": %s}
{"timestamp": 6000, "output_length": 4, "token_ids": %s, "tenant": "a"}
""" % (list(range(600)), list(range(512)) + [7] * 10)


class Synth(ToolCase):
    def test_equal_options_give_equal_traces(self):
        first = self.run_tool("trace", "synth", "--seed", "7", "--sessions", "9").stdout
        self.assertEqual(first, self.run_tool("trace", "synth", "--seed", "7", "--sessions", "9").stdout)
        self.assertNotEqual(first, self.run_tool("trace", "synth", "--seed", "8", "--sessions", "9").stdout)

    def test_trace_says_that_it_is_synthetic_and_how_it_was_made(self):
        header = json.loads(self.run_tool("trace", "synth", "--seed", "7").stdout.splitlines()[0])
        self.assertTrue(header["synthetic"])
        self.assertIn("memstrata trace synth --seed 7", json.dumps(header))

    def test_the_line_that_made_a_trace_makes_it_again(self):
        text = self.run_tool(
            "trace", "synth", "--seed", "3", "--sessions", "5", "--scale", "2", "--session-gap-ms", "900",
            "--max-input-tokens", "3000", "--tenants", "2",
        ).stdout  # fmt: skip
        path = self.write("synth.jsonl", text)
        made_by = json.loads(self.run_tool("trace", "info", path, "--json", "-").stdout)["trace"]["made_by"]
        self.assertEqual(made_by.split()[0], "memstrata")
        self.assertEqual(self.run_tool(*made_by.split()[1:]).stdout, text)

    def test_sample_in_the_repository_is_what_the_generator_makes(self):
        text = SAMPLE.read_text(encoding="utf-8")
        made_by = json.loads(self.run_tool("trace", "info", str(SAMPLE), "--json", "-").stdout)["trace"]["made_by"]
        self.assertEqual(self.run_tool(*made_by.split()[1:]).stdout, text)
        self.assertLess(SAMPLE.stat().st_size, 200_000)

    def test_output_goes_to_the_file(self):
        done = self.run_tool("trace", "synth", "--sessions", "2", "--output", "t.jsonl")
        self.assertEqual(done.stdout, "")
        self.run_tool("trace", "info", "t.jsonl")

    def test_output_that_cannot_be_written_exits_with_3(self):
        self.refuse("trace", "synth", "-o", "no/such/folder/t", says="cannot write", code=3)


class Import(ToolCase):
    def test_token_ids_become_a_trace_that_can_be_replayed(self):
        log = self.write("log.jsonl", LOG)
        done = self.run_tool("trace", "import", log, "-o", "t.jsonl")
        self.assertIn("imported 2 requests", done.stderr)
        info = json.loads(self.run_tool("trace", "info", "t.jsonl", "--json", "-").stdout)["trace"]
        self.assertEqual((info["requests"], info["block_refs"], info["unique_blocks"]), (2, 4, 3))
        self.assertEqual(info["input_tokens"], 600 + 522)
        self.run_tool("replay", "t.jsonl", "--backing", "sim")

    def test_log_may_come_from_standard_input(self):
        self.assertIn('"tenant"', self.run_tool("trace", "import", "-", stdin=LOG).stdout)

    def test_bad_line_stops_unless_it_may_be_skipped(self):
        log = self.write("log.jsonl", LOG + '{"timestamp": 7000, "output_length": -1, "token_ids": [1]}\n')
        self.refuse_import(log)
        done = self.run_tool("trace", "import", log, "--skip-bad")
        self.assertIn("1 bad records skipped", done.stderr)

    def refuse_import(self, log):
        done = self.run_tool("trace", "import", log, "-o", "t.jsonl", code=2)
        self.assertIn("line 3", done.stderr)

    def test_import_needs_a_file(self):
        self.refuse("trace", "import", says="FILE")


class Info(ToolCase):
    def test_figures_of_the_small_trace(self):
        info = json.loads(self.run_tool("trace", "info", self.small, "--json", "-").stdout)
        self.assertEqual(info["schema"], "memstrata.trace-info/1")
        trace = info["trace"]
        self.assertEqual((trace["requests"], trace["input_tokens"], trace["output_tokens"]), (3, 2648, 70))
        self.assertEqual((trace["block_refs"], trace["unique_blocks"], trace["unlimited_hits"]), (6, 3, 3))
        self.assertEqual(trace["largest_request_tokens"], 1064)
        self.assertEqual(trace["span_s"], 90.0)

    def test_hit_curve_and_requests_are_heeded(self):
        arguments = ["trace", "info", self.small, "--requests", "2", "--hit-curve", "5", "--json", "-"]
        trace = json.loads(self.run_tool(*arguments).stdout)["trace"]
        self.assertEqual(trace["hit_curve"], [{"blocks": 5, "hits": 1}])

    def test_default_is_the_sample(self):
        self.assertIn("sample.trace.jsonl", self.run_tool("trace", "info").stdout)

    def test_skip_bad_counts(self):
        bad = self.write("bad.jsonl", SMALL_TRACE.replace('"input_length": 600', '"input_length": 0'))
        self.refuse("trace", "info", bad, says=["line 2", "input_length"])
        trace = json.loads(self.run_tool("trace", "info", bad, "--skip-bad", "--json", "-").stdout)["trace"]
        self.assertEqual(trace["skipped"], 1)


if __name__ == "__main__":
    main()
