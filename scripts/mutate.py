#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes the sources one place at a time and counts the changes that no test notices.

    mutate.py --build DIR [--jobs N] [--count N] [--seed S] [FILES]

Without FILES: a sample of core, structure and governance, drawn by the seed; at least 200 mutants must count and
90 % of them be killed. With FILES: every place of them; the same share must be killed.
Each worker has a copy of the tree and a build of its own. A mutant is built into the test programs of its layer, one
after the other, and is killed by the first test that fails, by a crash or by running five times as long as before.
A survivor of these meets the other programs that link its layer. A mutant that does not compile does not count.
Exit status: 0 enough were killed, 1 not enough, 2 the unchanged tree does not pass.
"""
import argparse
import concurrent.futures
import os
import pathlib
import queue
import random
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mutation_sites  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = ("core", "structure", "governance")
LABELS = ("unit", "conformance", "property")
FRONT_END = {"memstrata_tool", "memstrata::frontend"}  # links every layer and would take most of the time
CHUNK = 8
LEAST_MUTANTS = 200
LEAST_PERCENT = 90
DATA_LIMIT = 8 << 30


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--count", type=int, default=260, help="places to draw; some of them do not compile")
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--list", action="store_true", help="print the places and stop")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    return parser.parse_args()


@dataclass(frozen=True)
class Mutant:
    file: pathlib.Path  # relative to the root
    site: mutation_sites.Site

    def __str__(self):
        return f"{self.file}:{self.site.line}: {self.site.mistake}: {self.site.text.strip()}"


@dataclass(frozen=True)
class Program:
    target: str
    path: pathlib.Path
    labels: tuple
    libraries: tuple


def layer_of(file):
    parts = file.parts
    return parts[2] if parts[0] == "include" else parts[1]


def default_files(root):
    return [
        file.relative_to(root)
        for layer in LAYERS
        for folder in (root / "include/memstrata" / layer, root / "src" / layer)
        for file in sorted(folder.rglob("*"))
        if file.suffix in {".hpp", ".cpp"}
    ]


def draw(root, files, count, seed):
    """The mutants: all of them, or `count` drawn so that each file has its share. In the order of the files."""
    every = [Mutant(file, site) for file in files for site in mutation_sites.sites((root / file).read_text())]
    if count is None or count >= len(every):
        return every
    chosen = set(random.Random(seed).sample(range(len(every)), count))
    return [mutant for at, mutant in enumerate(every) if at in chosen]


def chunks(mutants):
    """Work for one turn of a worker: a few mutants of the same file, whose objects are then rebuilt once each."""
    parts = []
    for mutant in mutants:
        if parts and parts[-1][0].file == mutant.file and len(parts[-1]) < CHUNK:
            parts[-1].append(mutant)
        else:
            parts.append([mutant])
    return parts


def copy_tree(target):
    """The files of the working tree that git knows or would know, into `target`; unchanged ones keep their times."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode().split("\0")
    wanted = {name for name in names if name and (ROOT / name).is_file()}
    for name in wanted:
        source, copy = ROOT / name, target / name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
    for copy in [file for file in target.rglob("*") if file.is_file()]:
        if str(copy.relative_to(target)) not in wanted:
            copy.unlink()


def limit_memory():
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_LIMIT, DATA_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def program_of(line, build):
    """One line of the build's list. The path counts from the build, because every worker runs its own programs."""
    target, path, labels, libraries = line.split("|")
    return Program(
        target, pathlib.Path(path).relative_to(build), tuple(labels.split(",")), tuple(libraries.split(","))
    )


