"""A connection of the tests: `tidewire.connect`, as an application uses it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import tidewire
from tidewire import ConnectionClosedError, jwt

from .payload import Payload
from .plan import Target

TOKEN_TTL_S = 24 * 3600
FIRST_S = 1.0
PUBLISHING_MAX = 256


class Received(NamedTuple):
    """A message for the application."""

    type: str
    payload: Any


class Session:
    """A client that is connected, and does not come back when its connection is lost: that is a figure of the test."""

    def __init__(self, client: tidewire.Client) -> None:
        self._client = client
        self._batches = client.batches()
        self._next: asyncio.Future[Any] | None = None
        self._held: list[Received] = []
        self._publishing: set[asyncio.Task[Any]] = set()

    async def server_version(self) -> str | None:
        """What the server says of its version when a connection begins."""
        async for message in self._batch(FIRST_S):
            if message.kind == "connected":
                version = message.payload.get("server_version")
                return None if version is None else str(version)
            self._hear(message, self._held)
        return None

    async def send(self, type: str, payload: Payload) -> None:
        """Puts a message on its way; waits while there is no room."""
        await self._client.send(payload, type=type)

    async def ping(self) -> None:
        """Returns when the server has read everything that was sent before."""
        await self._client.ping()

    async def receive(self) -> list[Received]:
        """What has come for the application, at least one message."""
        received, self._held = self._held, []
        while not received:
            async for message in self._batch():
                self._hear(message, received)
        return received

    async def _batch(self, patience_s: float | None = None) -> AsyncIterator[tidewire.ClientMessage]:
        """The next batch; who gives up waiting leaves it for the next one who asks."""
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._batches))
        await asyncio.wait([self._next], timeout=patience_s)
        if self._next.done():
            batch, self._next = self._next, None
            for message in batch.result():
                yield message

    def _hear(self, message: tidewire.ClientMessage, received: list[Received]) -> None:
        kind = message.kind
        if kind == "message":
            received.append(Received(message.type or "", message.payload))
        elif kind == "error":
            received.append(Received("error", message.payload))
        elif kind == "disconnected":
            raise ConnectionClosedError(str(message.payload.get("reason")))

    async def subscribe(self, topic: str) -> None:
        """Subscribes to a topic."""
        subscription = await self._client.subscribe(topic)
        if topic in subscription.failed:
            raise tidewire.CallError(
                f"the server does not let clients subscribe to {topic}", code="TOPIC_FORBIDDEN"
            )

    async def publish(self, topic: str, type: str, payload: Payload) -> None:
        """Puts a publication on its way, and waits while too many have not been taken."""
        if len(self._publishing) >= PUBLISHING_MAX:
            done, self._publishing = await asyncio.wait(self._publishing, return_when=asyncio.FIRST_COMPLETED)
            for publication in done:
                publication.result()
        self._publishing.add(asyncio.ensure_future(self._client.publish(topic, payload, type=type)))

    async def published(self) -> None:
        """Returns when all publications have been taken."""
        await asyncio.gather(*self._publishing)
        self._publishing.clear()

    async def close(self) -> None:
        """Ends the connection."""
        if self._next is not None:
            self._next.cancel()
        await self._client.close()


async def open_session(target: Target, number: int) -> Session:
    """A connection that is ready. `number` names its user, if there is a secret to sign a token with."""
    options: dict[str, Any] = {"format": target.format, "reconnect": False}
    if target.jwt_secret is not None:
        claims = {"sub": f"bench-user-{number}", "exp": int(time.time()) + TOKEN_TTL_S}
        options["token"] = jwt.encode(claims, target.jwt_secret)
    elif target.token is not None:
        options["token"] = target.token
    if target.cookie_name is not None:
        options.update(token_placement="cookie", token_name=target.cookie_name)
    if target.deflate:
        options["compression"] = "deflate"
    if target.encrypt:
        options["encryption"] = "on"
    if target.ca is not None:
        options["tls_ca_file"] = target.ca
    return Session(await tidewire.connect(target.url, **options))
