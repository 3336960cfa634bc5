"""A connection of the tests: `tidewire.connect`, as an application uses it."""

from __future__ import annotations

import asyncio
import contextlib
import time
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
    """A client that is connected, and does not reconnect when its connection is lost: that is a figure of the test."""

    def __init__(self, client: tidewire.Client) -> None:
        self._client = client
        self._batches = client.batches()
        self._held: list[Received] = []
        self._publishing: set[asyncio.Task[Any]] = set()

    async def server_version(self) -> str | None:
        """The version that the server names when a connection begins."""
        version = None
        with contextlib.suppress(asyncio.TimeoutError):
            for message in await asyncio.wait_for(anext(self._batches), FIRST_S):
                if message.kind == "connected":
                    version = message.payload.get("server_version")
                else:
                    self._hear(message, self._held)
        return None if version is None else str(version)

    async def send(self, type: str, payload: Payload) -> None:
        """Sends a message; waits while there is no room."""
        await self._client.send(payload, type=type)

    async def ping(self) -> None:
        """Returns when the server has read everything that was sent before."""
        await self._client.ping()

    async def receive(self) -> list[Received]:
        """The received messages of the application, at least one."""
        received, self._held = self._held, []
        while not received:
            for message in await anext(self._batches):
                self._hear(message, received)
        return received

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
        await self._client.subscribe(topic)

    async def publish(self, topic: str, type: str, payload: Payload) -> None:
        """Sends a publication, and waits while too many are unconfirmed."""
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
