#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds models/release.pml against the C++ state machines, searches it in full, and finds every seeded defect.

    check_release_model.py [ROOT]     exit status: 0 all true, 1 not so, 77 spin or a C compiler is missing
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

MODEL = "models/release.pml"
HEADERS = ("include/memstrata/core/release_state.hpp", "include/memstrata/core/lifecycle.hpp")
ENUMS = (
    "AllocationReleaseState",
    "AllocationReleaseEvent",
    "MechanismLifecycle",
    "MechanismEvent",
    "ProviderContextLifecycle",
    "ProviderContextEvent",
)
LEAST_STATES = 100_000
SECONDS = 300

# Who takes part: every option has a default in the model. Each scenario is searched in full.
SCENARIOS = {
    "two allocations one after the other, views, quarantine": {"FIRST": 2, "SECOND": 0, "QUEUE": 0},
    "everything, one allocation": {"FIRST": 1, "SECOND": 0},
    "two owners and the queue": {"VIEWS": 0, "HEALER": 0},
    "two owners with views": {"QUEUE": 0, "HEALER": 0},
    "selection": {"VIEWS": 0, "QUEUE": 0, "HEALER": 0, "SELECT": 1},
}
# A seeded defect, and a scenario that shows it.
DEFECTS = {
    "SETTLE_FIRST": {"VIEWS": 0, "HEALER": 0},
    "PREPARE_IGNORES_VIEWS": {"QUEUE": 0, "HEALER": 0},
    "SELECT_OUTSIDE_LOCK": {"VIEWS": 0, "QUEUE": 0, "HEALER": 0, "SELECT": 1},
    "REUSE_OF_PINNED": {"SECOND": 0, "QUEUE": 0},
    "EXECUTE_IGNORES_LOSS": {"VIEWS": 0, "HEALER": 0},
    "VIEWS_KEEP_NOTHING": {"QUEUE": 0, "HEALER": 0},
    "END_WITHOUT_MUTEX": {"SECOND": 0, "QUEUE": 0, "HEALER": 0},
    "RECLAIM_AFTER_CALL": {"VIEWS": 0, "QUEUE": 0},
}


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def enumerators(root):
    """{enum: its enumerators in order}, read from the headers."""
    text = " ".join(without_comments((root / header).read_text()) for header in HEADERS)
    found = {}
    for name in ENUMS:
        match = re.search(rf"enum class {name}\b[^{{]*\{{([^}}]*)\}}", text)
        found[name] = [each.strip() for each in match[1].split(",") if each.strip()] if match else []
    return found


def declared(model):
    return [name for block in re.findall(r"\bmtype = \{([^}]*)\}", model) for name in re.findall(r"\w+", block)]


def table_of_model(model):
    """The transitions (event, from, to) of an allocation, as the model has them."""
    table = re.search(r"#define NEXT\(s, e\)(.*?\\\n)*.*\n", model)
    triple = re.compile(r"\(e == (\w+) && s == (\w+)\) -> (\w+)")
    return {match.groups() for match in triple.finditer(table[0])} if table else set()


def table_of_code(root):
    """The same, read from next() in the header: `from(a, b)`, or conditions on quarantine and on states."""
    text = without_comments((root / HEADERS[0]).read_text())
    body = re.search(r"next\(\s*AllocationReleaseState state.*?std::unreachable", text, re.S)
    quarantine = ("partially_unmapped", "device_lost", "quarantined")
    found, events = set(), []
    for part in re.finditer(r"case AllocationReleaseEvent::(\w+):|return ([^;]*);", body[0] if body else ""):
        if part[1]:
            events.append(part[1])
            continue
        states = re.findall(r"State::(\w+)", part[2])
        if not events or not states:
            continue
        sources = set(states[:-1]) - {states[-1]}
        if "is_quarantine(state)" in part[2]:
            sources = set(quarantine) | {name for name in re.findall(r"state == State::(\w+)", part[2])}
        found |= {(event, source, "released" if "is_quarantine" in part[2] else states[-1]) for event in events for source in sources}
        events = []
    return found


def name_findings(root):
    text = without_comments((root / MODEL).read_text())
    words, names, enums = set(re.findall(r"\w+", text)), declared(text), enumerators(root)
    found = [f"{HEADERS}: no enum {name}" for name, each in enums.items() if not each]
    for enum, each in enums.items():
        found += [f"{MODEL}: {enum}::{name} does not occur" for name in each if name not in words]
    known = {name for each in enums.values() for name in each}
    found += [f"{MODEL}: {name} is no enumerator of the state machines" for name in names if name not in known]
    code, model = table_of_code(root), table_of_model(text)
    found += [f"{MODEL}: the transition {each} is missing" for each in sorted(code - model)]
    found += [f"{MODEL}: {each} is no transition of the header" for each in sorted(model - code)]
    if not code:
        found.append(f"{HEADERS[0]}: no transition found")
    return found


def search(root, options, optimize):
    """Builds and runs the verifier: (errors, states, complete, what it said)."""
    with tempfile.TemporaryDirectory() as folder:
        defines = [f"-D{name}" if value is None else f"-D{name}={value}" for name, value in options.items()]
        steps = (
            ["spin", "-a", *defines, str(root / MODEL)],
            [os.environ.get("CC", "cc"), optimize, "-w", "-DSAFETY", "-DMEMLIM=950", "-o", "pan", "pan.c"],
            ["./pan", "-m20000", "-w22"],
        )
        for step in steps:
            done = subprocess.run(step, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS)
            if done.returncode != 0 and step is not steps[-1]:
                return None, 0, False, done.stdout + done.stderr
    errors = re.search(r"errors: (\d+)", done.stdout)
    states = re.search(r"(\d+) states, stored", done.stdout)
    complete = not re.search(r"Search not completed|max search depth too small|reached -DMEMLIM", done.stdout + done.stderr)
    return (
        int(errors[1]) if errors else None,
        int(states[1]) if states else 0,
        complete,
        done.stdout + done.stderr,
    )


def model_findings(root, workers=2):
    found, total = [], 0
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        full = {name: pool.submit(search, root, options, "-O1") for name, options in SCENARIOS.items()}
        seeded = {name: pool.submit(search, root, {name: None, **options}, "-O0") for name, options in DEFECTS.items()}
    for name, result in full.items():
        errors, states, complete, said = result.result()
        total += states
        print(f"release model, {name}: {states} states, {errors} errors")
        if errors != 0 or not complete or states < LEAST_STATES:
            found.append(f"{MODEL}: {name}: not searched in full without an error\n{said[-2000:]}")
    for name, result in seeded.items():
        errors, states, _, said = result.result()
        reason = re.search(r"assertion violated .*?(?= \(at depth)|invalid end state", said)
        print(f"release model, defect {name}: found after {states} states: {reason[0] if reason else 'nothing'}")
        if not errors or not reason:
            found.append(f"{MODEL}: the defect {name} gives no counter-example\n{said[-2000:]}")
    print(f"release model: {total} states in {len(SCENARIOS)} scenarios, {len(DEFECTS)} seeded defects")
    return found


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = name_findings(root)
    missing = [tool for tool in ("spin", os.environ.get("CC", "cc").split()[0]) if shutil.which(tool) is None]
    if missing and not found:
        print(f"release model: skipped: {', '.join(missing)} is not installed")
        return 77
    if not found:
        found = model_findings(root)
    print("\n".join(found) if found else "release model: names, table and properties hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
