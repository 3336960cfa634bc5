"""The client on asyncio against the server."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import tidewire
from client_support import DEADLINE_S, FAST, kinds, run
from conftest import received

Serve = Callable[..., tidewire.Server]


async def messages(client: tidewire.Client, count: int) -> list[tidewire.ClientMessage]:
    """The next messages that are no handler's."""
    taken: list[tidewire.ClientMessage] = []
    async for message in client:
        taken.append(message)
        if len(taken) == count:
            return taken
    raise AssertionError(f"closed after {len(taken)} of {count}")


def test_sends_and_receives(serve: Serve) -> None:
    server = serve(history={"kept.>": 100})

    async def main() -> None:
        async with tidewire.connect(server.url) as client:
            assert client.state == "connected"
            await client.send({"id": 17}, type="order")
            await client.send_raw('{"t":"plain","p":[1]}')
            client.try_send(type="urgent", priority=10)
            subscription = await client.subscribe(["kept.a", "b"])
            assert subscription.topics == ["kept.a", "b"]
            assert subscription.positions["kept.a"].position[1] == 0
            result = await client.publish("kept.a", {"n": 1}, type="tick", id="once")
            assert result.position is not None
            assert result.position[1] == 1
            assert not result.duplicate
            assert (await client.publish("kept.a", {"n": 1}, type="tick", id="once")).duplicate
            (message,) = await messages(client, 1)
            assert (message.kind, message.type, message.topic) == ("message", "tick", "kept.a")
            assert message.payload == {"n": 1}
            assert message.json()["id"] == "once"
            assert message.position == result.position
            assert bytes(message.data).startswith(b"{")
            assert len(message) == len(message.data)
            assert "topic=" in repr(message)
            await client.unsubscribe("kept.a")
        assert client.state == "closed"
        with pytest.raises(tidewire.StoppedError):
            await client.send(type="order")

    run(main())
    first, second, third = received(server, 3, "message")
    assert (first.type, first.payload) == ("order", {"id": 17})
    assert (second.type, second.payload) == ("plain", [1])
    assert third.json()["pri"] == 10


def test_publications_of_a_topic_without_history_come_all_and_in_order(serve: Serve) -> None:
    server = serve()

    async def main() -> None:
        async with tidewire.connect(server.url) as client:
            assert (await client.subscribe("plain")).positions == {}
            assert server.publish_many("plain", range(1_000), type="tick") == 1_000
            assert [message.payload for message in await messages(client, 1_000)] == list(range(1_000))

    run(main())


def test_giving_up_waiting_loses_nothing(serve: Serve) -> None:
    server = serve()

    async def main() -> None:
        async with tidewire.connect(server.url) as client:
            batches = client.batches()
            assert [message.kind for message in await anext(batches)] == ["connected"]
            await client.subscribe("plain")
            for number in range(3):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(anext(batches), 0.01)
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(anext(client), 0.01)
                server.publish_many("plain", [number, "second"], type="tick")
                assert (await anext(client)).payload == number
                assert (await anext(client)).payload == "second"
            server.publish("plain", "batch")
            batch = await anext(batches)
            assert [message.payload for message in batch] == ["batch"]
            assert (len(batch), batch[0].payload, batch[-1].payload) == (1, "batch", "batch")
            for outside in (1, -2):
                with pytest.raises(IndexError):
                    batch[outside]
        assert [message.kind for message in await anext(batches)] == ["disconnected"]
        with pytest.raises(StopAsyncIteration):
            await anext(batches)
        with pytest.raises(StopAsyncIteration):
            await anext(client)

    run(main())


def test_two_who_take_get_everything_once(serve: Serve) -> None:
    server = serve()
    seen: list[Any] = []
    everything = asyncio.Event()

    async def take(client: tidewire.Client) -> None:
        async for message in client:
            seen.append(message.payload)
            if len(seen) == 1_000:
                everything.set()
            await asyncio.sleep(0)

    async def main() -> None:
        async with tidewire.connect(server.url) as client:
            await client.subscribe("plain")
            takers = [asyncio.create_task(take(client)) for _ in range(2)]
            for start in range(0, 1_000, 100):
                server.publish_many("plain", range(start, start + 100))
                await asyncio.sleep(0.005)
            await everything.wait()
        await asyncio.gather(*takers)

    run(main())
    assert sorted(seen) == list(range(1_000))


def test_of_a_client_that_was_heard_to_the_end_nothing_stays(serve: Serve) -> None:
    server = serve()

    async def main() -> None:
        async with tidewire.connect(server.url) as client:
            await client.ping()
        assert [message async for message in client] == []
        kept = weakref.ref(client)
        del client
        gc.collect()
        assert kept() is None

    run(main())


