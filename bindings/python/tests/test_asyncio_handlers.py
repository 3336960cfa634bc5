"""Handlers: which is called, in which order, how many at once."""

from __future__ import annotations

import asyncio
import collections
import contextvars
import random
import sys

import pytest
import tidewire
from async_client import AsyncClient, eventually, soon
from async_support import LOOPS, run_on, serving


@pytest.fixture(params=sorted(LOOPS))
def run(request):
    return lambda main: run_on(request.param, main)


def test_each_message_finds_its_handler(serve, run) -> None:
    server = serve()
    seen = []

    @server.on("connect")
    def connected(message: tidewire.Message) -> None:
        seen.append(("connect", message.kind))

    @server.on("disconnect")
    async def gone(message: tidewire.Message) -> None:
        seen.append(("disconnect", message.close_code))

    @server.on("chat")
    async def chat(message: tidewire.Message) -> None:
        seen.append(("chat", message.payload))

    @server.on("*")
    def rest(message: tidewire.Message) -> None:
        seen.append((message.type, message.payload))

    async def main() -> None:
        async with serving(server):
            async with AsyncClient(server.url) as client:
                await client.say("chat", 1)
                await client.say("other", 2)
                # The names of events are types like any other for a client.
                await client.say("connect", 3)
                await client.say("chat", 4)
            await eventually(lambda: len(seen) == 6)

    run(main())
    assert seen == [
        ("connect", "connect"),
        ("chat", 1),
        ("other", 2),
        ("connect", 3),
        ("chat", 4),
        ("disconnect", 1000),
    ]
    assert server.handler_statistics().handled == 6
    assert chat.__name__ == "chat"


def test_requests_are_answered_with_what_handlers_return(serve, run) -> None:
    server = serve()

    @server.request("now")
    def now(message: tidewire.Message) -> int:
        return message.payload + 1

    @server.request("at once")
    async def at_once(message: tidewire.Message) -> dict[str, int]:
        return {"n": message.payload}

    @server.request("later")
    async def later(message: tidewire.Message) -> list[int]:
        await asyncio.sleep(0)
        return [message.payload]

    @server.request("by itself")
    async def by_itself(message: tidewire.Message) -> None:
        assert message.reply("first")

    @server.request("task")
    def task(message: tidewire.Message) -> asyncio.Future[str]:
        return asyncio.ensure_future(asyncio.sleep(0, "waited"))

    @server.request("*")
    def rest(message: tidewire.Message) -> str | None:
        return message.type

    async def main() -> list[object]:
        async with serving(server), AsyncClient(server.url) as client:
            types = ["now", "at once", "later", "by itself", "task", "unheard of"]
            return [(await client.request(type, 5))["payload"] for type in types]

    assert run(main()) == [6, {"n": 5}, [5], "first", "waited", "unheard of"]


def test_a_waiting_handler_delays_its_connection_alone(serve, run) -> None:
    server = serve()
    order = []

    async def main() -> None:
        go = asyncio.Event()

        @server.on("n")
        async def handle(message: tidewire.Message) -> None:
            name, number = message.payload
            if number == 0 and name == "a":
                await go.wait()
            order.append((name, number))

        async with serving(server), AsyncClient(server.url) as a, AsyncClient(server.url) as b:
            for number in range(3):
                await a.say("n", ["a", number])
            await eventually(lambda: server.handler_statistics().waiting == 2)
            for number in range(3):
                await b.say("n", ["b", number])
            await eventually(lambda: len(order) == 3)
            assert server.handler_statistics().running == 1
            go.set()
            await eventually(lambda: len(order) == 6)

    run(main())
    assert order == [("b", 0), ("b", 1), ("b", 2), ("a", 0), ("a", 1), ("a", 2)]


def test_without_order_one_connection_has_several_handlers(serve, run) -> None:
    server = serve()

    async def main() -> None:
        all_here = asyncio.Event()
        here = []

        @server.on("n")
        async def handle(message: tidewire.Message) -> None:
            here.append(message.payload)
            if len(here) == 3:
                all_here.set()
            await soon(all_here.wait())

        async with serving(server, keep_order=False), AsyncClient(server.url) as client:
            for number in range(3):
                await client.say("n", number)
            await eventually(lambda: server.handler_statistics().handled == 3)

    run(main())


