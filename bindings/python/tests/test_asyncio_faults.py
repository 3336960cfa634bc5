"""Handlers that raise, block, never return or are cancelled."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
import tidewire
from async_client import DEADLINE_S, AsyncClient, eventually, soon
from async_support import LOOPS, run_on, serving
from websockets.asyncio.client import connect


@pytest.fixture(params=sorted(LOOPS))
def run(request):
    return lambda main: run_on(request.param, main)


def test_an_exception_is_logged_answered_and_counted(serve, run, caplog) -> None:
    server = serve()

    @server.on("sync")
    def sync(message: tidewire.Message) -> None:
        raise ValueError("a secret of the server")

    @server.on("async")
    async def later(message: tidewire.Message) -> None:
        await asyncio.sleep(0)
        raise KeyError("another secret")

    async def main() -> list[dict[str, object]]:
        async with serving(server), AsyncClient(server.url) as client:
            answers = []
            for type in ("sync", "async"):
                await client.say(type, cid=f"of {type}")
                answers.append(await client.until("error"))
            return answers

    answers = run(main())
    assert [answer["cid"] for answer in answers] == ["of sync", "of async"]
    for answer in answers:
        assert answer["c"] == "WSE"
        payload = answer["p"]
        assert payload == {
            "code": "HANDLER_ERROR",
            "message": "the handler failed",
            "recoverable": True,
            "retry_after": None,
        }
    assert (server.handler_errors, server.handler_statistics().handled) == (2, 0)
    records = [record for record in caplog.records if record.exc_info]
    assert [record.exc_info[0] for record in records] == [ValueError, KeyError]
    assert "test_asyncio_faults" in records[0].getMessage()
    assert "sync" in records[0].getMessage()


def test_requests_that_fail(serve, run, caplog) -> None:
    server = serve()

    @server.request("raises")
    async def raises(message: tidewire.Message) -> None:
        raise ZeroDivisionError

    @server.request("refuses")
    async def refuses(message: tidewire.Message) -> None:
        raise tidewire.CallError("not today", code="CLOSED_TODAY")

    @server.request("unsayable")
    async def unsayable(message: tidewire.Message) -> object:
        return object()

    async def main() -> list[dict[str, object]]:
        async with serving(server), AsyncClient(server.url) as client:
            types = ["raises", "refuses", "unsayable", "unknown"]
            return [await client.request(type) for type in types]

    errors = [answer["error"] for answer in run(main())]
    assert [error["code"] for error in errors] == [
        "HANDLER_ERROR",
        "CLOSED_TODAY",
        "HANDLER_ERROR",
        "NOT_FOUND",
    ]
    assert errors[1]["message"] == "not today"
    assert "unknown" in errors[3]["message"]
    statistics = server.handler_statistics()
    assert (statistics.errors, statistics.refused, statistics.unrouted) == (2, 1, 1)
    assert sum(record.exc_info is not None for record in caplog.records) == 2


def test_messages_without_a_handler_are_counted_and_named_once(serve, run, caplog) -> None:
    server = serve()

    async def main() -> None:
        async with serving(server), AsyncClient(server.url) as client:
            for number in range(300):
                await client.say(f"type {number % 150}")
            await eventually(lambda: server.handler_statistics().unrouted == 300)

    run(main())
    named = [record.getMessage() for record in caplog.records if "no handler" in record.getMessage()]
    assert len(named) == len(set(named)) == 100


def test_a_flood_of_errors_does_not_flood_the_log(serve, run, caplog) -> None:
    server = serve()

    @server.on("n")
    def fail(message: tidewire.Message) -> None:
        raise ValueError

    async def main() -> None:
        async with serving(server), AsyncClient(server.url) as client:
            for _ in range(500):
                await client.say("n")
            await eventually(lambda: server.handler_errors == 500)

    run(main())
    one_by_one = sum(record.exc_info is not None for record in caplog.records)
    counted = sum(record.args[1] for record in caplog.records if "more messages" in record.msg)
    assert 10 <= one_by_one < 500
    assert one_by_one + counted == 500


def test_a_handler_that_takes_too_long_is_cancelled(serve, run, caplog) -> None:
    server = serve()
    cleaned = []

    @server.on("forever")
    async def forever(message: tidewire.Message) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(message.payload)

    @server.request("forever")
    async def request(message: tidewire.Message) -> None:
        await asyncio.Event().wait()

    @server.request("quick")
    async def quick(message: tidewire.Message) -> str:
        await asyncio.sleep(0)
        return "done"

    async def main() -> None:
        async with (
            serving(server, handler_timeout_ms=30, handlers_max=1),
            AsyncClient(server.url) as client,
        ):
            await client.say("forever", 1)
            assert (await client.until("error"))["p"]["code"] == "HANDLER_ERROR"
            assert (await client.request("forever"))["error"]["code"] == "HANDLER_ERROR"
            # The slot is free, and the next call does not inherit the cancellation.
            assert await client.request("quick") == {"payload": "done"}

    run(main())
    assert cleaned == [1]
    statistics = server.handler_statistics()
    assert (statistics.timeouts, statistics.errors, statistics.handled) == (2, 2, 1)
    assert "forever" in caplog.text


def test_a_handler_that_never_returns_occupies_its_place_alone(serve, run) -> None:
    server = serve()

    @server.on("forever")
    async def forever(message: tidewire.Message) -> None:
        await asyncio.Event().wait()

    @server.request("quick")
    async def quick(message: tidewire.Message) -> str:
        return "done"

    async def main() -> None:
        async with (
            serving(server, stop_timeout_ms=1),
            AsyncClient(server.url) as client,
            AsyncClient(server.url) as stuck,
        ):
            await stuck.say("forever")
            await eventually(lambda: server.handler_statistics().running == 1)
            for _ in range(10):
                assert await client.request("quick") == {"payload": "done"}

    run(main())
    assert server.handler_statistics().interrupted == 1


def test_a_handler_that_blocks_the_loop_is_named(serve, run, caplog) -> None:
    server = serve()

    @server.request("block")
    def blocks(message: tidewire.Message) -> str:
        deadline = time.monotonic() + DEADLINE_S
        while not any("blocked" in record.msg for record in caplog.records):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return "told"

    async def main() -> None:
        async with serving(server, blocked_warning_ms=20), AsyncClient(server.url) as client:
            assert await client.request("block") == {"payload": "told"}

    run(main())
    text = next(record.getMessage() for record in caplog.records if "blocked" in record.msg)
    assert "blocks" in text
    assert "time.sleep(0.005)" in text
    assert server.handler_statistics().blocked >= 1


def test_a_cancelled_call_inside_a_handler_is_an_error_of_the_handler(serve, run, caplog) -> None:
    server = serve()

    @server.request("cancelled")
    async def cancelled(message: tidewire.Message) -> None:
        task = asyncio.create_task(asyncio.sleep(10))
        await asyncio.sleep(0)
        task.cancel()
        await task

    @server.request("at once")
    def at_once(message: tidewire.Message) -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        async with serving(server), AsyncClient(server.url) as client:
            for type in ("cancelled", "at once", "cancelled"):
                assert (await client.request(type))["error"]["code"] == "HANDLER_ERROR"

    run(main())
    assert server.handler_errors == 3


def test_cancelling_serve_keeps_what_was_not_handled(serve, run, caplog) -> None:
    caplog.set_level(logging.WARNING, logger="tidewire")
    server = serve()
    handled = []

    async def main() -> None:
        go = asyncio.Event()

        @server.on("n")
        async def handle(message: tidewire.Message) -> None:
            await go.wait()
            handled.append(message.payload)

        async with AsyncClient(server.url) as client:
            first = asyncio.create_task(server.serve())
            for number in range(5):
                await client.say("n", number)
            await eventually(lambda: server.handler_statistics().waiting == 4)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await soon(first)
            assert (await client.until("error"))["p"]["message"] == "the handler was interrupted"
            assert server.handler_statistics().interrupted == 1
            go.set()
            async with serving(server):
                await client.say("n", 5)
                await eventually(lambda: len(handled) == 5)

    run(main())
    assert handled == [1, 2, 3, 4, 5]
    (record,) = (record for record in caplog.records if "serve ended" in record.msg)
    assert record.args == (1, 4)


def test_serve_ends_with_the_server(serve, run) -> None:
    server = serve()
    handled = []

    async def main() -> None:
        @server.on("n")
        async def handle(message: tidewire.Message) -> None:
            await asyncio.sleep(0.01)
            handled.append(message.payload)

        async with AsyncClient(server.url) as client:
            for number in range(10):
                await client.say("n", number)
            await eventually(lambda: server.statistics()["messages_delivered"] == 10)
        serving = asyncio.create_task(server.serve())
        await asyncio.to_thread(server.stop)
        await soon(serving)

    run(main())
    # Messages from before the end are handled before the end.
    assert handled == list(range(10))


def test_a_server_of_plain_messages_takes_any_bytes(serve, run) -> None:
    server = serve(protocol="raw")
    rest = []

    @server.on("typed")
    def typed(message: tidewire.Message) -> None:
        message.connection.send_raw("typed")

    @server.on("*")
    def everything(message: tidewire.Message) -> None:
        rest.append(bytes(message.data))
        raise ValueError("not told to a client that does not speak the protocol")

    async def main() -> str | bytes:
        sent = ["", "[", '{"t":', b"\x00\xff", "[" * 1000, '{"t":5}', '{"t":"other"}']
        async with serving(server), connect(server.url, proxy=None) as client:
            for data in sent:
                await client.send(data)
            await client.send('{"t":"typed"}')
            answer = await soon(client.recv())
            while '"t":"error"' in str(answer):
                answer = await soon(client.recv())
            assert rest == [data.encode() if isinstance(data, str) else data for data in sent]
            return answer

    assert run(main()) == "typed"
    assert server.handler_errors == 7


def test_a_handler_that_stops_the_server(serve, run) -> None:
    server = serve()

    @server.on("stop")
    async def stop(message: tidewire.Message) -> None:
        await asyncio.to_thread(server.stop)

    async def main() -> None:
        task = asyncio.create_task(server.serve())
        async with AsyncClient(server.url) as client:
            await client.say("stop")
            await soon(task)

    run(main())
    assert server.handler_statistics().handled == 1


def test_serving_twice_is_refused(serve, run) -> None:
    server = serve()

    async def main() -> None:
        async with serving(server):
            await asyncio.sleep(0)
            with pytest.raises(tidewire.TidewireError) as refused:
                await server.serve()
            assert refused.value.code == "SERVING"

    run(main())


def test_limits_that_cannot_be(serve) -> None:
    server = serve()
    with pytest.raises(tidewire.InvalidArgumentError, match="handlers_max"):
        asyncio.run(server.serve(handlers_max=0))
    with pytest.raises(tidewire.InvalidArgumentError, match="waiting_max"):
        asyncio.run(server.serve(waiting_max=-1))