def test_a_handler_that_is_cancelled_answers_its_request(serve: Serve) -> None:
    server = serve()

    async def main() -> None:
        async with tidewire.connect(server.url) as client:

            @client.on_request("slow")
            async def slow(message: tidewire.ClientMessage) -> None:
                await asyncio.sleep(60)

            (connected,) = received(server, 1, "connect")
            asking = asyncio.create_task(asyncio.to_thread(connected.connection.request, 1, type="slow"))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(client), 0.3)
            with pytest.raises(tidewire.CallError):
                await asking

    run(main())


def test_a_batch_is_acknowledged_as_a_whole(serve: Serve) -> None:
    server = serve()

    async def main() -> None:
        async with tidewire.connect(server.url) as client:
            batches = client.batches()
            await anext(batches)
            await client.subscribe("work", queue_group="group", acknowledge=True)
            server.publish_many("work", range(3))
            count = 3
            while count > 0:
                batch = await anext(batches)
                await client.acknowledge(batch)
                count -= len(batch)

    run(main())


def test_a_topic_that_is_not_given_is_an_error(serve: Serve) -> None:
    server = serve(topics_open=False, client_subscribe_allow=["open"])

    async def main() -> None:
        async with tidewire.connect(server.url) as client:
            words = r"secret \(TOPIC_FORBIDDEN: .*\) \(but open"
            with pytest.raises(tidewire.SubscriptionError, match=words) as refused:
                await client.subscribe(["open", "secret"])
            error = refused.value
            assert (error.subscription.topics, error.failed) == (["open"], ["secret"])
            assert (error.code, error.fault) == ("SUBSCRIPTION_FAILED", "caller")
            assert str(pickle.loads(pickle.dumps(error))) == str(error)
            why = await kinds(client, "error")
            assert why.payload["code"] == "TOPIC_FORBIDDEN"
            server.publish("open", "still given")
            assert (await anext(client)).payload == "still given"

    run(main())


def test_requests_both_ways(serve: Serve) -> None:
    server = serve()

    @server.request("sum")
    def add(message: tidewire.Message) -> Any:
        return sum(message.payload)

    async def main() -> None:
        async with server, tidewire.connect(server.url, request_timeout_ms=30_000) as client:
            serving = asyncio.create_task(server.serve())
            assert await client.request([1, 2, 39], type="sum") == 42
            with pytest.raises(tidewire.CallError) as refused:
                await client.request(type="nothing")
            assert refused.value.code == "NOT_FOUND"
            await asyncio.to_thread(server.stop)
            await serving

    run(main())


