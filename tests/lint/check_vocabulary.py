#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds docs/vocabulary.md against the list of earlier names and against the public headers.

    check_vocabulary.py [ROOT]     exit status: 0 the page is true, 1 it is not
"""
import pathlib
import re
import sys

ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \| (\w+) \| (.*?) ?\|$")
STATES = {"present", "later", "dropped"}


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)


def words_of(root):
    """For each public header, every identifier that it uses outside comments."""
    return [
        set(re.findall(r"\b[A-Za-z_]\w*\b", without_comments(header.read_text())))
        for header in sorted((root / "include").rglob("*.h*"))
    ]


def missing(symbols, headers):
    """The symbols that no header has; members (all but a leading class) must stand in a header with the class."""
    first, *rest = symbols
    beside = [words for words in headers if first in words]
    if not beside:
        return [first]
    return [symbol for symbol in rest if not any(symbol in words for words in beside)]


def findings(root):
    expected = [line for line in (root / "tests/lint/earlier_names.txt").read_text().splitlines() if line]
    headers = words_of(root)
    found, seen = [], {}
    for number, line in enumerate((root / "docs/vocabulary.md").read_text().splitlines(), 1):
        if not line.startswith("| `"):
            continue
        where = f"docs/vocabulary.md:{number}"
        match = ROW.match(line)
        if not match:
            found.append(f"{where}: not a row of four cells")
            continue
        name, ours, state, remark = match.groups()
        if name in seen:
            found.append(f"{where}: {name} stands in line {seen[name]} already")
        seen[name] = number
        symbols = re.findall(r"`([^`]+)`", ours)
        if state not in STATES:
            found.append(f"{where}: {name}: no such state: {state}")
        elif state == "present":
            if not symbols:
                found.append(f"{where}: {name}: present, but no symbol is named")
            found += [
                f"{where}: {name}: {symbol} occurs in no public header where it should" for symbol in missing(symbols, headers)
            ] if symbols else []
        elif state == "later" and any(name in words for words in headers):
            found.append(f"{where}: {name}: marked later, but a public header has it")
        elif state == "dropped" and "`" not in remark:
            found.append(f"{where}: {name}: dropped, but no call is named that gives the same guarantee")
    for name in expected:
        if name not in seen:
            found.append(f"docs/vocabulary.md: {name} is missing")
    for name in seen:
        if name not in expected:
            found.append(f"tests/lint/earlier_names.txt: {name} is missing")
    return found


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = findings(root)
    print("\n".join(found) if found else "vocabulary: every name has its place")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
