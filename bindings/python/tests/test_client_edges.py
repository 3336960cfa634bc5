"""Around a client: tokens that never come, full disks, files that others open, odd arguments."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tidewire
from async_support import LOOPS, run_on
from client_support import FAST, Child, run
from conftest import DEADLINE_S, until
from scenarios.server import ScenarioServer, Seen

Serve = Callable[..., tidewire.Server]


def test_a_token_function_that_blocks_is_called_once_and_holds_up_nobody_else(serve: Serve) -> None:
    server = serve()
    go = threading.Event()
    calls: list[None] = []

    def token() -> str:
        calls.append(None)
        go.wait(DEADLINE_S)
        return "token"

    async def main() -> None:
        # Every attempt gives up long before the function returns.
        impatient = {"connect_timeout_ms": 20, "reconnect_base_ms": 1, "reconnect_max_ms": 5, "wait": False}
        clients = [tidewire.connect(server.url, token=token, **FAST | impatient) for _ in range(8)]
        for client in clients:
            await client.open()
        while len(calls) < len(clients):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        attempts = 0
        async for batch in clients[0].batches():
            attempts += sum(message.kind == "disconnected" for message in batch)
            if attempts > 20:
                break
        assert len(calls) == len(clients) == token_threads()
        # One that needs no token is not held up.
        async with tidewire.connect(server.url) as another:
            assert await another.ping() > 0
        # A client that waits for its token can be closed.
        await asyncio.wait_for(clients[0].close(), DEADLINE_S)
        go.set()
        for client in clients[1:]:
            await asyncio.wait_for(client.ready(), DEADLINE_S)
            await client.close()

    run(main())
    until(lambda: token_threads() == 0)


def token_threads() -> int:
    """Threads of this process that call for a token."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            names.append((task / "comm").read_text().strip())
    return names.count("tidewire-token")


