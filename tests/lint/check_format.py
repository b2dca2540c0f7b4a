#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every C and C++ file of the repository is as clang-format 19 would write it.

    check_format.py [ROOT]     exit status: 0 all are, 1 some are not, 2 nothing could be checked
"""
import pathlib
import shutil
import subprocess
import sys

FOLDERS = ("include", "src", "tests", "tools", "benchmarks", "examples")
SUFFIXES = {".hpp", ".cpp", ".h", ".c"}


def sources(root):
    return [
        file
        for folder in FOLDERS
        for file in sorted((root / folder).rglob("*"))
        if file.suffix in SUFFIXES and file.is_file()
    ]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    files = sources(root)
    tool = shutil.which("clang-format-19")
    if tool is None or not files:
        print("clang-format-19 is not installed" if tool is None else f"no source under {root}")
        return 2
    done = subprocess.run(
        [tool, "--dry-run", "-Werror", "-fno-color-diagnostics", *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = sorted({line.split(":", 1)[0] for line in done.stderr.splitlines() if "[-Wclang-format-violations]" in line})
    for file in wrong:
        print(f"{file}: not formatted; clang-format-19 -i {file}")
    if done.returncode != 0 and not wrong:
        print(done.stderr)
    print(f"format: {len(files)} files, {len(wrong)} to format")
    return 1 if done.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