def test_no_more_handlers_than_allowed(serve, run) -> None:
    server = serve()

    async def main() -> None:
        go = asyncio.Event()
        begun = []

        @server.on("n")
        async def handle(message: tidewire.Message) -> None:
            begun.append(message.payload)
            await go.wait()

        async with (
            serving(server, handlers_max=2),
            AsyncClient(server.url) as a,
            AsyncClient(server.url) as b,
            AsyncClient(server.url) as c,
        ):
            for number, client in enumerate((a, b)):
                await client.say("n", number)
            await eventually(lambda: len(begun) == 2)
            await c.say("n", 2)
            await eventually(lambda: server.statistics()["messages_delivered"] == 3)
            for _ in range(100):
                await asyncio.sleep(0)
            assert (begun, server.handler_statistics().running) == ([0, 1], 2)
            go.set()
            await eventually(lambda: server.handler_statistics().handled == 3)

    run(main())


def test_who_does_not_keep_up_holds_back_the_senders(serve, run) -> None:
    count, waiting_max = 20_000, 10
    server = serve(queue_bytes_max=100_000)
    numbers = []
    peak = 0

    async def main() -> None:
        nonlocal peak
        go = asyncio.Event()

        @server.on("n")
        async def handle(message: tidewire.Message) -> None:
            nonlocal peak
            await go.wait()
            numbers.append(message.payload["n"])
            peak = max(peak, server.handler_statistics().waiting)

        async def send(client: AsyncClient) -> None:
            for number in range(count):
                await client.say("n", {"n": number, "filling": "x" * 1000})

        async with serving(server, waiting_max=waiting_max), AsyncClient(server.url) as client:
            sending = asyncio.create_task(send(client))
            await eventually(lambda: server.handler_statistics().waiting == waiting_max)
            # The client has said all, or waits. The server has taken its queue and a read buffer more; the rest is
            # in the system's buffers and the client's.
            waits = client.socket.transport.get_write_buffer_size
            await eventually(lambda: sending.done() or waits() > 0)
            assert server.statistics()["queue_full_pauses"] > 0
            assert server.statistics()["messages_delivered"] < count / 2
            go.set()
            await eventually(lambda: len(numbers) == count)
            await sending

    run(main())
    assert numbers == list(range(count))
    assert peak <= waiting_max


def test_what_waits_is_limited_in_bytes(serve, run) -> None:
    server = serve()
    numbers = []

    async def main() -> None:
        go = asyncio.Event()

        @server.on("n")
        async def handle(message: tidewire.Message) -> None:
            await go.wait()
            numbers.append(message.payload["n"])

        async with serving(server, waiting_bytes_max=250_000), AsyncClient(server.url) as client:
            for number in range(20):
                await client.say("n", {"n": number, "filling": "x" * 100_000})
            await eventually(lambda: server.statistics()["messages_delivered"] == 20)
            await eventually(lambda: server.handler_statistics().waiting == 3)
            for _ in range(100):
                await asyncio.sleep(0)
            assert server.handler_statistics().waiting == 3
            go.set()
            await eventually(lambda: len(numbers) == 20)

    run(main())
    assert numbers == list(range(20))


