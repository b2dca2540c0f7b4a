#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants wrong includes in a small tree and demands that check_layers.py names each of them, and nothing else."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_layers  # noqa: E402

TREE = {
    "include/memstrata/core/a.hpp": "#include <cstdint>\n",
    "include/memstrata/contract/c.hpp": '#include "memstrata/core/a.hpp"\n',
    "include/memstrata/mechanism/host/h.hpp": '#include "memstrata/contract/c.hpp"\n',
    "include/memstrata/mechanism/cuda/driver_table.hpp": "",
    "include/memstrata/mechanism/cuda/pool.hpp": "",
    "include/memstrata/structure/s.hpp": '#include "memstrata/contract/c.hpp"\n',
    "include/memstrata/governance/g.hpp": '#include "memstrata/core/a.hpp"\n',
    "include/memstrata/holder/k.hpp": '#include "memstrata/structure/s.hpp"\n',
    "include/memstrata/frontend/f.hpp": '#include "memstrata/holder/k.hpp"\n',
    "include/memstrata/memstrata.hpp": '#include "memstrata/structure/s.hpp"\n',
    "src/mechanism/host/h.cpp": '#include <sys/mman.h>\n#include "memstrata/mechanism/host/h.hpp"\n#include <fmt/core.h>\n',
    "src/mechanism/host/private.hpp": "",
    "src/mechanism/sim/sim.cpp": '#include "memstrata/mechanism/cuda/driver_table.hpp"\n',
    "src/core/a.cpp": '#include <fmt/core.h>\n',
}

# (file, line that is planted, part of the reason)
PLANTED = [
    ("include/memstrata/core/a.hpp", '#include "memstrata/contract/c.hpp"', "core may not include contract"),
    ("src/core/a.cpp", "#include <unistd.h>", "core knows no system"),
    ("include/memstrata/contract/c.hpp", '#include "memstrata/structure/s.hpp"', "contract may not include structure"),
    ("include/memstrata/mechanism/host/h.hpp", '#include "memstrata/structure/s.hpp"', "mechanism may not include structure"),
    ("include/memstrata/structure/s.hpp", '#include "memstrata/governance/g.hpp"', "structure may not include governance"),
    ("include/memstrata/structure/s.hpp", '#  include "memstrata/mechanism/host/h.hpp"', "structure may not include mechanism"),
    ("include/memstrata/governance/g.hpp", '#include "memstrata/mechanism/host/h.hpp"', "governance may not include mechanism"),
    ("include/memstrata/governance/g.hpp", '#include "memstrata/structure/s.hpp"', "governance may not include structure"),
    ("include/memstrata/holder/k.hpp", '#include "memstrata/frontend/f.hpp"', "holder may not include frontend"),
    ("include/memstrata/mechanism/host/h.hpp", "#include <sys/mman.h>", "public header"),
    ("include/memstrata/core/a.hpp", "#include <fmt/core.h>", "fmt belongs"),
    ("src/mechanism/host/h.cpp", '#include "memstrata/mechanism/cuda/pool.hpp"', "mechanism/host may not include mechanism/cuda"),
    ("src/mechanism/sim/sim.cpp", '#include "memstrata/mechanism/cuda/pool.hpp"', "mechanism/sim may not include mechanism/cuda"),
    ("src/mechanism/sim/sim.cpp", '#include "mechanism/host/private.hpp"', "another folder"),
    ("src/core/a.cpp", '#include "memstrata/memstrata.hpp"', "above all layers"),
    ("src/core/a.cpp", '#include "memstrata/core/gone.hpp"', "no such file"),
]


class Layers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in TREE.items():
            file = self.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def test_a_right_tree_has_no_finding(self):
        self.assertEqual(check_layers.findings(self.root)[0], [])

    def test_every_planted_include_is_found_alone(self):
        for name, line, reason in PLANTED:
            with self.subTest(file=name, line=line):
                file = self.root / name
                before = file.read_text()
                file.write_text(before + line + "\n")
                found = check_layers.findings(self.root)[0]
                file.write_text(before)
                self.assertEqual(len(found), 1, found)
                self.assertEqual(str(found[0][0]), name)
                self.assertEqual(found[0][1], before.count("\n") + 1)
                self.assertIn(reason, found[0][3])

    def test_an_empty_tree_is_an_error(self):
        with self.assertRaises(FileNotFoundError):
            check_layers.findings(self.root / "nowhere")


if __name__ == "__main__":
    unittest.main()
