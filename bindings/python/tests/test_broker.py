"""Publishing and queries on servers that share their topics over a real Redis: nobody else is held up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
import tidewire
from conftest import until
from plain_client import PlainClient
from redis_support import RedisServer
from websockets.exceptions import ConnectionClosed

HISTORY = {"history": {"news.>": 1000}}


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.stop()


def is_connected(server: tidewire.Server) -> bool:
    try:
        server.publish("news.probe", 0)
    except tidewire.TidewireError:
        return False
    return True


@pytest.fixture
def pair(redis, serve) -> tuple[tidewire.Server, tidewire.Server]:
    """Two servers of one cluster."""
    servers = (
        serve(broker=redis.url, broker_wait_ms=20_000, **HISTORY),
        serve(broker=redis.url, broker_wait_ms=20_000, **HISTORY),
    )
    for server in servers:
        until(lambda server=server: is_connected(server))
    return servers


async def turns_of_the_loop() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


def test_the_loop_runs_while_the_broker_does_not_answer(redis, pair) -> None:
    one, other = pair

    async def main() -> None:
        with redis.paused():
            publishing = asyncio.create_task(one.async_publish("news.a", {"n": 1}, type="article", id="x"))
            many = asyncio.create_task(one.async_publish_many("news.b", [1, 2, 3]))
            reading = asyncio.create_task(other.async_history("news.c"))
            telling = asyncio.create_task(one.async_subscribe_user("ann", "news.a"))
            waiting = (publishing, many, reading, telling)
            # Each of them has begun and has no answer; a call that kept the loop would be done after its turn.
            await turns_of_the_loop()
            assert not any(task.done() for task in waiting)
        place = await publishing
        assert (place.offset, place.duplicate) == (1, False)
        assert await many == 3
        assert (await reading).publications == []
        await telling
        again = await other.async_publish("news.a", {"n": 1}, id="x")
        assert (again.duplicate, again.offset, again.epoch) == (True, 1, place.epoch)
        page = await other.async_history("news.b", newest_first=True, limit=2)
        assert [kept.payload for kept in page.publications] == [3, 2]
        assert await other.async_forget_history("news.b")
        assert (await other.async_history("news.b")).publications == []

    asyncio.run(main())


def test_other_threads_run_while_a_blocking_call_waits_for_the_broker(redis, pair) -> None:
    one, _ = pair
    calls = (
        lambda: one.publish("news.a", 1),
        lambda: one.publish_many("news.b", [1, 2]),
        lambda: one.history("news.c"),
        lambda: one.subscribe_user("ann", "news.a"),
    )
    begun, done = [], []

    def run(call) -> None:
        begun.append(call)
        done.append(call())

    with redis.paused():
        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        until(lambda: len(begun) == len(calls))
        # A call that kept the interpreter would let this thread run on only when it is done.
        for _ in range(1000):
            time.sleep(0)
        assert done == []
    for thread in threads:
        thread.join()
    assert len(done) == len(calls)


def test_publications_of_many_tasks_reach_subscribers_of_the_other_server(pair) -> None:
    one, other = pair

    async def main() -> None:
        tasks = [one.async_publish("news.a", number, type="n") for number in range(200)]
        places = await asyncio.gather(*tasks)
        assert sorted(place.offset for place in places) == list(range(1, 201))

    with PlainClient(other.url) as client:
        client.subscribe("news.a")
        asyncio.run(main())
        assert sorted(client.until("n")["p"] for _ in range(200)) == list(range(200))


def test_a_cancelled_publication_leaves_nothing_behind(redis, pair) -> None:
    one, _ = pair

    async def main() -> None:
        with redis.paused():
            publishing = asyncio.create_task(one.async_publish("news.a", 1))
            await asyncio.sleep(0)
            publishing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await publishing
        place = await one.async_publish("news.a", 2)
        assert place.offset in (1, 2)

    asyncio.run(main())
    # Another loop publishes, too.
    asyncio.run(main_of(one))


async def main_of(server: tidewire.Server) -> None:
    assert (await server.async_publish("news.z", 1)).offset == 1


def test_a_broker_that_is_gone_is_an_error(redis, serve) -> None:
    server = serve(broker=redis.url, broker_wait_ms=100, **HISTORY)
    until(lambda: is_connected(server))
    redis.stop()

    async def main() -> str:
        with pytest.raises(tidewire.TidewireError) as refused:
            await server.async_publish("news.a", 1)
        return refused.value.code

    assert asyncio.run(main()) in ("BROKER_UNAVAILABLE", "PUBLISH_UNKNOWN")


def test_the_awaitable_forms_work_without_a_broker(serve) -> None:
    server = serve(**HISTORY)

    async def main() -> None:
        assert (await server.async_publish("news.a", 1, id="x")).offset == 1
        assert await server.async_publish_many("news.a", [2, 3]) == 2
        assert [kept.payload for kept in (await server.async_history("news.a")).publications] == [1, 2, 3]
        assert (await server.async_presence("news.a")).users == 0
        assert await server.async_list_topics() == []
        assert await server.async_list_connections() == []
        await server.async_disconnect_user("nobody")
        await server.async_unsubscribe_user("nobody", "news.a")
        with pytest.raises(tidewire.TidewireError):
            await server.async_publish("news.*", 1)

    asyncio.run(main())


def test_a_connection_of_the_other_server_is_ended(pair) -> None:
    one, other = pair
    with PlainClient(other.url) as client:
        (info,) = other.list_connections()
        assert info.connection.startswith("n")
        one.disconnect(info.connection, 4000, "elsewhere")
        with pytest.raises(ConnectionClosed) as ended:
            client.hear()
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 4000
