#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes a name or a transition in a copy of headers and model and demands that check_release_model.py says so."""
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_release_model as check  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
STATES, LIFECYCLE = check.HEADERS


class Names(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in (*check.HEADERS, check.MODEL):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)

    def findings_after(self, name, old, new):
        text = (self.root / name).read_text()
        self.assertIn(old, text)
        (self.root / name).write_text(text.replace(old, new, 1))
        return check.name_findings(self.root)

    def test_the_model_agrees_with_the_headers(self):
        self.assertEqual(check.name_findings(self.root), [])

    def test_an_enumerator_that_the_model_lacks_is_found(self):
        found = self.findings_after(LIFECYCLE, "enum class MechanismEvent : std::uint8_t { ", "enum class MechanismEvent : std::uint8_t { suspend, ")
        self.assertIn("MechanismEvent::suspend does not occur", found[0])

    def test_a_name_that_the_code_lacks_is_found(self):
        found = self.findings_after(check.MODEL, "mtype = { live,", "mtype = { live, forgotten,")
        self.assertIn("forgotten is no enumerator", found[0])

    def test_a_transition_that_the_model_lacks_is_found(self):
        found = self.findings_after(STATES, "return from(State::live, State::queued);", "return from(State::live, State::quarantined);")
        self.assertEqual(len(found), 2)
        self.assertIn("('prepare', 'live', 'quarantined') is missing", found[0])

    def test_a_transition_that_the_code_lacks_is_found(self):
        found = self.findings_after(STATES, "state == State::live || is_quarantine(state)", "is_quarantine(state)")
        self.assertIn("('confirm_context_terminated', 'live', 'released') is no transition", found[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
