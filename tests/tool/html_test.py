# SPDX-License-Identifier: Apache-2.0
"""memstrata replay --html: one page that needs nothing else, with every figure, and nothing of a name as markup."""

import html.parser
import json
import re
import shutil
import subprocess

from tool_case import SIM, SMALL_TRACE, ToolCase, main

VOID = {"meta", "link"}


class Outline(html.parser.HTMLParser):
    """Collects tags with attributes, and checks that they are nested."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags = []
        self.open = []
        self.texts = {}
        self.wrong = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append((tag, self.getpos()))

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


class Page(ToolCase):
    def page(self, *arguments, name="page.html"):
        self.run_tool("replay", *arguments, "--html", name)
        return (self.folder / name).read_text(encoding="utf-8")

    def outline(self, text):
        outline = Outline()
        outline.feed(text)
        outline.close()
        return outline

    def data(self, text):
        return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))

    def test_page_is_well_formed(self):
        outline = self.outline(self.page(self.small, *SIM))
        self.assertEqual(outline.wrong, [])
        self.assertEqual(outline.open, [])

    def test_page_needs_no_network_and_no_other_file(self):
        text = self.page(self.small, *SIM)
        self.assertNotRegex(text, r"(?i)https?:|//[a-z]|@import|url\(|fetch\(|XMLHttpRequest|import\(")
        for tag, attributes in self.outline(text).tags:
            self.assertNotIn("src", attributes, tag)
            self.assertIn(attributes.get("href", "data:,"), ["data:,"])

    def test_series_of_every_policy_have_one_length_and_end_at_the_peak_figures(self):
        self.run_tool("replay", self.small, *SIM, "--html", "page.html", "--json", "r.json")
        text = (self.folder / "page.html").read_text(encoding="utf-8")
        report = json.loads((self.folder / "r.json").read_text(encoding="utf-8"))
        policies = self.data(text)["policies"]
        self.assertEqual(len(policies), 5)
        for policy, figures in zip(policies, report["policies"]):
            series = policy["series"]
            self.assertEqual(set(series), {"t", "live", "committed", "cached", "reserved", "queue", "hit_rate"})
            self.assertEqual(len({len(values) for values in series.values()}), 1)
            self.assertEqual(max(series["committed"]), figures["bytes"]["peak_committed"])
            self.assertEqual(max(series["live"]), figures["bytes"]["peak_live"])
            self.assertEqual(series["t"], sorted(series["t"]))

    def test_table_of_the_page_has_the_policies_and_the_tier_sentence(self):
        text = self.page(self.small, *SIM)
        outline = self.outline(text)
        for policy in ["reserve-max", "realloc", "concat", "paged", "virtual"]:
            self.assertIn(policy, outline.texts["th"])
        self.assertIn("host tier; device figures come with the device tier", text)

    def test_name_of_a_trace_is_text_and_never_markup(self):
        name = "a<script>alert(1)<!--&\"'.jsonl"
        self.write(name, SMALL_TRACE)
        text = self.page(name, *SIM)
        self.assertNotIn("<script>alert", text)
        self.assertIn("a&lt;script&gt;alert(1)&lt;!--&amp;&quot;&#39;.jsonl", text)

    def test_page_goes_to_standard_output_where_it_was_sent(self):
        done = self.run_tool("replay", self.small, *SIM, "--html", "-")
        self.assertTrue(done.stdout.startswith("<!DOCTYPE html>"))
        self.assertTrue(done.stdout.endswith("</html>\n"))
        self.assertIn("host tier", done.stderr)

    def test_page_is_made_for_phones_and_for_dark_rooms(self):
        text = self.page(self.small, *SIM)
        self.assertIn('name="viewport" content="width=device-width, initial-scale=1"', text)
        self.assertIn("prefers-color-scheme: dark", text)

    def test_script_is_valid(self):
        node = shutil.which("node")
        if node is None:
            self.skipTest("node checks the script; it is missing (Debian package nodejs)")
        script = re.search(r"<script>\n(.*?)</script>", self.page(self.small, *SIM), re.S).group(1)
        path = self.write("page.js", script)
        subprocess.run([node, "--check", path], check=True)


if __name__ == "__main__":
    main()
