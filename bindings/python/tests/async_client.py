"""A client that knows nothing of Tidewire, on the event loop of the test: the `websockets` package."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

DEADLINE_S = 30.0


class AsyncClient:
    """Says and hears JSON, and has waited for the server's greeting."""

    def __init__(self, url: str, **options: Any) -> None:
        self._connection = connect(url, **{"proxy": None, "max_size": None, "max_queue": None, **options})
        self._numbers = itertools.count(1)
        self.socket: ClientConnection

    async def __aenter__(self) -> AsyncClient:
        self.socket = await self._connection.__aenter__()
        self.ready = await self.until("server_ready")
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._connection.__aexit__(*error)

    async def say(self, type: str, payload: Any = None, **fields: Any) -> None:
        await self.socket.send(json.dumps({"t": type, "p": payload, **fields}))

    async def hear(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await asyncio.wait_for(self.socket.recv(), DEADLINE_S))
        return message

    async def until(self, type: str) -> dict[str, Any]:
        """The next message of this type; others are passed over."""
        while True:
            message = await self.hear()
            if message["t"] == type:
                return message

    async def subscribe(self, *topics: str) -> dict[str, Any]:
        await self.say("subscription_update", {"action": "subscribe", "topics": topics})
        answer: dict[str, Any] = (await self.until("subscription_update"))["p"]
        return answer

    async def request(self, type: str, payload: Any = None) -> dict[str, Any]:
        number = str(next(self._numbers))
        await self.say("call_request", {"type": type, "payload": payload}, cid=number)
        answer = await self.until("call_response")
        assert answer["cid"] == number
        result: dict[str, Any] = answer["p"]
        return result


async def soon(awaitable: Awaitable[Any]) -> Any:
    """Waits for something that has to happen."""
    return await asyncio.wait_for(awaitable, DEADLINE_S)


async def eventually(condition: Callable[[], Any]) -> Any:
    """Waits for something that has to become true, and lets everything else run meanwhile."""

    async def look() -> Any:
        while not (value := condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        return value

    return await soon(look())
