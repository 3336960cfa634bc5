"""Handlers that raise or misuse the task that they run in: `serve` continues, and the next message is answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import tidewire
from async_client import AsyncClient, eventually, soon
from async_support import LOOPS, run_on, serving
from websockets.exceptions import InvalidStatus


class SpeechlessError(tidewire.CallError):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class OwnInterrupt(BaseException):
    """Nothing that anybody expects."""


def coded(code: Any) -> tidewire.CallError:
    error = tidewire.CallError("words", code="A_CODE")
    error.code = code
    return error


RAISED: dict[str, Callable[[], BaseException]] = {
    "a surrogate in the text": lambda: tidewire.CallError("of a client: \udcff", code="REFUSED"),
    "a surrogate in the code": lambda: coded("\ud800"),
    "a code that is a number": lambda: coded(7),
    "a code that is nothing": lambda: coded(None),
    "an empty code": lambda: coded(""),
    "a code without an end": lambda: coded("X" * 10_000),
    "words that cannot be had": lambda: SpeechlessError("?", code="REFUSED"),
    "an exception of its own kind": OwnInterrupt,
    "the end of the program": lambda: SystemExit(3),
    "the end of a generator": GeneratorExit,
    "a cancellation": asyncio.CancelledError,
    "an error with an error in it": lambda: ExceptionWithContext(),
}


class ExceptionWithContext(Exception):
    def __init__(self) -> None:
        super().__init__("\udcff")
        self.__cause__ = SpeechlessError("?", code="REFUSED")


@pytest.fixture(params=sorted(LOOPS))
def run(request):
    return lambda main: run_on(request.param, main)


@pytest.mark.parametrize("name", sorted(RAISED))
def test_whatever_a_handler_raises_the_next_request_is_answered(serve, run, caplog, name) -> None:
    server = serve()
    raised = RAISED[name]

    @server.request("sync")
    def sync(message: tidewire.Message) -> None:
        raise raised()

    @server.request("at once")
    async def at_once(message: tidewire.Message) -> None:
        raise raised()

    @server.request("later")
    async def later(message: tidewire.Message) -> None:
        await asyncio.sleep(0)
        raise raised()

    @server.on("event")
    async def event(message: tidewire.Message) -> None:
        await asyncio.sleep(0)
        raise raised()

    @server.request("fine")
    async def fine(message: tidewire.Message) -> int:
        return 17

    async def main() -> None:
        async with serving(server) as task, AsyncClient(server.url) as client:
            for type in ("sync", "at once", "later"):
                answer = await client.request(type)
                assert answer["error"]["code"] == "HANDLER_ERROR", answer
                assert (await client.request("fine"))["payload"] == 17
            await client.say("event", cid="1")
            assert (await client.until("error"))["p"]["code"] == "HANDLER_ERROR"
            # Other connections are served, and new ones accepted.
            async with AsyncClient(server.url) as another:
                assert (await another.request("fine"))["payload"] == 17
            assert not task.done()

    run(main())
    assert server.handler_errors == 4
    assert sum("failed" in record.msg or record.exc_info is not None for record in caplog.records) >= 4


def test_a_handler_that_cancels_its_own_task_cancels_itself_alone(serve, run) -> None:
    server = serve()

    def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    @server.request("sync")
    def sync(message: tidewire.Message) -> int:
        cancel()
        return 1

    @server.request("before it waits")
    async def before(message: tidewire.Message) -> int:
        cancel()
        await asyncio.sleep(0)
        return 2

    @server.request("after it waited")
    async def after(message: tidewire.Message) -> int:
        await asyncio.sleep(0)
        cancel()
        return 3

    @server.request("twice, and goes on")
    async def twice(message: tidewire.Message) -> int:
        for _ in range(2):
            cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        return 4

    @server.request("fine")
    async def fine(message: tidewire.Message) -> int:
        await asyncio.sleep(0)
        return 17

    async def main() -> None:
        async with serving(server) as task, AsyncClient(server.url) as client:
            for _ in range(20):
                for type in ("sync", "before it waits", "after it waited", "twice, and goes on"):
                    answer = await client.request(type)
                    assert "payload" in answer or answer["error"]["code"] == "HANDLER_ERROR"
                    assert (await client.request("fine"))["payload"] == 17
            assert not task.done()

    run(main())


def test_a_server_that_nobody_serves_lets_nobody_in_until_somebody_does(serve, run) -> None:
    server = serve()

    @server.request("fine")
    def fine(message: tidewire.Message) -> int:
        return 17

    async def refused() -> bool:
        try:
            async with AsyncClient(server.url):
                return False
        except InvalidStatus as error:
            return error.response.status_code == 503

    async def main() -> None:
        first = asyncio.create_task(server.serve())
        async with AsyncClient(server.url) as client:
            assert (await client.request("fine"))["payload"] == 17
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await soon(first)
            assert await refused()
            async with serving(server):
                # The earlier connections are served again, and new ones accepted.
                assert (await client.request("fine"))["payload"] == 17
                async with AsyncClient(server.url) as another:
                    assert (await another.request("fine"))["payload"] == 17

    run(main())


def test_a_server_goes_on_when_the_loop_that_served_it_was_closed(serve) -> None:
    server = serve()
    kept: list[Any] = []

    @server.request("fine")
    async def fine(message: tidewire.Message) -> int:
        return 17

    for name in sorted(LOOPS) * 2:
        loop = LOOPS[name]()

        async def begin() -> None:
            kept.append(asyncio.ensure_future(server.serve()))
            async with AsyncClient(server.url) as client:
                assert (await client.request("fine"))["payload"] == 17

        # Closed in the middle, with the task on it.
        loop.run_until_complete(begin())
        loop.close()

    async def main() -> None:
        async with serving(server), AsyncClient(server.url) as client:
            assert (await client.request("fine"))["payload"] == 17
            await eventually(lambda: server.handler_statistics().handled >= 5)

    run_on("asyncio", main())
