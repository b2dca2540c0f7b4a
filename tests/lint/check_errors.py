#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every alternative of every error type has a row in docs/errors.md, and every row has its alternative.

    check_errors.py [ROOT]     exit status: 0 page and headers agree, 1 they do not
"""
import pathlib
import re
import sys

CLASS = re.compile(r"^class (\w+Error)\b", re.M)
KIND = re.compile(r"using Kind = std::variant<([^;]*)>;", re.S)
ENUM = re.compile(r"enum class Kind : [\w:]+ \{([^}]*)\}", re.S)


def alternatives(root):
    """{error type: set of its alternatives}, read from the headers of core/error."""
    types = {}
    for header in sorted((root / "include/memstrata/core/error").glob("*.hpp")):
        text = re.sub(r"//[^\n]*", "", header.read_text())
        classes = list(CLASS.finditer(text))
        for at, match in enumerate(classes):
            end = classes[at + 1].start() if at + 1 < len(classes) else len(text)
            body = text[match.start() : end]
            kind = KIND.search(body) or ENUM.search(body)
            if kind:
                types[match[1]] = {name.strip() for name in kind[1].split(",") if name.strip()}
            else:
                types[match[1]] = set()
    return types


def catalogue(root):
    """{error type: set of the alternatives that docs/errors.md lists below its heading}."""
    types, current = {}, None
    for line in (root / "docs/errors.md").read_text().splitlines():
        heading = re.match(r"^## `(\w+)`", line)
        row = re.match(r"^\| `(\w+)`", line)
        if heading:
            current = heading[1]
            types[current] = set()
        elif line.startswith("## "):
            current = None
        elif row and current:
            types[current].add(row[1])
    return types


def findings(root):
    have, listed = alternatives(root), catalogue(root)
    found = [f"docs/errors.md: no section for {name}" for name in have if name not in listed]
    found += [f"docs/errors.md: {name} is no error type of core/error" for name in listed if name not in have]
    for name in have.keys() & listed.keys():
        found += [f"docs/errors.md: {name} lacks {each}" for each in sorted(have[name] - listed[name])]
        found += [f"docs/errors.md: {name} has no {each}" for each in sorted(listed[name] - have[name])]
    if not have:
        found.append("include/memstrata/core/error: no error type")
    return found


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = findings(root)
    print("\n".join(found) if found else "errors: catalogue and headers agree")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