def test_handlers_of_every_manner_keep_the_order_of_each_connection(serve, run) -> None:
    clients, messages = 8, 150
    server = serve()
    seen: dict[int, list[int]] = collections.defaultdict(list)
    failures = 0

    @server.on("sync")
    def sync(message: tidewire.Message) -> None:
        client, number = message.payload
        seen[client].append(number)

    @server.on("async")
    async def immediate(message: tidewire.Message) -> None:
        sync(message)

    @server.on("turns")
    async def turns(message: tidewire.Message) -> None:
        for _ in range(message.payload[1] % 3 + 1):
            await asyncio.sleep(0)
        sync(message)

    @server.on("time")
    async def wait(message: tidewire.Message) -> None:
        await asyncio.sleep(0.001)
        sync(message)

    @server.on("fails")
    async def fails(message: tidewire.Message) -> None:
        nonlocal failures
        sync(message)
        failures += 1
        await asyncio.sleep(0)
        raise tidewire.CallError("no", code="NO")

    async def talk(index: int) -> None:
        choice = random.Random(index)
        async with AsyncClient(server.url) as client:
            for number in range(messages):
                await client.say(choice.choice(["sync", "async", "turns", "time", "fails"]), [index, number])
            await eventually(lambda: len(seen[index]) == messages)

    async def main() -> None:
        async with serving(server, handlers_max=3, waiting_max=20):
            await soon(asyncio.gather(*(talk(index) for index in range(clients))))

    run(main())
    assert seen == {index: list(range(messages)) for index in range(clients)}
    statistics = server.handler_statistics()
    assert statistics.handled + statistics.refused == clients * messages
    assert (statistics.refused, statistics.errors) == (failures, 0)
    assert (statistics.running, statistics.waiting) == (0, 0)


def test_each_call_has_a_context_and_a_task(serve, run) -> None:
    server = serve()
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    tasks = []

    @server.request("async")
    async def handle(message: tidewire.Message) -> str:
        before = variable.get()
        variable.set(message.payload)
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0)
        tasks.append(asyncio.current_task())
        inner = await asyncio.create_task(read())
        return f"{before} {inner}"

    async def read() -> str:
        return variable.get()

    @server.request("sync")
    def sync(message: tidewire.Message) -> str:
        before = variable.get()
        variable.set(message.payload)
        return before

    async def main() -> list[str]:
        variable.set("outer")
        async with serving(server), AsyncClient(server.url) as client:
            calls = [("async", "one"), ("async", "two"), ("sync", "three"), ("sync", "four")]
            return [(await client.request(type, word))["payload"] for type, word in calls]

    assert run(main()) == ["outer one", "outer two", "outer", "outer"]
    assert None not in tasks
    assert (tasks[0], tasks[2]) == (tasks[1], tasks[3])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout is of Python 3.11")
def test_time_outs_inside_a_handler_end_the_handler_alone(serve, run) -> None:
    server = serve()

    @server.request("wait")
    async def wait(message: tidewire.Message) -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "?"

    async def main() -> list[str]:
        async with serving(server), AsyncClient(server.url) as client:
            return [(await client.request("wait"))["payload"] for _ in range(3)]

    assert run(main()) == ["timed out"] * 3


def test_snapshot_requests_have_handlers(serve, run) -> None:
    server = serve(snapshot_requests=True)

    @server.on("snapshot_request")
    async def snapshot(message: tidewire.Message) -> None:
        for topic in message.topics:
            message.reply_snapshot(topic, {"state": topic})

    async def main() -> dict[str, object]:
        async with serving(server), AsyncClient(server.url) as client:
            await client.subscribe("a")
            await client.say("sync_request", {"topics": ["a"], "include_snapshots": True}, c="S")
            return await client.until("snapshot")

    answer = run(main())
    assert (answer["c"], answer["p"]) == ("S", {"state": "a"})


def test_handlers_that_cannot_be(serve) -> None:
    server = serve()

    @server.on("a")
    def taken(message: tidewire.Message) -> None: ...

    with pytest.raises(tidewire.InvalidArgumentError, match="taken"):
        server.on("a")(taken)
    server.request("a")(taken)
    with pytest.raises(tidewire.InvalidArgumentError, match="taken"):
        server.request("a")(taken)
    server.on("*")(taken)
    with pytest.raises(tidewire.InvalidArgumentError, match="taken"):
        server.on("*")(taken)
    with pytest.raises(tidewire.WrongTypeError, match=r'@server\.on\("type"\)'):
        server.on(taken)  # type: ignore[arg-type]
    with pytest.raises(tidewire.WrongTypeError, match=r'@server\.request\("type"\)'):
        server.request(taken)  # type: ignore[arg-type]
    with pytest.raises(tidewire.WrongTypeError, match="one argument"):
        server.on("b")(lambda: None)
    with pytest.raises(tidewire.WrongTypeError, match="function"):
        server.on("b")(5)  # type: ignore[type-var]
