#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shell scripts of the repository pass shellcheck.

    check_shell.py [ROOT]     exit status: 0 they do, 1 they do not, 2 shellcheck is not installed
"""
import pathlib
import shutil
import subprocess
import sys


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    if shutil.which("shellcheck") is None:
        print("shellcheck is not installed")
        return 2
    files = ["run", "test", ".ci/run", *sorted(str(f.relative_to(root)) for f in (root / "scripts").glob("*.sh"))]
    done = subprocess.run(["shellcheck", "-x", *files], cwd=root, check=False)
    print(f"shell: {len(files)} scripts")
    return 1 if done.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
