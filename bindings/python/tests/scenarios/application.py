"""The application's side of a scenario on asyncio: an interpreter of its calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import tidewire
from conftest import DEADLINE_S

from .server import Seen

CONDITIONS = ("as", "gives", "answer", "failed", "has")


class Application:
    """Makes the calls of a scenario, and looks at what they give."""

    def __init__(self, urls: list[str], options: dict[str, Any], seen: Seen) -> None:
        self._urls = urls
        self._options = options
        self._seen = seen
        self._client: tidewire.Client | None = None
        self._calls: dict[str, asyncio.Task[Any]] = {}
        self._receiving = asyncio.Lock()
        self._received: list[tidewire.ClientMessage] = []

    @property
    def client(self) -> tidewire.Client:
        assert self._client is not None, "the client was started"
        return self._client

    async def step(self, step: dict[str, Any]) -> None:
        """Does one step."""
        if "done" in step:
            await check(step, self._calls.pop(step["done"]))
            return
        if "cancel" in step:
            call = self._calls.pop(step["cancel"])
            call.cancel()
            await asyncio.wait([call])
            return
        if await self._look(step):
            return
        names = [name for name in step if name not in CONDITIONS]
        assert len(names) == 1, f"one thing at a time: {step}"
        call = asyncio.create_task(self._call(names[0], step[names[0]], step.get("has", {})))
        if "as" in step:
            self._calls[step["as"]] = call
            # It has begun before the next step does.
            await asyncio.sleep(0)
            return
        await check(step, call)

    async def end(self) -> None:
        """Ends the client, and every call with it."""
        if self._client is not None:
            await asyncio.wait_for(self._client.close(), DEADLINE_S)
        if self._calls:
            _, left = await asyncio.wait(self._calls.values(), timeout=DEADLINE_S)
            assert not left, f"calls that outlive their client: {left}"
            for call in self._calls.values():
                error = call.exception()
                assert error is None or isinstance(error, tidewire.TidewireError), error

    async def _look(self, step: dict[str, Any]) -> bool:
        if "state" in step:
            await until(step, lambda: self.client.state == step["state"])
        elif "read" in step:
            await until(step, lambda: step["read"] in self._seen.types)
        elif "never_read" in step:
            assert step["never_read"] not in self._seen.types
        elif "connections" in step:
            await until(step, lambda: self._seen.connections >= step["connections"])
        else:
            return False
        return True

    async def _call(self, name: str, value: Any, has: dict[str, Any]) -> Any:
        if name in ("connect", "start"):
            self._client = tidewire.Client(self._urls, wait=name == "connect", **self._options)
            return await self._client.open()
        client = self.client
        if name == "ready":
            return await client.ready()
        if name == "send":
            return await client.send(value[1], type=value[0])
        if name == "request":
            return await client.request(value[1], type=value[0])
        if name == "publish":
            return await client.publish(value[0], value[2], type=value[1])
        if name == "subscribe":
            try:
                await client.subscribe(value)
            except tidewire.SubscriptionError as error:
                return error.failed
            return []
        if name == "enqueue":
            return await client.send_later(value[1], type=value[0])
        if name == "send_acknowledged":
            return await client.send_acknowledged(value[1], type=value[0])
        if name == "ping":
            return await client.ping()
        if name == "receive":
            return await self._receive(lambda message: message.kind == "message" and message.type == value)
        if name == "event":
            message = await self._receive(lambda message: message.kind == value)
            compare(message.payload, has)
            return None
        assert name == "close", f"no application does {name}"
        return await client.close(*value)

    async def _receive(self, wanted: Callable[[tidewire.ClientMessage], bool]) -> tidewire.ClientMessage:
        async with self._receiving:
            while True:
                while self._received:
                    message = self._received.pop(0)
                    if wanted(message):
                        return message
                batch = await self.client._next_batch()
                if batch is None:
                    raise tidewire.StoppedError("the client is closed", code="CLOSED")
                self._received += batch


async def check(step: dict[str, Any], call: asyncio.Task[Any]) -> None:
    """Holds what a call gave against what it should give."""
    done, _ = await asyncio.wait([call], timeout=DEADLINE_S)
    assert done, f"{step} never ends"
    expected = step.get("connect", step.get("gives", "ok"))
    error = call.exception()
    if error is not None and not isinstance(error, tidewire.TidewireError):
        raise error
    code = "ok" if error is None else error.code
    assert code in ([expected] if isinstance(expected, str) else expected), f"{step} gave {error!r}"
    if error is None:
        for name in ("answer", "failed"):
            if name in step:
                assert call.result() == step[name], step


def compare(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    """Whether the fields are what is expected: of a text it is enough to be contained, `[low, high]` is a range."""
    for name, value in expected.items():
        found = fields[name]
        if isinstance(value, str):
            assert value in found, fields
        elif isinstance(value, list) and isinstance(found, (int, float)):
            assert value[0] <= found <= value[1], fields
        else:
            assert found == value, fields


async def until(step: object, condition: Callable[[], bool]) -> None:
    """Waits for something that has to become true."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {step}"
        await asyncio.sleep(0.002)
