#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./run and ./test on machines that are played by small scripts: what they print, where, and how they end."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").resolve()

ALL_INSTALLED = """shift 3
for name in "$@"; do echo "$name installed"; done"""
NONE_INSTALLED = "exit 1"
# Makes a tool that says what it was given, and ends with 7.
BUILDS_A_TOOL = r"""
while (($# > 0)); do
  case $1 in
    -B) mkdir -p "$2"; touch "$2/build.ninja" ;;
    --build) mkdir -p "$2/tools/memstrata"
      printf '#!/bin/bash\necho "tool: $*"\nexit 7\n' >"$2/tools/memstrata/memstrata"
      chmod +x "$2/tools/memstrata/memstrata" ;;
  esac
  shift
done
echo '[1/1] progress of the build'"""


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.fakes = self.folder / "bin"
        self.fakes.mkdir()

    def fake(self, name, body):
        file = self.fakes / name
        file.write_text(f"#!/bin/bash\n{body}\n")
        file.chmod(0o755)

    def machine(self, dpkg=ALL_INSTALLED, cmake=BUILDS_A_TOOL, apt="exit 0", user=0):
        self.fake("dpkg-query", dpkg)
        self.fake("cmake", cmake)
        self.fake("apt-get", f'echo "apt-get $*" >>"{self.folder}/apt.log"\n{apt}')
        self.fake("id", f"echo {user}")

    def apt_calls(self):
        log = self.folder / "apt.log"
        return log.read_text().splitlines() if log.exists() else []

    def call(self, command, *words, cwd="/", path=None):
        path = path or f"{self.fakes}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "MEMSTRATA_BUILD_DIR": str(self.folder / "build")}
        return subprocess.run(
            ["/bin/bash", str(ROOT / command), *words],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def test_run_passes_arguments_and_exit_status_and_prints_nothing_of_its_own_on_standard_output(self):
        self.machine()
        done = self.call("run", "probe", "--json", "two words")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertEqual(done.stdout, "tool: probe --json two words\n")
        self.assertIn("progress of the build", done.stderr)

    def test_run_without_arguments_replays_the_sample_on_real_memory(self):
        self.machine()
        done = self.call("run")
        self.assertEqual(done.stdout, f"tool: replay --backing real {ROOT}/samples/sample.trace.jsonl\n")

    def test_run_installs_nothing_where_nothing_is_missing(self):
        self.machine()
        self.call("run")
        self.assertEqual(self.apt_calls(), [])

    def test_run_installs_the_missing_packages_alone(self):
        self.machine(dpkg='shift 3\nfor n in "$@"; do [[ $n == ninja-build || $n == zlib1g-dev ]] || echo "$n installed"; done')
        done = self.call("run")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertEqual(
            self.apt_calls(),
            ["apt-get update -q", "apt-get install -y -q --no-install-recommends ninja-build zlib1g-dev"],
        )

    def test_run_needs_fewer_packages_than_test(self):
        self.machine(dpkg=NONE_INSTALLED)
        self.call("run")
        self.assertNotIn("clang-19", " ".join(self.apt_calls()))

    def test_run_with_failing_installation_ends_with_3_and_the_line_to_type(self):
        self.machine(dpkg=NONE_INSTALLED, apt="exit 100")
        done = self.call("run", "probe")
        self.assertEqual(done.returncode, 3)
        self.assertIn("\n  apt-get update && apt-get install -y --no-install-recommends build-essential", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_run_of_a_user_without_sudo_ends_with_3_and_the_line_to_type(self):
        self.machine(dpkg=NONE_INSTALLED, user=1000)
        for tool in ("bash", "awk", "dirname", "env"):
            (self.fakes / tool).symlink_to(f"/usr/bin/{tool}")
        done = self.call("run", "probe", path=str(self.fakes))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("\n  sudo apt-get update && sudo apt-get install -y", done.stderr)
        self.assertEqual(self.apt_calls(), [])

    def test_run_of_a_user_with_sudo_installs_through_it(self):
        self.machine(dpkg=NONE_INSTALLED, user=1000)
        self.fake("sudo", f'echo "sudo $*" >>"{self.folder}/apt.log"\nwhile [[ $1 == -* ]]; do shift; done\n"$@"')
        done = self.call("run", "probe")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertEqual(self.apt_calls()[0], "sudo -n apt-get update -q")

    def test_run_with_failing_configuration_ends_with_3_and_the_line_to_type(self):
        self.machine(cmake="exit 1")
        done = self.call("run", "probe")
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"\n  cd '{ROOT}' && cmake --preset release", done.stderr)

    def test_run_with_failing_build_ends_with_3_and_the_line_to_type(self):
        self.machine(cmake='[[ $1 == --build ]] && exit 1\n' + BUILDS_A_TOOL)
        done = self.call("run", "probe")
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"\n  cmake --build '{self.folder}/build/release'", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_test_refuses_what_it_does_not_know_with_2_and_its_usage(self):
        self.machine()
        for words in (["--nonsense"], ["--fast", "more"], ["--soak", "more"], ["file"]):
            with self.subTest(words=words):
                done = self.call("test", *words)
                self.assertEqual(done.returncode, 2)
                self.assertIn("./test [--fast|--soak|--mutants [FILES]]", done.stderr)

    def test_test_with_failing_set_up_ends_with_3_and_the_line_to_type(self):
        self.machine(dpkg=NONE_INSTALLED, apt="exit 100")
        done = self.call("test", "--fast")
        self.assertEqual(done.returncode, 3)
        self.assertIn("\n  apt-get update && apt-get install", done.stderr)

    def ctest_that_says(self, closing, status):
        self.machine()
        self.fake("ctest", f"echo '1/9 Test #1: A.B ...   Passed    0.01 sec'\necho '{closing}'\nexit {status}")

    def test_test_closes_with_the_table_and_the_line_of_ctest(self):
        self.ctest_that_says("100% tests passed, 0 tests failed out of 9", 0)
        done = self.call("test", "--fast")
        lines = done.stdout.splitlines()
        # Nine of ctest, the set-up and the build.
        self.assertEqual(lines[-1], "100% tests passed, 0 tests failed out of 11", done.stdout)
        self.assertTrue(any(line.split() == ["stage", "minutes", "result"] for line in lines))
        self.assertEqual(done.returncode, 0)

    def test_test_with_a_failing_test_says_so_and_ends_with_1(self):
        self.ctest_that_says("78% tests passed, 2 tests failed out of 9", 8)
        done = self.call("test", "--fast")
        lines = done.stdout.splitlines()
        self.assertEqual(lines[-1], "81% tests passed, 2 tests failed out of 11")
        self.assertIn("FAILED: unit, conformance, layering, format", lines)
        self.assertEqual(done.returncode, 1)

    def test_test_with_a_failing_build_goes_on_to_the_table_and_ends_with_1(self):
        self.ctest_that_says("100% tests passed, 0 tests failed out of 9", 0)
        self.fake("cmake", "exit 1")
        (self.folder / "build/plain").mkdir(parents=True)
        done = self.call("test", "--fast")
        self.assertIn("FAILED: plain build", done.stdout.splitlines())
        self.assertEqual(done.stdout.splitlines()[-1], "90% tests passed, 1 tests failed out of 11")
        self.assertEqual(done.returncode, 1)

    def test_test_where_no_test_ran_fails(self):
        self.ctest_that_says("No tests were found!!!", 1)
        done = self.call("test", "--fast")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED: unit, conformance, layering, format", done.stdout)


if __name__ == "__main__":
    unittest.main()
