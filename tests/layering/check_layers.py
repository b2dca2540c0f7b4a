#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every #include under include/ and src/ and reports each edge that the table of layers forbids.

    check_layers.py [ROOT]      exit status: 0 no forbidden edge, 1 forbidden edges, 2 there is nothing to read
"""
import pathlib
import re
import sys

# What a layer may include of this project; a layer includes itself.
MAY_INCLUDE = {
    "core": set(),
    "contract": {"core"},
    "mechanism": {"core", "contract"},
    "structure": {"core", "contract"},
    "governance": {"core", "contract"},
    "holder": {"core", "contract", "mechanism", "structure", "governance"},
    "frontend": {"core", "contract", "mechanism", "structure", "governance", "holder"},
}
# Layers whose files know no system: no system or driver header at all.
NO_SYSTEM = {"core", "contract", "structure", "governance"}
# Headers of this kind are the C library's, the system's or a driver's. The C++ library's have no dot.
STANDARD_C = re.compile(r"^(assert|ctype|errno|float|inttypes|limits|math|stdarg|stddef|stdint|stdio|stdlib|string)\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")')


def layer_of(path, root):
    """The layer of a file of ours, or None for the headers that stand above all layers."""
    parts = path.relative_to(root).parts
    if parts[:2] == ("include", "memstrata"):
        parts = parts[2:]
    elif parts[0] == "src":
        parts = parts[1:]
    return parts[0] if len(parts) > 1 and parts[0] in MAY_INCLUDE else None


def resolve(text, including, root):
    """The file of ours that an include names, or None."""
    for base in (root / "include", root / "src", including.parent):
        file = base / text
        if file.is_file():
            return file.resolve()
    return None


def mechanism_folder(path, root):
    """`host` for include/memstrata/mechanism/host/x.hpp and src/mechanism/host/x.cpp; None directly in the layer."""
    parts = path.relative_to(root).parts
    at = parts.index("mechanism")
    return parts[at + 1] if len(parts) > at + 2 else None


def wrong_system_header(text, path, layer, root):
    public = (root / "include") in path.parents
    if text.startswith("fmt/"):
        return "fmt belongs in .cpp files" if path.suffix != ".cpp" else None
    is_system = "/" in text or (text.endswith(".h") and not STANDARD_C.match(text))
    if not is_system:
        return None
    if public and layer is not None:
        return "a public header includes a system, driver or library header"
    if layer in NO_SYSTEM:
        return f"{layer} knows no system"
    return None


def wrong_edge(path, target, layer, root):
    private = (root / "src") in target.parents
    if private and path.parent != target.parent:
        return "a private header is included from another folder"
    other = layer_of(target, root)
    if layer is None:
        return None  # memstrata.hpp, which names everything
    if other is None:
        return "a layer includes a header that stands above all layers"
    if other != layer:
        return None if other in MAY_INCLUDE[layer] else f"{layer} may not include {other}"
    if layer == "mechanism":
        mine, theirs = mechanism_folder(path, root), mechanism_folder(target, root)
        # Only the simulation may name a sibling: the driver table that it stands in for.
        if mine != theirs and mine is not None and theirs is not None:
            if not (mine == "sim" and target.stem == "driver_table"):
                return f"mechanism/{mine} may not include mechanism/{theirs}"
    return None


def findings(root):
    """(file, line, include, reason) of every forbidden edge."""
    root = root.resolve()
    files = [
        file
        for folder in ("include", "src")
        for file in sorted((root / folder).rglob("*"))
        if file.suffix in {".hpp", ".cpp", ".h", ".c"}
    ]
    if not files:
        raise FileNotFoundError(f"no source under {root}/include or {root}/src")
    found = []
    for path in files:
        layer = layer_of(path, root)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            text = match[1] or match[2]
            target = resolve(text, path, root)
            if target is not None:
                reason = wrong_edge(path, target, layer, root)
            elif text.startswith("memstrata/") or match[2]:
                reason = "there is no such file"
            else:
                reason = wrong_system_header(text, path, layer, root)
            if reason:
                found.append((path.relative_to(root), number, text, reason))
    return found, len(files)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    try:
        found, count = findings(root)
    except FileNotFoundError as error:
        print(error)
        return 2
    for path, number, text, reason in found:
        print(f"{path}:{number}: {text}: {reason}")
    print(f"layers: {count} files, {len(found)} forbidden edges")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