class Worker:
    def __init__(self, base, number):
        self.tree = base / f"worker{number}/tree"
        self.build = base / f"worker{number}/build"
        self.environment = {
            **os.environ,
            "CCACHE_DIR": str(base / "ccache"),
            "CCACHE_BASEDIR": str(base / f"worker{number}"),
            "CCACHE_MAXSIZE": "2G",
            "GTEST_COLOR": "no",
        }
        self.seconds = {}

    def command(self, words, timeout=None):
        return subprocess.run(
            words, env=self.environment, cwd=self.tree, capture_output=True, text=True, timeout=timeout, check=False
        )

    def prepare(self):
        """Copies and configures; gives the test programs that count."""
        self.tree.mkdir(parents=True, exist_ok=True)
        copy_tree(self.tree)
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        done = self.command(["cmake", "--preset", "mutants", "-B", str(self.build), *launcher])
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        programs = []
        for line in (self.build / "test_programs.txt").read_text().splitlines():
            if line.count("|") != 3:
                continue
            program = program_of(line, self.build)
            if set(program.labels) & set(LABELS) and not FRONT_END & set(program.libraries):
                programs.append(program)
        return programs

    def build_program(self, program):
        return self.command(["ninja", "-C", str(self.build), "-j1", program.target])

    def passes(self, program):
        """Whether every test of the program passes in time."""
        limit = max(20.0, 5 * self.seconds.get(program.target, 60.0))
        process = subprocess.Popen(
            [str(self.build / program.path), "--gtest_fail_fast", "--gtest_brief=1"],
            env=self.environment,
            cwd=self.build,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=limit_memory,
        )
        try:
            return process.wait(limit) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return False

    def measure(self, programs):
        """The unchanged tree must pass; its times are the measure of an endless loop."""
        for program in programs:
            built = self.build_program(program)
            if built.returncode != 0:
                return f"{program.target} does not build:\n{built.stdout[-3000:]}"
            start = time.monotonic()
            if not self.passes(program):
                return f"{program.target} does not pass unchanged"
            self.seconds[program.target] = time.monotonic() - start
        return None

    def judge(self, mutant, first, then):
        """`not compiled`, `survived`, or the program that killed the mutant."""
        for program in (*first, *then):
            if self.build_program(program).returncode != 0:
                return "not compiled"
            if not self.passes(program):
                return program.target
        return "survived"

    def turn(self, mutants, programs, report):
        file = self.tree / mutants[0].file
        original = file.read_text()
        first, then = programs_for(layer_of(mutants[0].file), programs, self.seconds)
        try:
            for mutant in mutants:
                file.write_text(mutation_sites.applied(original, mutant.site))
                report(mutant, self.judge(mutant, first, then))
        finally:
            file.write_text(original)


def programs_for(layer, programs, seconds):
    """The programs in the folders of the layer, quick ones first, and the others that link it."""

    def order(program):
        return (LABELS.index(next(label for label in LABELS if label in program.labels)), seconds.get(program.target, 0))

    own = [program for program in programs if layer in program.path.parts]
    others = [
        program
        for program in programs
        if program not in own
        and any(library.startswith("memstrata::") for library in program.libraries)
        and (layer == "core" or f"memstrata::{layer}" in program.libraries)
    ]
    return sorted(own, key=order), sorted(others, key=order)


class Report:
    def __init__(self, total):
        self.total = total
        self.killed, self.survived, self.not_compiled = [], [], []
        self.start = time.monotonic()

    def add(self, mutant, verdict):
        group = {"survived": self.survived, "not compiled": self.not_compiled}.get(verdict, self.killed)
        group.append(mutant)
        if verdict == "survived":
            print(f"survived: {mutant}", flush=True)
        done = len(self.killed) + len(self.survived) + len(self.not_compiled)
        if done % 20 == 0 or done == self.total:
            print(f"[{done}/{self.total}] {time.monotonic() - self.start:.0f} s", flush=True)

    def close(self, least):
        counted = len(self.killed) + len(self.survived)
        percent = 100.0 * len(self.killed) / counted if counted else 0.0
        print(f"\nsurvivors ({len(self.survived)}):")
        for mutant in sorted(self.survived, key=str):
            print(f"  {mutant}")
        print(
            f"mutants: {counted} counted, {len(self.killed)} killed ({percent:.1f} %), {len(self.survived)} survived, "
            f"{len(self.not_compiled)} not compiled; {time.monotonic() - self.start:.0f} s"
        )
        if counted < least:
            print(f"fewer than {least} mutants counted")
            return 1
        if percent < LEAST_PERCENT:
            print(f"fewer than {LEAST_PERCENT} % were killed")
            return 1
        return 0


def work_through(worker, programs, waiting, report):
    while True:
        try:
            mutants = waiting.get_nowait()
        except queue.Empty:
            return
        worker.turn(mutants, programs, report)


def main():
    args = arguments()
    files = [file.resolve().relative_to(ROOT) for file in args.files] or default_files(ROOT)
    mutants = draw(ROOT, files, None if args.files else args.count, args.seed)
    if args.list:
        print("\n".join(map(str, mutants)))
        return 0
    if not mutants:
        print("there is no place to change")
        return 1
    print(f"{len(mutants)} places in {len(files)} files, seed {args.seed}", flush=True)
    base = args.build.resolve()
    workers = [Worker(base, number) for number in range(args.jobs)]
    programs = []
    for worker in workers:  # one after the other: the second finds the objects of the first in the cache
        programs = worker.prepare()
        wrong = worker.measure(programs)
        if wrong:
            print(wrong)
            return 2
        print(f"unchanged: {sum(worker.seconds.values()):.0f} s for {len(programs)} programs", flush=True)
    report = Report(len(mutants))
    waiting = queue.Queue()
    for part in chunks(mutants):
        waiting.put(part)
    with concurrent.futures.ThreadPoolExecutor(len(workers)) as pool:
        for done in [pool.submit(work_through, worker, programs, waiting, report.add) for worker in workers]:
            done.result()
    return report.close(0 if args.files else LEAST_MUTANTS)


if __name__ == "__main__":
    sys.exit(main())
