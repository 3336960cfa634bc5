"""What a suite has done, from the JUnit file that its runner writes: counts, and the longest tests."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

LONGEST = 10
# Characters of the line that says why a test failed.
REASON = 600
# How the lines behind the words of a panic begin.
AFTER_PANIC = ("note:", "stack backtrace:")


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    longest: list[tuple[float, str]] = field(default_factory=list)
    # A line for each failed test.
    failures: list[str] = field(default_factory=list)
    # A line for each test that failed and then passed: why it failed.
    flakes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read(file: Path) -> Counts | None:
    """The counts of a suite; nothing if its runner writes no such file."""
    if not file.exists():
        return None
    counts = Counts()
    tests = []
    for case in ElementTree.parse(file).iter("testcase"):
        place = case.get("classname", "")
        name = case.get("name", "")
        if place not in ("", "test"):
            name = f"{place} {name}"
        fault = case.find("failure") if case.find("failure") is not None else case.find("error")
        if case.find("skipped") is not None:
            counts.skipped += 1
        elif fault is not None:
            counts.failed += 1
            counts.failures.append(f"{name}: {reason(fault)}")
        else:
            counts.passed += 1
            flake = case.find("flakyFailure")
            if flake is not None:
                counts.flakes.append(f"{name}: {reason(flake)}")
        tests.append((float(case.get("time", 0)), name))
    counts.longest = sorted(tests, reverse=True)[:LONGEST]
    return counts


def reason(fault: ElementTree.Element) -> str:
    """Why a test failed, in one line. That of Rust says where it panicked; the lines behind that in its output say why."""
    text = (fault.text or "").strip().splitlines()
    told = (fault.get("message") or "").splitlines() or text or [""]
    words = told[:1]
    if "panicked at" in told[0]:
        place = next((index for index, line in enumerate(text) if "panicked at" in line), len(text))
        behind = itertools.takewhile(lambda line: not line.startswith(AFTER_PANIC), text[place + 1 :])
        words += [line.strip() for line in behind]
    return " ".join(words)[:REASON]
