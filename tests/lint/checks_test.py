#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checks of this folder find what is wrong: each is given a small tree with one thing wrong in it."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import check_errors  # noqa: E402
import check_vocabulary  # noqa: E402

HEADER = """// Gone is a word of a comment.
class Room { int size() const; };
class Other { int weight(); };
"""
ERROR_HEADER = """class RoomError {
  using Kind = std::variant<TooSmall, TooFar>;  // a comment
};
"""
ERROR_PAGE = "## `RoomError`\n\n| alternative | when |\n|---|---|\n| `TooSmall` | x |\n| `TooFar` | x |\n"


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, text):
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


class Vocabulary(Tree):
    def page(self, *rows, names=("Room", "Room::len")):
        self.write("include/memstrata/core/room.hpp", HEADER.split("class Other")[0])
        self.write("include/memstrata/core/other.hpp", "class Other" + HEADER.split("class Other")[1])
        self.write("tests/lint/earlier_names.txt", "\n".join(names) + "\n")
        self.write("docs/vocabulary.md", "\n".join(rows) + "\n")
        return check_vocabulary.findings(self.root)

    def test_a_true_page_has_no_finding(self):
        self.assertEqual(self.page("| `Room` | `Room` | present |  |", "| `Room::len` | `Room` `size` | present | x |"), [])

    def test_a_missing_name_is_found(self):
        self.assertIn("Room::len is missing", self.page("| `Room` | `Room` | present |  |")[0])

    def test_a_name_that_is_not_on_the_list_is_found(self):
        found = self.page("| `Room` | `Room` | present |  |", "| `Hall` |  | later |  |", names=["Room"])
        self.assertTrue(any("Hall is missing" in line for line in found), found)

    def test_a_symbol_that_stands_in_a_comment_only_is_found(self):
        found = self.page("| `Room` | `Gone` | present |  |", names=["Room"])
        self.assertIn("Gone occurs in no public header", found[0])

    def test_a_member_of_another_class_is_found(self):
        found = self.page("| `Room` | `Room` `weight` | present |  |", names=["Room"])
        self.assertIn("weight occurs in no public header", found[0])

    def test_a_name_marked_later_that_is_there_is_found(self):
        self.assertIn("marked later", self.page("| `Room` |  | later |  |", names=["Room"])[0])

    def test_a_dropped_name_without_the_call_that_serves_instead_is_found(self):
        self.assertIn("no call is named", self.page("| `Hall` |  | dropped | gone |", names=["Hall"])[0])


class Errors(Tree):
    def findings(self, header, page):
        self.write("include/memstrata/core/error/room_error.hpp", header)
        self.write("docs/errors.md", page)
        return check_errors.findings(self.root)

    def test_a_true_page_has_no_finding(self):
        self.assertEqual(self.findings(ERROR_HEADER, ERROR_PAGE), [])

    def test_an_alternative_without_a_row_is_found(self):
        found = self.findings(ERROR_HEADER.replace("TooFar", "TooFar, TooDark"), ERROR_PAGE)
        self.assertEqual(found, ["docs/errors.md: RoomError lacks TooDark"])

    def test_a_row_without_an_alternative_is_found(self):
        found = self.findings(ERROR_HEADER.replace(", TooFar", ""), ERROR_PAGE)
        self.assertEqual(found, ["docs/errors.md: RoomError has no TooFar"])

    def test_an_error_type_without_a_section_is_found(self):
        found = self.findings(ERROR_HEADER + ERROR_HEADER.replace("Room", "Hall"), ERROR_PAGE)
        self.assertEqual(found, ["docs/errors.md: no section for HallError"])


class Format(Tree):
    def check(self, text):
        self.write("src/a.cpp", text)
        self.write(".clang-format", "BasedOnStyle: Google\n")
        return subprocess.run(
            [sys.executable, str(HERE / "check_format.py"), str(self.root)], capture_output=True, text=True, check=False
        )

    def test_a_formatted_file_passes(self):
        self.assertEqual(self.check("int f() { return 1; }\n").returncode, 0)

    def test_an_unformatted_file_is_named(self):
        done = self.check("int  f( ) {return 1;}\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("src/a.cpp: not formatted", done.stdout)


if __name__ == "__main__":
    unittest.main()
