"""Servers and clients that are killed, forked, and started anew."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import tidewire
from client_support import FAST, Child, is_alive, kinds, run, serving, url
from conftest import received, until

Serve = Callable[..., tidewire.Server]


def test_a_killed_server_comes_back_with_a_new_history() -> None:
    async def main() -> None:
        child, port = serving()
        with child:
            async with tidewire.connect(url(port), **FAST) as client:
                await client.subscribe("kept.a")
                published = await client.publish("kept.a", 1)
                assert (await kinds(client, "message")).payload == 1
                child.kill()
                assert (await kinds(client, "disconnected")).payload["retry_in"] is not None
                publishing = asyncio.create_task(client.publish("kept.a", 2))
                again, _ = serving(port)
                with again:
                    unrecovered = await kinds(client, "unrecovered")
                    assert unrecovered.topic == "kept.a"
                    assert unrecovered.payload["last"] == published.position
                    assert (await publishing).position is not None
                    assert (await kinds(client, "message")).payload == 2

    run(main())


def test_acknowledged_means_arrived_though_the_server_is_killed(tmp_path: Path) -> None:
    child, port = serving()
    acknowledged: list[int] = []
    with child:
        options = {"offline_queue": tmp_path / "queue.db", "queue_resend_uncertain": True, **FAST}
        with tidewire.sync.connect(url(port), **options) as client:
            for number in range(50):
                client.send_acknowledged(number, type="count")
                acknowledged.append(number)
            assert [int(child.line()) for _ in acknowledged] == acknowledged
            child.kill()
            for number in range(50, 60):
                client.send_later(number, type="count")
            again, _ = serving(port)
            with again:
                # What was on its way may come twice, which was asked for; nothing is missing.
                got = set()
                while got != set(range(50, 60)):
                    got.add(int(again.line()))
                until(lambda: client.queue.messages == 0)


FILLS = """
    import sys
    import tidewire

    client = tidewire.sync.connect("ws://127.0.0.1:9/ws", offline_queue=sys.argv[1], wait=False)
    for number in range(1_000_000):
        client.send_later(number, type="count", priority=8 if number % 2 else 5)
        print(number)
"""


def test_a_killed_client_loses_nothing_that_was_stored(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with Child(FILLS, str(path)) as child:
        stored = 0
        while stored < 100:
            stored = int(child.line())
    server = serve()
    with tidewire.sync.connect(server.url, offline_queue=path) as client:
        until(lambda: client.queue.messages == 0)
    count = server.statistics()["messages_delivered"]
    assert count > stored
    numbers = [message.payload for message in received(server, count, "message")]
    assert sorted(numbers) == list(range(count))
    odd = [number for number in range(count) if number % 2]
    assert numbers[: len(odd)] == odd, "the urgent ones first"


def test_one_client_at_a_time_has_a_file(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with tidewire.sync.connect("ws://127.0.0.1:9/ws", offline_queue=path, wait=False) as client:
        client.send_later(1, type="count")
        assert client.queue.messages == 1
        with pytest.raises(tidewire.TidewireError, match="another client"):
            tidewire.sync.connect("ws://127.0.0.1:9/ws", offline_queue=path, wait=False)


def test_a_forked_process_makes_its_own(serve: Serve) -> None:
    server = serve()
    client = tidewire.sync.connect(server.url)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        words = b"nothing was raised"
        try:
            try:
                client.send(type="from-the-child")
            except tidewire.StoppedError as error:
                words = str(error).encode()
            with tidewire.sync.connect(server.url) as own:
                own.send(2, type="own")
            os.write(writer, words)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert b"forked" in pipe.read()
    os.waitpid(pid, 0)
    client.send(1, type="parent")
    texts = {message.type for message in received(server, 2, "message")}
    assert texts == {"own", "parent"}
    client.close()


def test_ctrl_c_is_heard_while_waiting(serve: Serve) -> None:
    server = serve()
    with tidewire.sync.connect(server.url) as client:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(client)
        timer.join()


def test_what_waits_is_sent_when_the_program_ends(serve: Serve) -> None:
    server = serve()
    program = """
        import sys
        import tidewire

        client = tidewire.sync.connect(sys.argv[1])
        for number in range(1000):
            client.send(number, type="count")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), server.url], check=True)
    numbers = [message.payload for message in received(server, 1_000, "message")]
    assert numbers == list(range(1_000))


def test_no_client_is_left_when_the_last_name_goes(serve: Serve) -> None:
    server = serve()
    client = tidewire.sync.connect(server.url)
    until(lambda: server.connections == 1)
    del client
    until(lambda: server.connections == 0)
    assert is_alive(os.getpid())


def test_a_server_that_refuses_for_good_ends_the_iteration(serve: Serve) -> None:
    server = serve()

    async def main() -> None:
        async with tidewire.connect(server.url, **FAST) as client:
            (peer,) = await asyncio.to_thread(received, server, 1, "connect")
            peer.connection.close(4403, "not you")
            with pytest.raises(tidewire.ConnectionClosedError, match="not you"):
                await client.run()
            with pytest.raises(tidewire.StoppedError):
                await client.send(1, type="count")

    run(main())
