"""The processes of the generator, from the side of the one that leads them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from . import worker
from .account import Counts, Opened, clock, opened_together, together
from .activities import TOPIC, Activity
from .plan import Target, share

#: Connections that are opened at once, of all processes together.
OPENING_AT_ONCE = 64
#: So that all processes begin together.
HEAD_START_S = 0.05


class WorkerFailed(Exception):
    """A process of the generator ended, or could not execute a command."""


class Fleet:
    """Some processes with connections. They are started once and used for all tests."""

    def __init__(self, target: Target, processes: int) -> None:
        # Not forked: a client's threads would be missing in the copy.
        context = multiprocessing.get_context("spawn")
        self._received = context.RawArray("Q", processes)
        self._total = context.RawValue("q", -1)
        self._workers = []
        self.opened = 0
        #: Living connections of each process, as far as it is known.
        self.members = [0] * processes
        self.pids: list[int] = []
        for slot in range(processes):
            ours, theirs = context.Pipe()
            shared = worker.Shared(self._received, self._total, slot)
            process = context.Process(target=worker.main, args=(theirs, target, shared), daemon=True)
            process.start()
            theirs.close()
            self._workers.append((process, ours))
            self.pids.append(process.pid or 0)

    @property
    def processes(self) -> int:
        """How many there are."""
        return len(self._workers)

    def open(self, connections: int) -> Opened:
        """Opens so many connections more."""
        parts = self.processes
        first, commands = self.opened, []
        for slot in range(parts):
            count = share(connections, parts, slot)
            commands.append(worker.Open(count, first, max(1, OPENING_AT_ONCE // parts)))
            first += count
        self.opened = first
        answers = self._ask(commands)
        self.members = [known + answer.connected for known, answer in zip(self.members, answers, strict=True)]
        return opened_together(answers)

    def reconnect(self, at_once: int, *, rounds: int | None = None, duration_s: float = 0.0) -> Opened:
        """Opens and closes connections, at least one at once in one process."""
        parts = min(self.processes, at_once)
        commands = [
            worker.Reconnect(
                share(at_once, parts, slot),
                None if rounds is None else share(rounds, parts, slot),
                duration_s,
                slot * 1_000_000,
            )
            for slot in range(parts)
        ]
        return opened_together(self._ask(commands))

    def subscribe(self) -> int:
        """Subscribes all connections but the publisher, which is the last of the last process."""
        last = self.processes - 1
        return sum(self._ask([worker.Subscribe(TOPIC, int(slot == last)) for slot in range(self.processes)]))

    def run(self, activity: Activity) -> Counts:
        """Runs an activity on all connections, begun together."""
        last = self.processes - 1
        if activity.sends:
            self._ask([worker.Prepare(activity)] * self.processes)
        self._total.value = -1
        for slot in range(self.processes):
            self._received[slot] = 0
        began = clock() + HEAD_START_S
        # Each connection has its part of the rate, however they are spread over the processes.
        commands = [
            replace(
                activity,
                began=began,
                first=slot,
                number=sum(self.members[:slot]),
                connections=sum(self.members),
                publishes=activity.kind == "fan-out" and slot == last,
            )
            for slot in range(self.processes)
        ]
        return together(self._ask(commands))

    def close(self) -> None:
        """Closes all connections; the processes stay."""
        self._ask([worker.Close()] * self.processes)
        self.opened = 0
        self.members = [0] * self.processes

    def stop(self) -> None:
        """Ends the processes."""
        for process, pipe in self._workers:
            pipe.close()
            process.terminate()
        for process, _ in self._workers:
            process.join()

    def _ask(self, commands: Sequence[Any]) -> list[Any]:
        asked = self._workers[: len(commands)]
        for (_, pipe), command in zip(asked, commands, strict=True):
            pipe.send(command)
        answers = []
        for process, pipe in asked:
            try:
                answers.append(pipe.recv())
            except (EOFError, ConnectionError):
                process.join(1.0)
                message = f"a process of the generator ended with exit code {process.exitcode}"
                raise WorkerFailed(message) from None
        for answer in answers:
            if isinstance(answer, Exception):
                raise WorkerFailed(str(answer)) from answer
        return answers
