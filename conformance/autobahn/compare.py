#!/usr/bin/env python3
"""compare.py INDEX EXPECTED CASES [--update]: Autobahn's index.json against the committed result.

Fails if a case came out otherwise than expected, was not run or was not expected, and, whatever is
expected, if one is not OK, INFORMATIONAL or, in section 6.4, NON-STRICT, or its connection did not end as it
should. --update writes EXPECTED first.
"""

import collections
import fnmatch
import json
import pathlib
import sys


def main():
    index, expected_path, patterns = sys.argv[1:4]
    (cases,) = json.loads(pathlib.Path(index).read_text()).values()
    found = {name: {key: case[key] for key in KEYS} for name, case in cases.items()}
    path = pathlib.Path(expected_path)
    if "--update" in sys.argv[4:]:
        old = json.loads(path.read_text()) if path.exists() else {}
        path.parent.mkdir(exist_ok=True)
        path.write_text(dump({**old, **found}))
    expected = {
        name: case
        for name, case in json.loads(path.read_text()).items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split(","))
    }
    counts = collections.Counter(case["behavior"] for case in found.values())
    print(f"{len(found)} cases:", ", ".join(f"{count} {name}" for name, count in counts.items()))
    problems = [
        f"{name}: {describe(found.get(name))}, expected {describe(expected.get(name))}"
        for name in sorted({*found, *expected}, key=numbers)
        if found.get(name) != expected.get(name)
    ]
    problems += [
        f"{name}: {describe(case)}, which is never accepted"
        for name, case in found.items()
        if case["behavior"] not in allowed(name) or case["behaviorClose"] not in CLOSE_ALLOWED
    ]
    for problem in problems:
        print(problem)
    sys.exit(bool(problems) or not found)


def allowed(name):
    return {"OK", "INFORMATIONAL", *(["NON-STRICT"] if name.startswith("6.4.") else [])}


def describe(case):
    return f"{case['behavior']}, close {case['behaviorClose']}" if case else "nothing"


def dump(cases):
    lines = (f'"{name}": {json.dumps(cases[name])}' for name in sorted(cases, key=numbers))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def numbers(name):
    return [int(part) for part in name.split(".")]


KEYS = ("behavior", "behaviorClose")
CLOSE_ALLOWED = {"OK", "INFORMATIONAL"}

if __name__ == "__main__":
    main()
