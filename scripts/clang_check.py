#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang 19 over the files of a compilation database, as many at a time as there are cores.

    clang_check.py syntax --build DIR     compiles tests/ and benchmarks/ without code: warnings and thread-safety
                                          annotations are errors
    clang_check.py tidy --build DIR       lints src/ and tools/ with the profile of .clang-tidy, which has these
                                          warnings and annotations among its checks

A file that passed the lint with the same text, headers, profile and tool is not linted again (--cache DIR).
Exit status: 0 no finding, 1 findings.
"""
import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import time

FINDING = re.compile(r": (?:error|warning|note): ")
ROOT = pathlib.Path(__file__).resolve().parent.parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["syntax", "tidy"])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cache", type=pathlib.Path)
    parser.add_argument("--without-analyzer", action="store_true", help="leave out clang-analyzer-*")
    parser.add_argument("--only", nargs="+", default=[], help="only files whose path holds one of these texts")
    return parser.parse_args()


def commands(build, folders, only):
    """The database's commands for sources of these folders: (file, command without output)."""
    database = json.loads((build / "compile_commands.json").read_text())
    wanted = [ROOT / folder for folder in folders]
    chosen = {}
    for entry in database:
        file = pathlib.Path(entry["file"])
        if file.suffix != ".cpp" or not any(folder in file.parents for folder in wanted):
            continue
        if only and not any(text in str(file) for text in only):
            continue
        words = shlex.split(entry["command"])
        while words and not words[0].rsplit("/", 1)[-1].startswith(("clang", "g++", "c++")):
            words.pop(0)  # a compiler launcher
        if "-o" in words:
            at = words.index("-o")
            del words[at : at + 2]
        words = [word for word in words if word not in ("-c", str(file))]
        chosen.setdefault(file, (words, entry["directory"]))
    return sorted((file, *rest) for file, rest in chosen.items())


def check_syntax(job, _args):
    file, words, directory = job
    return subprocess.run(
        [*words, "-fsyntax-only", str(file)], cwd=directory, capture_output=True, text=True, check=False
    )


def fingerprint(job, checks):
    """Of everything that the lint of one file depends on, or None where it does not preprocess."""
    file, words, directory = job
    # Comments stay in the text: a suppression is a comment.
    text = subprocess.run([*words, "-E", "-C", str(file)], cwd=directory, capture_output=True, check=False)
    if text.returncode != 0:
        return None
    version = subprocess.run(["clang-tidy-19", "--version"], capture_output=True, check=True).stdout
    whole = hashlib.sha256()
    for part in (version, (ROOT / ".clang-tidy").read_bytes(), checks.encode(), text.stdout):
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()


def check_tidy(job, args):
    file, words, directory = job
    checks = "-clang-analyzer-*" if args.without_analyzer else ""
    mark = None
    if args.cache:
        key = fingerprint(job, checks)
        mark = args.cache / key if key else None
        if mark and mark.exists():
            return None
    command = ["clang-tidy-19", "--quiet"]
    if checks:
        command.append(f"--checks={checks}")
    command += [str(file), "--", *words[1:], "-fno-caret-diagnostics"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode == 0 and mark:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    return done


def main():
    args = arguments()
    folders = ["src", "tools"] if args.what == "tidy" else ["tests", "benchmarks", "examples"]
    work = commands(args.build, folders, args.only)
    if not work:
        print(f"{args.build}: no source to check")
        return 1
    check = check_tidy if args.what == "tidy" else check_syntax
    failed, known, seen = 0, 0, set()
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for job, done in zip(work, pool.map(lambda job: check(job, args), work)):
            if done is None:
                known += 1
                continue
            if done.returncode == 0:
                continue
            failed += 1
            # A finding in a header comes once for every file that includes it.
            for line in (done.stdout + (done.stderr if args.what == "syntax" else "")).splitlines():
                # The lint quotes sources at length; place and sentence are enough.
                if line not in seen and (args.what == "syntax" or FINDING.search(line)):
                    seen.add(line)
                    print(line)
            if not done.stdout.strip():
                print(done.stderr)
            print(f"{job[0].relative_to(ROOT)}: findings")
    seconds = time.monotonic() - start
    print(f"{args.what}: {len(work)} files, {known} known to pass, {failed} with findings, {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
