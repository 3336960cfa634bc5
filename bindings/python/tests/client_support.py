"""A server in a process of its own, which can be killed; and running a test on an event loop in a limited time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Coroutine
from typing import Any

import tidewire
from ports import free_port

DEADLINE_S = 60.0

FAST: dict[str, Any] = {"reconnect_base_ms": 20, "reconnect_max_ms": 200, "breaker_failures_max": 0}
"""Comes back fast."""


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Runs a test that has failed when it takes too long."""
    return asyncio.run(asyncio.wait_for(main, DEADLINE_S))


class Child:
    """A Python program in a process of its own, which prints lines."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", textwrap.dedent(program), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the program ended with {self.process.wait()}"
        return line.strip()

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


def serving(port: int | None = None) -> tuple[Child, int]:
    """A server in a process of its own, and its port. It prints the payloads that it gets."""
    port = port or free_port()
    child = Child(
        """
        import sys
        import tidewire

        options = {"no_auth": True, "topics_open": True, "history": {"kept.>": 1000}}
        server = tidewire.Server(port=int(sys.argv[1]), shards=1, **options)
        server.start()
        print("serves")
        for batch in server.batches():
            for message in batch:
                if message.kind == "message":
                    print(message.payload)
        """,
        str(port),
    )
    assert child.line() == "serves"
    return child, port


def url(port: int) -> str:
    return f"ws://127.0.0.1:{port}/ws"


async def kinds(client: tidewire.Client, *wanted: str) -> tidewire.ClientMessage:
    """The next message of one of these kinds; others are passed over."""
    while True:
        while (message := client._left.take()) is not None:
            if message.kind in wanted:
                return message
        batch = await client._next_batch()
        assert batch is not None, "the client was closed"
        client._left.add(batch)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
