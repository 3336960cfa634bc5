"""Closing from another task in every state, a thousand times each: every call ends, and nothing is left."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tidewire
from async_support import LOOPS, run_on
from conftest import DEADLINE_S, until
from scenarios.server import ScenarioServer, Seen

ROUNDS = 1_000

# The behaviour of the server on each connection, and the state of the client in which it is closed.
STATES: dict[str, tuple[list[Any] | None, str | None]] = {
    "no server": (None, None),
    "waiting for the next attempt": (None, "waiting"),
    "not answered": ([], None),
    "not let in": (["accept"], None),
    "before the hello": (["let_in"], "connected"),
    "connected": (["welcome"], "connected"),
    "being closed by the server": (["welcome", {"close": [1012, "away"]}], None),
    "being cut": (["welcome", "cut"], None),
}


@pytest.fixture
def scripted():
    """Starts servers that do what a script says."""
    servers = []

    def start(script: list[Any]) -> str:
        servers.append(ScenarioServer([script], Seen()))
        return servers[-1].url

    yield start
    for server in servers:
        server.end()


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


async def iterates(client: tidewire.Client) -> None:
    async for _ in client:
        pass


async def one_life(url: str, state: str | None, number: int) -> None:
    client = tidewire.connect(
        url, wait=False, reconnect_base_ms=50, reconnect_max_ms=50, breaker_failures_max=0
    )
    await client.open()
    iterating = asyncio.create_task(client.run() if number % 2 else iterates(client))
    calls: list[asyncio.Task[Any]] = [
        asyncio.create_task(call)
        for call in (client.ready(), client.request(type="sum"), client.subscribe("a"), client.ping())
    ]
    # Some are closed while all of them begin.
    if number % 4:
        while state not in (None, client.state):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    closes = [asyncio.create_task(client.close()) for _ in range(1 + number % 3)]
    _, left = await asyncio.wait([iterating, *calls, *closes], timeout=DEADLINE_S)
    assert not left, f"calls outlive their client: {left}"
    assert client.state == "closed"
    for task in (iterating, *closes):
        # The application has closed the client: that is no error.
        task.result()
    for call in calls:
        error = call.exception()
        assert error is None or isinstance(error, tidewire.TidewireError), error
    with pytest.raises(tidewire.StoppedError):
        await client.send(1)


@pytest.mark.parametrize("loop", sorted(LOOPS))
@pytest.mark.parametrize("name", sorted(STATES))
def test_closing_from_another_task(scripted, name: str, loop: str) -> None:
    script, state = STATES[name]
    url = "ws://127.0.0.1:9/ws" if script is None else scripted(script)

    async def lives(count: int) -> None:
        room = asyncio.Semaphore(AT_ONCE)

        async def life(number: int) -> None:
            async with room:
                await one_life(url, state, number)

        await asyncio.gather(*(life(number) for number in range(count)))

    async def main() -> None:
        await lives(AT_ONCE)
        before = descriptors()
        await lives(ROUNDS)
        # The server's ends are closed by its threads.
        while descriptors() > before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    run_on(loop, asyncio.wait_for(main(), 10 * DEADLINE_S))


@pytest.mark.parametrize("name", sorted(STATES))
def test_closing_from_another_thread(scripted, name: str) -> None:
    script, state = STATES[name]
    url = "ws://127.0.0.1:9/ws" if script is None else scripted(script)

    def iterate(client: tidewire.sync.Client) -> None:
        for _ in client:
            pass

    def ask(client: tidewire.sync.Client) -> None:
        with pytest.raises(tidewire.TidewireError):
            client.request(type="sum")

    def life(number: int) -> None:
        client = tidewire.sync.connect(
            url, wait=False, reconnect_base_ms=50, reconnect_max_ms=50, breaker_failures_max=0
        )
        threads = [threading.Thread(target=work, args=(client,), daemon=True) for work in (iterate, ask)]
        for thread in threads:
            thread.start()
        if number % 4:
            until(lambda: state in (None, client.state))
        client.close()
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), "a call outlives its client"
        assert client.state == "closed"

    with ThreadPoolExecutor(AT_ONCE // 4) as room:
        for ended in [room.submit(life, number) for number in range(ROUNDS // 5)]:
            ended.result()


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_who_gives_up_a_close_or_calls_after_it_leaves_no_descriptor(scripted, loop: str) -> None:
    # It never answers the close, so that every close takes a while.
    url = scripted(["welcome", {"read": "close"}, {"read": "never"}])

    async def life() -> None:
        client = tidewire.connect(url)
        await client.open()
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(tidewire.TidewireError):
            await client.request(type="after it")
        with pytest.raises(tidewire.TidewireError):
            await client.ping()

    async def main() -> None:
        await asyncio.wait_for(life(), DEADLINE_S)
        before = descriptors()
        await asyncio.wait_for(asyncio.gather(*(life() for _ in range(30))), DEADLINE_S)
        while descriptors() > before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    run_on(loop, asyncio.wait_for(main(), 3 * DEADLINE_S))


def test_all_clients_have_one_deadline_at_the_end_of_the_program(scripted) -> None:
    # One after another would take two seconds for each.
    url = scripted(["welcome", {"read": "close"}, {"read": "never"}])
    program = """
        import sys
        import tidewire

        clients = [tidewire.sync.connect(sys.argv[1]) for _ in range(200)]
        print(sum(client.state == "connected" for client in clients))
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), url],
        check=True,
        capture_output=True,
        timeout=4 * DEADLINE_S,
    )
    assert ended.stdout.split() == [b"200"]
    assert not ended.stderr


AT_ONCE = 128
"""Before the hello a close waits a second."""
