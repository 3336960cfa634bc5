"""Receiving with `async for`, and whole programs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest
import tidewire
from async_client import AsyncClient, eventually, soon
from async_support import LOOPS, run_on
from plain_client import PlainClient
from websockets.exceptions import ConnectionClosed


@pytest.fixture(params=sorted(LOOPS))
def run(request):
    return lambda main: run_on(request.param, main)


def test_messages_come_one_by_one_until_the_server_stops(run) -> None:
    seen = []

    async def receive(server: tidewire.Server) -> None:
        async for message in server:
            seen.append((message.kind, message.payload))

    async def main() -> None:
        server = tidewire.Server(port=0, no_auth=True)
        async with server:
            receiving = asyncio.create_task(receive(server))
            async with AsyncClient(server.url) as client:
                for number in range(1000):
                    await client.say("n", number)
                await eventually(lambda: len(seen) == 1001)
            await eventually(lambda: len(seen) == 1002)
        assert server.state == "stopped"
        await soon(receiving)

    run(main())
    assert seen == [("connect", None), *(("message", number) for number in range(1000)), ("disconnect", None)]


def test_who_breaks_off_goes_on_where_it_was(serve, run) -> None:
    server = serve()
    seen = []

    async def some(count: int) -> None:
        async for message in server:
            if message.kind == "message":
                seen.append(message.payload)
            if len(seen) == count:
                return

    async def main() -> None:
        async with AsyncClient(server.url) as client:
            for number in range(100):
                await client.say("n", number)
            await eventually(lambda: server.statistics()["messages_delivered"] == 100)
            await soon(some(1))
            await soon(some(50))

            @server.on("n")
            def rest(message: tidewire.Message) -> None:
                seen.append(message.payload)

            serving = asyncio.create_task(server.serve())
            await eventually(lambda: len(seen) == 100)
            serving.cancel()

    run(main())
    assert seen == list(range(100))


def test_batches_are_no_longer_than_asked_for(serve, run) -> None:
    server = serve()
    lengths = []

    async def main() -> None:
        async with AsyncClient(server.url) as client:
            for number in range(100):
                await client.say("n", number)
            async for batch in server.async_batches(max_messages=7):
                lengths.append(len(batch))
                if sum(lengths) == 101:
                    break

    run(main())
    assert max(lengths) <= 7
    assert 0 not in lengths


def test_empty_batches_come_when_asked_for(serve, run) -> None:
    server = serve()

    async def main() -> int:
        async for batch in server.async_batches(timeout_ms=1):
            return len(batch)
        return -1

    assert run(main()) == 0


def test_two_receivers_share_what_comes(serve, run) -> None:
    server = serve()
    seen = []

    async def receive() -> None:
        async for message in server:
            if message.kind == "message":
                seen.append(message.payload)

    async def main() -> None:
        receiving = [asyncio.create_task(receive()) for _ in range(2)]
        async with AsyncClient(server.url) as client:
            for number in range(200):
                await client.say("n", number)
                await asyncio.sleep(0)
            await eventually(lambda: len(seen) == 200)
        for task in receiving:
            task.cancel()

    run(main())
    assert sorted(seen) == list(range(200))


def test_a_server_belongs_to_one_loop_at_a_time(serve, run) -> None:
    server = serve()

    async def elsewhere() -> None:
        async for _ in server:
            raise AssertionError

    async def main() -> None:
        receiving = asyncio.create_task(anext(aiter(server)))
        await asyncio.sleep(0)
        with pytest.raises(tidewire.TidewireError) as refused:
            await asyncio.to_thread(asyncio.run, elsewhere())
        assert refused.value.code == "ANOTHER_LOOP"
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
        await asyncio.sleep(0)
        # Nobody receives here any more.
        thread = asyncio.to_thread(asyncio.run, once())
        async with AsyncClient(server.url):
            assert (await soon(thread)).kind == "connect"

    async def once() -> tidewire.Message:
        return await anext(aiter(server))

    run(main())


def test_a_server_that_was_not_started(run) -> None:
    server = tidewire.Server(port=0, no_auth=True)

    async def main() -> None:
        with pytest.raises(tidewire.StoppedError):
            await anext(aiter(server))

    run(main())


def test_stopping_from_another_thread_wakes_the_receiver(serve, run) -> None:
    server = serve()

    async def main() -> None:
        stopping = threading.Thread(target=server.stop)
        receiving = asyncio.create_task(count())
        await asyncio.sleep(0)
        stopping.start()
        assert await soon(receiving) == 0
        await asyncio.to_thread(stopping.join)

    async def count() -> int:
        return len([message async for message in server])

    run(main())


PROGRAM = """
import tidewire

server = tidewire.Server(port=0, no_auth=True)

@server.on("connect")
def connected(message):
    message.connection.send(server.port, type="welcome")

@server.on("disconnect")
async def gone(message):
    print("left with", message.close_code, flush=True)

server.start()
print(server.url, flush=True)
server.run()
print(server.state, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_ends_in_good_order(number: signal.Signals) -> None:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    url = program.stdout.readline().strip()
    with PlainClient(url) as client:
        assert str(client.until("welcome")["p"]) in url
        os.kill(program.pid, number)
        client.until("reconnect")
        with pytest.raises(ConnectionClosed):
            client.hear()
    rest, _ = program.communicate(timeout=60)
    assert rest.splitlines() == ["left with 4300", "stopped"]
    assert program.returncode == 0


def test_publishing_faster_than_the_server_delivers(serve, run) -> None:
    count = 300
    # Busy as soon as anything waits, and nobody is cut off for what waits for a client that does not read yet.
    server = serve(backlog_bytes_max=1, outbox_bytes_max=1 << 30)

    async def main() -> list[int]:
        async with AsyncClient(server.url) as client:
            await client.subscribe("news")
            filling = "x" * 50_000
            with pytest.raises(tidewire.BusyError):  # noqa: PT012
                for _ in range(1_000_000):
                    server.publish("news", {"n": -1, "filling": filling}, wait_ms=0)
            hearing = asyncio.create_task(hear(client))
            for number in range(count):
                payload = {"n": number, "filling": filling}
                await server.when_free(server.publish, "news", payload, wait_ms=30_000)
            return await soon(hearing)

    async def hear(client: AsyncClient) -> list[int]:
        numbers: list[int] = []
        while len(numbers) < count:
            number = (await client.until("message"))["p"]["n"]
            numbers += [number] if number >= 0 else []
        return numbers

    assert run(main()) == list(range(count))


def test_waiting_until_the_server_is_free_lets_other_things_run(serve, run) -> None:
    server = serve()
    turns = 0

    def busy(failures: int, *, wait_ms: int) -> int:
        nonlocal turns
        turns += 1
        if turns <= failures:
            raise tidewire.BusyError("busy")
        return wait_ms

    async def main() -> None:
        nonlocal turns
        others = asyncio.create_task(asyncio.sleep(0, "ran"))
        assert await server.when_free(busy, 3) == 0
        assert (turns, others.done()) == (4, True)
        turns = 0
        with pytest.raises(tidewire.BusyError):
            await server.when_free(busy, 1, wait_ms=0)
        assert turns == 1

    run(main())