@pytest.mark.skipif(sys.platform == "win32", reason="files have no modes there")
def test_only_its_owner_reads_the_files_of_a_queue(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with tidewire.sync.connect("ws://127.0.0.1:9/ws", offline_queue=path, wait=False) as client:
        client.send_later(1, type="count")
        modes = {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["queue.db", "queue.db-wal", "queue.db-lock"], "0o600")


def test_the_lock_of_a_queue_outlives_another_library_that_opens_the_file(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    program = """
        import sys
        import tidewire

        try:
            tidewire.sync.connect("ws://127.0.0.1:9/ws", offline_queue=sys.argv[1], wait=False)
        except tidewire.TidewireError as error:
            print(error)
    """

    def another() -> str:
        arguments = [sys.executable, "-c", textwrap.dedent(program), str(path)]
        return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout

    with tidewire.sync.connect("ws://127.0.0.1:9/ws", offline_queue=path, wait=False) as client:
        client.send_later(1, type="count")
        assert "another client" in another()
        # To close the file takes every lock from it that the process has by `fcntl`.
        path.read_bytes()
        reader = sqlite3.connect(path)
        assert len(reader.execute("SELECT * FROM messages").fetchall()) == 1
        reader.close()
        assert "another client" in another()
    assert another() == ""


READS = """
    import sqlite3
    import sys
    import tidewire

    client = tidewire.sync.connect("ws://127.0.0.1:9/ws", offline_queue=sys.argv[1], wait=False)
    for number in range(10):
        client.send_later(number, type="count")
        # Another copy of SQLite in the process sees none of its locks, and clears the log away when it is closed.
        reader = sqlite3.connect(sys.argv[1])
        print(len(reader.execute("SELECT * FROM messages").fetchall()))
        reader.close()
    client.send_later(10, type="count")
    print("stored")
    sys.stdin.readline()
"""


def test_what_is_stored_stays_when_another_library_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with Child(READS, str(path)) as child:
        assert [child.line() for _ in range(10)] == [str(number) for number in range(1, 11)]
        assert child.line() == "stored"
    with tidewire.sync.connect("ws://127.0.0.1:9/ws", offline_queue=path, wait=False) as client:
        assert client.queue.messages == 11


FULL = """
    import resource
    import sys
    import time
    import tidewire

    path, url = sys.argv[1:]

    def limit(bytes: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, resource.RLIM_INFINITY))

    # A file that may not grow is the nearest thing to a full disk.
    with tidewire.sync.connect(url, offline_queue=path) as client:
        client.send_later(1, type="order")
        for line in sys.stdin:
            break
        limit(0)
        client.send(type="full")
        for batch in client.batches():
            if any(message.kind == "queue_failed" for message in batch):
                break
        print("full", client.queue.messages)
        limit(resource.RLIM_INFINITY)
        while client.queue.messages:
            time.sleep(0.01)
        print("stored")
"""


def test_an_acknowledgement_that_finds_the_disk_full_is_stored_later(tmp_path: Path) -> None:
    hello = {"connection_id": "c1", "producer": {"epoch": "00000001", "last": 0}}
    script = [
        "let_in",
        {"read": "client_hello"},
        {"text": {"c": "WSE", "t": "server_hello", "p": hello}},
        {"read": "order"},
        {"read": "full"},
        {"text": {"c": "WSE", "t": "message_ack", "p": {"last": 1}}},
    ]
    seen = Seen()
    server = ScenarioServer([script], seen)
    try:
        with Child(FULL, str(tmp_path / "queue.db"), server.url) as client:
            until(lambda: "order" in seen.types)
            client.write("it has been sent")
            assert client.line() == "full 1"
            assert client.line() == "stored"
    finally:
        server.end()


ODD: list[Any] = [
    2**64,
    -1,
    2**200,
    1.5,
    float("nan"),
    "\ud800",
    b"\xff",
    None,
    object(),
    [],
    {},
    ["\ud800"],
    {"\ud800": 1},
    True,
]

CALLS: dict[str, Callable[[tidewire.Client, Any], Any]] = {
    "close with a code": lambda client, odd: client._core.close(odd, ""),
    "close with a reason": lambda client, odd: client._core.close(1000, odd),
    "send a payload": lambda client, odd: client.send(odd),
    "send a type": lambda client, odd: client.send(1, type=odd),
    "send with a priority": lambda client, odd: client.send(1, priority=odd),
    "try_send": lambda client, odd: client.try_send(odd, type=odd, priority=odd),
    "send_raw": lambda client, odd: client.send_raw(odd),
    "send_later": lambda client, odd: client.send_later(odd, type=odd, topic=odd, priority=odd, ttl_ms=odd),
    "send_later with a key": lambda client, odd: client.send_later(1, key=odd),
    "send_acknowledged for a time": lambda client, odd: client.send_acknowledged(1, ttl_ms=odd),
    "request": lambda client, odd: client.request(odd, type=odd, timeout_ms=1),
    "request for a time": lambda client, odd: client.request(type="a", timeout_ms=odd),
    "subscribe": lambda client, odd: client.subscribe(odd),
    "subscribe with positions": lambda client, odd: client.subscribe("a", positions={"a": ("00000001", odd)}),
    "subscribe with wrong positions": lambda client, odd: client.subscribe("a", positions=odd),
    "subscribe with a filter": lambda client, odd: client.subscribe("a", filter={"f": odd}),
    "subscribe with a presence": lambda client, odd: client.subscribe("a", presence=odd),
    "subscribe with a window": lambda client, odd: client.subscribe("a", queue_group="g", window=odd),
    "subscribe with a group": lambda client, odd: client.subscribe("a", queue_group=odd),
    "subscribe with an overload": lambda client, odd: client.subscribe("a", overload=odd),
    "unsubscribe": lambda client, odd: client.unsubscribe(odd),
    "publish a topic": lambda client, odd: client.publish(odd, 1),
    "publish a payload": lambda client, odd: client.publish("a", odd),
    "publish with an id": lambda client, odd: client.publish("a", 1, id=odd),
    "publish with a key": lambda client, odd: client.publish("a", 1, key=odd),
    "publish with a ttl": lambda client, odd: client.publish("a", 1, ttl_ms=odd),
    "publish with a priority": lambda client, odd: client.publish("a", 1, priority=odd),
    "publish with flags": lambda client, odd: client.publish("a", 1, exclude_self=odd, snapshot=odd),
    "presence": lambda client, odd: client.presence(odd),
    "sync": lambda client, odd: client.sync(odd),
    "acknowledge": lambda client, odd: client.acknowledge(odd),
}


async def answered(client: tidewire.Client) -> float:
    """The first ping that is answered: on a busy machine one may take longer than the calls of these clients wait."""
    while True:
        with contextlib.suppress(tidewire.CallTimeoutError):
            return await client.ping()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_odd_arguments_are_errors_of_the_package(serve: Serve, name: str) -> None:
    server = serve()

    async def main() -> None:
        async with tidewire.connect(server.url, offline_queue=":memory:", request_timeout_ms=50) as client:
            for odd in ODD:
                if name.startswith("close with a reason") and isinstance(odd, str) and odd.isascii():
                    continue
                try:
                    called = CALLS[name](client, odd)
                    if asyncio.iscoroutine(called):
                        await called
                except tidewire.TidewireError:
                    continue
                if name.startswith("close"):
                    # That was none, and the client is closed.
                    return
            assert await answered(client) > 0

    run(main())


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_odd_options_are_errors_of_the_package(odd: Any) -> None:
    for name in sorted(tidewire._native.ClientCore.option_names()):
        options: dict[str, Any] = {"wait": False, name: odd}
        try:
            tidewire.connect("ws://127.0.0.1:9/ws", **options)
        except tidewire.TidewireError:
            continue


def test_a_session_that_ended_is_no_failure_to_connect(serve: Serve) -> None:
    server = serve()

    async def main(loop: str) -> None:
        async with tidewire.connect(server.url, reconnect=False) as client:
            iterating = asyncio.create_task(client.run())
            (peer,) = await asyncio.to_thread(lambda: [next(peers(server))])
            peer.connection.close(4000, "moved")
            with pytest.raises(tidewire.ConnectionClosedError, match="moved") as ended:
                await iterating
            assert ended.value.code == "SESSION_ENDED"
            assert "connect" not in str(ended.value)

    for loop in sorted(LOOPS):
        run_on(loop, asyncio.wait_for(main(loop), DEADLINE_S))


def peers(server: tidewire.Server) -> Any:
    for batch in server.batches():
        for message in batch:
            if message.kind == "connect":
                yield message
