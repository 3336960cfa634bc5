"""What Python sends arrives as it was sent, or is refused by name; two readers of one client; a server and a fork."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tidewire
from client_support import run
from conftest import received

Serve = Callable[..., tidewire.Server]

KEPT: list[Any] = [
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    -(2**63) - 1,
    10**30,
    {"n": [10**40, -(10**20)]},
    {"a": None, "b": [None]},
    "1234567890123456789012345",
    1.5e300,
    "\u2028\x00é😀",
]


@pytest.mark.parametrize("value", KEPT)
def test_values_are_kept_in_both_directions(serve: Serve, value: Any) -> None:
    server = serve()
    with tidewire.sync.connect(server.url) as client:
        client.send(value, type="x")
        assert received(server, 1, "message")[0].payload == value
        client.subscribe("a")
        server.publish("a", value, type="x")
        assert client.next(timeout=30).payload == value


REFUSED: list[tuple[Any, str]] = [
    (math.nan, r"value is nan"),
    ({"a": [1, math.inf]}, r"value\['a'\]\[1\] is inf"),
    ({"a": {"b": "half \ud83d"}}, r"value\['a'\]\['b'\] has a lone surrogate"),
    ({"a": {1, 2}}, r"value\['a'\]: a set has no order"),
    ({"a": [object()]}, r"value\['a'\]\[0\]: a object has no form"),
]


@pytest.mark.parametrize(("value", "words"), REFUSED)
def test_what_json_lacks_is_refused_with_its_place(serve: Serve, value: Any, words: str) -> None:
    server = serve()
    with tidewire.sync.connect(server.url) as client:
        for send in (
            lambda: client.send(value, type="x"),
            lambda: client.publish("a", value, type="x"),
            lambda: client.request(value, type="x"),
            lambda: server.publish("a", value, type="x"),
        ):
            with pytest.raises(tidewire.WrongTypeError, match=words):
                send()


def test_missing_is_an_empty_object(serve: Serve) -> None:
    server = serve()
    with tidewire.sync.connect(server.url) as client:
        client.send(type="x")
        assert received(server, 1, "message")[0].payload == {}


def test_errors_repeat_no_password() -> None:
    with pytest.raises(tidewire.TidewireError) as wrong:
        tidewire.sync.connect("ws://user:hunter2@127.0.0.1:9/ws?token=hunter2")
    assert "hunter2" not in str(wrong.value)


def test_each_message_wakes_a_task_that_takes_it(serve: Serve) -> None:
    server = serve()

    async def main() -> None:
        async with tidewire.connect(server.url) as client:
            await client.subscribe("a")
            for _ in range(30):
                tasks = [asyncio.create_task(anext(client)) for _ in range(3)]
                await asyncio.sleep(0)
                server.publish_many("a", range(3))
                taken = sorted([(await task).payload for task in tasks])
                assert taken == [0, 1, 2]

    run(main())


def take_one(client: tidewire.sync.Client, taken: list[Any]) -> None:
    taken.append(client.next(timeout=30).payload)


def test_each_message_wakes_a_thread_that_takes_it(serve: Serve) -> None:
    server = serve()
    with tidewire.sync.connect(server.url) as client:
        client.subscribe("a")
        for _ in range(30):
            taken: list[Any] = []
            threads = [threading.Thread(target=take_one, args=(client, taken)) for _ in range(3)]
            for thread in threads:
                thread.start()
            for number in range(3):
                server.publish("a", number)
            for thread in threads:
                thread.join()
            assert sorted(taken) == [0, 1, 2]


def test_closing_waits_for_what_is_on_its_way(serve: Serve) -> None:
    server = serve()

    async def main() -> None:
        client = await tidewire.connect(server.url)
        publishing = [asyncio.create_task(client.publish("a", number)) for number in range(50)]
        await asyncio.sleep(0)
        await client.close()
        await asyncio.gather(*publishing)

    run(main())


def start_elsewhere(server: tidewire.Server, words: Any) -> None:
    try:
        server.start()
    except tidewire.StoppedError as error:
        words.put(str(error))
    else:
        words.put("it has started")


def test_a_server_made_before_a_fork_is_not_started_after_it() -> None:
    server = tidewire.Server(port=0, no_auth=True)
    fork = multiprocessing.get_context("fork")
    words = fork.Queue()
    child = fork.Process(target=start_elsewhere, args=(server, words))
    child.start()
    assert "before this process was forked" in words.get(timeout=30)
    child.join()
