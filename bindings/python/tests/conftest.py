"""Servers for the tests, each on a port of its own."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tidewire

DEADLINE_S = 30.0

# A shell that runs the tests in the background tells them, and all that they start, to ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Escapes lone surrogates in what a test has printed: the processes of a suite exchange reports in UTF-8."""
    report: Any = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each test that failed and then passed."""
    failed = {report.nodeid for report in terminalreporter.stats.get("failed", [])}
    for report in terminalreporter.stats.get("rerun", []):
        if report.nodeid not in failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message.splitlines()[0] if crash else report.longreprtext[:200]
            terminalreporter.write_line(f"FLAKY {report.nodeid}: {reason}")


@pytest.fixture
def secret() -> str:
    return secrets.token_hex(32)


@pytest.fixture
def serve() -> Iterator[Callable[..., tidewire.Server]]:
    """Starts servers that let everyone do everything, unless told otherwise."""
    servers = []

    def start(**options: Any) -> tidewire.Server:
        if "jwt_secret" not in options:
            options.setdefault("no_auth", True)
        options.setdefault("topics_open", True)
        server = tidewire.Server(port=0, shards=1, **options)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.stop()


def received(server: tidewire.Server, count: int, *kinds: str) -> list[tidewire.Message]:
    """The first messages of these kinds, once so many have come."""
    messages: list[tidewire.Message] = []
    deadline = time.monotonic() + DEADLINE_S
    for batch in server.batches(timeout_ms=50):
        messages += [message for message in batch if message.kind in kinds]
        if len(messages) >= count:
            return messages
        assert time.monotonic() < deadline, f"only {len(messages)} of {count}: {messages}"
    raise AssertionError(f"the server stopped after {len(messages)} of {count}: {messages}")


def until(condition: Callable[[], Any]) -> Any:
    """Waits for something that has to become true."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.005)