def test_handlers_get_their_types_and_the_rest_is_iterated(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    seen: list[Any] = []

    async def main() -> None:
        client = tidewire.connect(server.url)

        @client.on("count")
        async def count(message: tidewire.ClientMessage) -> None:
            seen.append(message.payload)
            await asyncio.sleep(0)

        @client.on("broken")
        def broken(message: tidewire.ClientMessage) -> None:
            raise ValueError("not today")

        @client.on("connected")
        def connected(message: tidewire.ClientMessage) -> None:
            seen.append(message.payload["session"])

        with pytest.raises(tidewire.InvalidArgumentError):
            client.on("count")(count)
        with pytest.raises(tidewire.WrongTypeError):
            client.on("other")(lambda: None)  # type: ignore[arg-type, misc]

        async with client:
            await client.subscribe("a")
            for number in range(3):
                server.publish("a", number, type="count")
            server.publish("a", None, type="broken")
            server.publish("a", "rest", type="rest")
            (message,) = await messages(client, 1)
            assert message.payload == "rest"

    with caplog.at_level(logging.ERROR, "tidewire"):
        run(main())
    assert seen == [1, 0, 1, 2]
    assert "not today" in caplog.text


def test_calls_of_the_server(serve: Serve) -> None:
    server = serve()

    async def main() -> None:
        client = tidewire.connect(server.url)

        @client.on_request("double")
        async def double(message: tidewire.ClientMessage) -> Any:
            return 2 * message.payload

        @client.on_request("never")
        def never(message: tidewire.ClientMessage) -> Any:
            raise tidewire.CallError("no", code="NO_CLUE")

        async with client:
            running = asyncio.create_task(client.run())
            (peer,) = await asyncio.to_thread(received, server, 1, "connect")
            connection = peer.connection
            assert await asyncio.to_thread(connection.request, 21, type="double") == 42
            for name, code in (("never", "NO_CLUE"), ("unknown", "NOT_FOUND")):
                with pytest.raises(tidewire.CallError, match=code):
                    await asyncio.to_thread(connection.request, None, type=name)
            await client.close()
            await running

    run(main())


def test_presence_and_groups(serve: Serve) -> None:
    server = serve(presence=["seen.>"])

    async def main() -> None:
        async with tidewire.connect(server.url) as one, tidewire.connect(server.url) as two:
            await one.subscribe("seen.a")
            await two.subscribe("seen.a", presence={"name": "two"})
            joined = await kinds(one, "presence_join")
            while joined.payload["data"] is None:
                joined = await kinds(one, "presence_join")
            assert joined.payload["data"] == {"name": "two"}
            assert joined.topic == "seen.a"
            there = (await one.presence("seen.a"))["seen.a"]
            assert (there.users, there.connections) == (2, 2)
            assert there.members[joined.payload["user"]].data == {"name": "two"}

            await two.subscribe("work", queue_group="workers", acknowledge=True, window=1)
            for number in range(3):
                server.publish("work", number)
            for number in range(3):
                (task,) = await messages(two, 1)
                assert task.payload == number
                await two.acknowledge(task)

    run(main())


def test_what_was_missed_comes_after_a_lost_connection(serve: Serve) -> None:
    server = serve(history={"kept.>": 100})

    async def main() -> None:
        async with tidewire.connect(server.url, **FAST) as client:
            await client.subscribe("kept.a")
            for round in range(3):
                connects = await asyncio.to_thread(received, server, 1, "connect")
                connects[-1].connection.close(1012, "again")
                ended = await kinds(client, "disconnected")
                assert (ended.payload["code"], ended.payload["reason"]) == (1012, "again")
                assert ended.payload["retry_in"] is not None
                server.publish_many("kept.a", [round * 10 + number for number in range(10)])
                numbers = [message.payload for message in await messages(client, 10)]
                assert numbers == [round * 10 + number for number in range(10)]

    run(main())


def test_quality_and_health(serve: Serve) -> None:
    server = serve()

    async def main() -> None:
        async with tidewire.connect(server.url) as client:
            assert client.quality.score == 100
            assert 0 < await client.ping() < DEADLINE_S
            assert client.quality.answered == 1
            assert client.quality.latency_ms > 0
            (endpoint,) = client.endpoints
            assert (endpoint.url, endpoint.score, endpoint.breaker) == (server.url, 100, "closed")
            assert repr(client).startswith("<tidewire.Client connected quality=")

    run(main())


def test_acknowledged_messages(serve: Serve) -> None:
    server = serve()

    async def main() -> None:
        async with tidewire.connect(server.url, offline_queue=":memory:") as client:
            await asyncio.gather(*(client.send_acknowledged(number, type="count") for number in range(200)))
            await client.send_later(1, type="tick", topic="prices", priority=8)
            assert client.queue.messages <= 1

    run(main())
    assert sorted(message.payload for message in received(server, 200, "message")) == list(range(200))


def test_sending_waits_for_room(serve: Serve) -> None:
    server = serve(rate_limit_capacity=0)

    async def main() -> None:
        async with tidewire.connect(server.url, outbox_bytes_max=2_000) as client:
            for number in range(5_000):
                await client.send(number, type="count")

    run(main())
    numbers = [message.payload for message in received(server, 5_000, "message")]
    assert numbers == list(range(5_000))


def test_a_cancelled_request_leaves_nothing_behind(serve: Serve) -> None:
    server = serve()

    async def main() -> None:
        async with tidewire.connect(server.url) as client:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.request(type="nobody-answers"), 0.05)
            assert await client.ping() > 0
            with pytest.raises(tidewire.CallTimeoutError):
                await client.request(type="nobody-answers", timeout_ms=50)

    run(main())


def test_another_loop_is_refused(serve: Serve) -> None:
    server = serve()
    client = tidewire.connect(server.url)

    async def main() -> None:
        await client

    async def again() -> None:
        with pytest.raises(tidewire.TidewireError, match="another event loop"):
            await client.ping()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
        run(again())
    finally:
        loop.close()


def test_a_client_goes_on_when_its_loop_was_closed(serve: Serve) -> None:
    server = serve()
    client = tidewire.connect(server.url)
    left: list[asyncio.Future[object]] = []

    async def main() -> None:
        await client
        # It is never answered, and nobody is left to be told.
        left.append(asyncio.ensure_future(client.request(type="nobody-answers")))
        await asyncio.sleep(0)

    async def again() -> None:
        assert await client.ping() > 0
        await client.close()

    run(main())
    run(again())


def test_on_uvloop(serve: Serve) -> None:
    uvloop = pytest.importorskip("uvloop")
    server = serve()

    async def main() -> None:
        async with tidewire.connect(server.url) as client:
            await client.subscribe("a")
            await client.publish("a", 1)
            (message,) = await messages(client, 1)
            assert message.payload == 1

    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(main(), DEADLINE_S))
    finally:
        loop.close()
