#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which places the mutation run finds in a source, and what it makes of what the tests answer."""
import contextlib
import io
import pathlib
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").resolve()
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
import mutate  # noqa: E402
import mutation_sites  # noqa: E402


def texts(source):
    return [(site.line, site.text.strip()) for site in mutation_sites.sites(source)]


class Sites(unittest.TestCase):
    def test_each_operator_is_a_place(self):
        self.assertIn((1, "if (a <= b) {"), texts("  if (a < b) {\n"))
        self.assertIn((1, "return a || b;"), texts("  return a && b;\n"))
        self.assertIn((1, "return a - b;"), texts("  return a + b;\n"))
        self.assertIn((1, "if (ok) {"), texts("  if (!ok) {\n"))
        self.assertIn((1, "return false;"), texts("  return true;\n"))
        self.assertIn((1, "for (; i < n; --i) {"), texts("  for (; i < n; ++i) {\n"))

    def test_a_lost_call_and_a_lost_assignment_are_places(self):
        self.assertEqual(texts("  map_.remove(range);\n"), [(1, ";")])
        self.assertEqual(texts("  total_ = wanted;\n"), [(1, ";")])

    def test_two_places_of_one_line_are_two_mutants(self):
        self.assertEqual(len(texts("  return a + b < c;\n")), 2)

    def test_comments_literals_and_declarations_are_no_places(self):
        for line in (
            "// a < b\n",
            '  auto x = text("a < b");\n',
            "template <class T> void f(T&& value);\n",
            "  #include <vector>\n",
            "  static_assert(a < b);\n",
            "  friend bool operator==(A, A) = default;\n",
            "  MEMSTRATA_ASSERT(a < b);\n",
            "  const auto before = used;\n",
        ):
            with self.subTest(line=line):
                self.assertEqual(texts(line), [])

    def test_a_concept_is_no_place_and_the_function_after_it_is(self):
        source = "concept Big = requires(A a) {\n  { a < b };\n};\nbool f() { return a < b; }\n"
        self.assertEqual(texts(source), [(4, "bool f() { return a <= b; }")])

    def test_applying_changes_one_line_alone(self):
        source = "int f() {\n  return a + b;\n}\n"
        (site,) = mutation_sites.sites(source)
        self.assertEqual(mutation_sites.applied(source, site), "int f() {\n  return a - b;\n}\n")


class Verdicts(unittest.TestCase):
    def close(self, killed, survived, not_compiled, least):
        report = mutate.Report(killed + survived + not_compiled)
        site = mutation_sites.Site(7, "logic", "a || b")
        mutant = mutate.Mutant(pathlib.Path("src/core/x.cpp"), site)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            for verdict, count in (("unit_core", killed), ("survived", survived), ("not compiled", not_compiled)):
                for _ in range(count):
                    report.add(mutant, verdict)
            status = report.close(least)
        return status, out.getvalue()

    def test_nine_of_ten_killed_is_enough(self):
        status, out = self.close(180, 20, 50, 200)
        self.assertEqual(status, 0)
        self.assertIn("200 counted, 180 killed (90.0 %), 20 survived, 50 not compiled", out)
        self.assertIn("  src/core/x.cpp:7: logic: a || b", out)

    def test_fewer_killed_is_not_enough(self):
        self.assertEqual(self.close(179, 21, 0, 200)[0], 1)

    def test_mutants_that_do_not_compile_do_not_count(self):
        self.assertEqual(self.close(199, 0, 100, 200)[0], 1)

    def test_the_draw_is_the_same_for_the_same_seed_and_covers_what_is_asked(self):
        files = mutate.default_files(ROOT)
        drawn = mutate.draw(ROOT, files, 50, 1)
        self.assertEqual(drawn, mutate.draw(ROOT, files, 50, 1))
        self.assertEqual(len(drawn), 50)
        self.assertGreaterEqual(len(mutate.draw(ROOT, files, None, 1)), 200)

    def test_every_worker_runs_the_programs_of_its_own_build(self):
        line = "unit_core|/a/worker1/build/t/unit_core|unit|memstrata::core"
        program = mutate.program_of(line, pathlib.Path("/a/worker1/build"))
        self.assertEqual(pathlib.Path("/a/worker0/build") / program.path, pathlib.Path("/a/worker0/build/t/unit_core"))

    def test_programs_of_the_layer_come_first_and_those_of_the_tool_never(self):
        def program(folder, name, label, *libraries):
            return mutate.Program(name, pathlib.Path("tests", label, folder, name), (label,), libraries)

        programs = [
            program("core", "property_books", "property", "memstrata::core"),
            program("core", "unit_core", "unit", "memstrata::core"),
            program("structure", "unit_structure", "unit", "memstrata::structure"),
            program("tool", "unit_tool", "unit", "memstrata_tool"),
        ]
        own, others = mutate.programs_for("core", programs, {})
        self.assertEqual([each.target for each in own], ["unit_core", "property_books"])
        self.assertEqual([each.target for each in others], ["unit_structure"])


if __name__ == "__main__":
    unittest.main()
