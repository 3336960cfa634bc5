"""A run of suites: several at once, each after those that it waits for; what came out, and the summary."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

from . import programs, results
from .suites import ROOT, SUITES, Part, Suite

TAIL_LINES = 20
# Lines of a failed suite that the summary repeats.
REASONS = 10
# What runs so gets a processor only while nothing else wants it.
IDLE = ["chrt", "--idle", "0"] if shutil.which("chrt") else ["nice", "-n", "19"]


class Run:
    """The suites of a run: what waits, what is at work, and what came out."""

    def __init__(self, suites: list[Suite], missing: list[programs.Program], jobs: int, *, is_ci: bool = False) -> None:
        self.suites = suites
        self.jobs = jobs
        self.is_ci = is_ci
        self.waiting = list(suites)
        self.working: dict[Suite, tuple[subprocess.Popen[bytes], float]] = {}
        self.passed: set[str] = set()
        self.failed: list[str] = []
        # Why the first try of a suite failed that runs once more.
        self.first_reasons: dict[str, list[str]] = {}
        self.began = time.monotonic()
        self.start_s: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        # Of the processors, by all processes of a suite that it waited for.
        self.cpu_seconds: dict[str, float] = {}
        self.skips: list[str] = []
        # Of the skips, those that no installation would end.
        self.excused: list[str] = []
        self.missing = {program.name: program for program in missing if not program.is_carried}
        self.carried = {program.name: program for program in missing if program.is_carried}
        self.environment = os.environ | {"PATH": programs.path()}
        # The suites that others wait for build and install; the others find it there.
        self.builders = {name for suite in SUITES for name in suite.after}

    def go(self) -> None:
        """Runs everything. A suite whose predecessor failed or was skipped does not run."""
        try:
            while self.waiting or self.working:
                self.start_what_can()
                if not self.end_what_has() and self.working:
                    time.sleep(0.1)
        finally:
            for process, _ in self.working.values():
                end(process)

    def start_what_can(self) -> None:
        """Starts in the order of the table. One that has to be alone holds back all after it that are not nice."""
        is_held = False
        for suite in list(self.waiting):
            names = {other.name for other in self.waiting} | {other.name for other in self.working}
            if names.intersection(suite.after):
                continue
            lacking = [name for name in suite.needs if name in self.missing]
            if lacking or not self.passed.issuperset(suite.after):
                self.waiting.remove(suite)
                if lacking:
                    self.skip(suite.name, lacking[0])
                else:
                    self.failed.append(f"{suite.name}: not run")
            elif self.has_room(suite) and (suite.is_nice or not is_held):
                self.waiting.remove(suite)
                self.start(suite)
            elif suite.is_alone:
                is_held = True

    def has_room(self, suite: Suite) -> bool:
        """True if this suite may start now: nice ones one at a time, the others up to the number of jobs, or alone."""
        alike = [other for other in self.working if other.is_nice == suite.is_nice]
        if suite.name in self.first_reasons or any(other.name in self.first_reasons for other in self.working):
            return not self.working
        if suite.is_alone or any(other.is_alone for other in alike):
            return not alike
        return len(alike) < (1 if suite.is_nice else self.jobs)

    def start(self, suite: Suite) -> None:
        skipped = [part for part in suite.parts if self.lacks(part)]
        for part in skipped:
            self.skip(f"{suite.name}: {part.tests}", part.program)
        command = suite.command.replace("{without}", "".join(part.without for part in skipped))
        suite.junit.unlink(missing_ok=True)
        nice = IDLE if suite.is_nice else []
        with suite.log.open("wb") as log:
            process = subprocess.Popen(
                [*nice, "bash", "-c", command],
                cwd=ROOT,
                env=self.environment | ({} if suite.name in self.builders else {"TIDEWIRE_BUILT": "1"}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.working[suite] = process, time.monotonic()

    def lacks(self, part: Part) -> bool:
        return part.program in self.missing or (part.is_of_system and part.program in self.carried)

    def end_what_has(self) -> bool:
        ended = False
        for suite, (process, began) in list(self.working.items()):
            seconds = time.monotonic() - began
            cpu_seconds = reap(process)
            is_late = cpu_seconds is None
            if is_late and seconds < suite.limit_s:
                continue
            ended = True
            end(process)
            del self.working[suite]
            self.start_s[suite.name] = began - self.began
            self.seconds[suite.name] = seconds
            self.cpu_seconds[suite.name] = cpu_seconds or 0
            self.report(suite, process.returncode, seconds, is_late)
        return ended

    def report(self, suite: Suite, status: int, seconds: float, is_late: bool) -> None:
        has_passed = status == 0 and not is_late
        lines = suite.log.read_text(errors="replace").splitlines()
        word = "passed" if has_passed else f"did not end within {suite.limit_s} s" if is_late else f"FAILED ({status})"
        print(f"\n=== {suite.name}: {word}, {seconds:.0f} s", flush=True)
        # What a test says that this machine cannot do.
        self.excuse(*(f"{line.strip()} ({suite.name})" for line in lines if line.lstrip().startswith("SKIPPED ")))
        for line in lines[-TAIL_LINES:] if has_passed else lines:
            print(f"  {line}")
        counts = results.read(suite.junit)
        if counts:
            print(f"  longest tests of {suite.name}:")
            for time_s, name in counts.longest:
                print(f"    {time_s:6.1f} s  {name}")
            if counts.skipped:
                self.skips.append(f"SKIPPED {suite.name}: {counts.skipped} of its tests, see {suite.log}")
        sys.stdout.flush()
        if has_passed:
            self.passed.add(suite.name)
        elif is_late or suite.tries == 1 or suite.name in self.first_reasons:
            self.failed.append(suite.name)
        else:
            self.first_reasons[suite.name] = self.reasons(suite)
            self.waiting.append(suite)

    def skip(self, tests: str, program: str) -> None:
        missing = (self.missing | self.carried)[program]
        line = f"SKIPPED {tests}: {program} is missing; {missing.advice}"
        if missing.is_installable:
            self.skips.append(line)
        else:
            self.excuse(line)
        print(line, flush=True)

    def excuse(self, *lines: str) -> None:
        new = [line for line in lines if line not in self.skips]
        self.skips += new
        self.excused += new

    def conclude(self) -> int:
        """Prints the summary; the exit code of the run."""
        print("\n=== summary (start, time, time of the processors)")
        for name, seconds in sorted(self.seconds.items(), key=lambda item: -item[1]):
            suite = next(suite for suite in self.suites if suite.name == name)
            counts = results.read(suite.junit)
            word = "FAILED" if name in self.failed else "passed"
            cpu = self.cpu_seconds[name]
            start = self.start_s[name]
            print(f"  {start:5.0f} s {seconds:5.0f} s {cpu:5.0f} s  {word}  {name}{f': {counts}' if counts else ''}")
            for line in self.flakes(suite):
                print(f"    FLAKY {line}")
        for line in self.skips:
            print(f"  {line}")
        for name in self.failed:
            print(f"  FAILED {name}")
            suite = next((suite for suite in self.suites if suite.name == name), None)
            for line in self.reasons(suite) if suite else []:
                print(f"    {line}")
        print(f"suites: {len(self.passed)} passed, {len(self.failed)} failed, {len(self.skips)} skipped")
        refused = [line for line in self.skips if line not in self.excused]
        if refused and self.is_ci:
            print("With CI=true a skip is a failure, unless the machine cannot do it.")
        return 1 if self.failed or (refused and self.is_ci) else 0

    def flakes(self, suite: Suite) -> list[str]:
        """What of a suite passed in its second try alone, and why it failed in the first one."""
        counts = results.read(suite.junit)
        lines = counts.flakes if counts else []
        # Those of a runner whose JUnit file does not say it.
        said = suite.log.read_text(errors="replace").splitlines()
        lines += [line.removeprefix("FLAKY ") for line in said if line.startswith("FLAKY ")]
        return lines + (self.first_reasons.get(suite.name, []) if suite.name in self.passed else [])

    def reasons(self, suite: Suite) -> list[str]:
        """Why a suite failed: its failed tests, or the end of its output."""
        counts = results.read(suite.junit)
        lines = counts.failures if counts else []
        return lines[:REASONS] or suite.log.read_text(errors="replace").splitlines()[-REASONS:]


def reap(process: subprocess.Popen[bytes]) -> float | None:
    """The seconds of the processors that an ended process and its children took; nothing while it runs."""
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if pid == 0:
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a suite and all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
