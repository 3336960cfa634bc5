"""A connection of the tests: `tidewire.connect`, as an application uses it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import tidewire
from tidewire import ConnectionClosedError

from .payload import Payload

FIRST_S = 1.0
PUBLISHING_MAX = 256


@dataclass(frozen=True)
class Terms:
    """What every connection of a test agrees to."""

    zero_clock_ns: int
    url: str
    layer: str
    seed: int
    cookie_name: str | None
    #: Addresses to connect from, in turn.
    sources: list[str]
    #: A file with the authorities to trust.
    ca: str | None
    connect_timeout_s: float
    pong_timeout_s: float
    barrier_timeout_s: float
    close_timeout_s: float


class Received(NamedTuple):
    """A message for the application."""

    type: str
    payload: Any


class Session:
    """A client that is connected, and does not reconnect when its connection is lost: that is a figure of the test."""

    def __init__(self, client: tidewire.Client, number: int) -> None:
        self.number = number
        self._client = client
        self._batches = client.batches()
        self._held: list[Received] = []
        self._publishing: set[asyncio.Task[Any]] = set()

    @property
    def is_open(self) -> bool:
        """Whether its connection lives, as far as is known."""
        return self._client.state == "connected"

    async def greeting(self) -> dict[str, Any]:
        """What the client says about a connection when it begins; to be asked once, before anything is received."""
        greeting: dict[str, Any] = {}
        with contextlib.suppress(asyncio.TimeoutError):
            for message in await asyncio.wait_for(anext(self._batches), FIRST_S):
                if message.kind == "connected":
                    greeting = message.payload
                else:
                    self._hear(message, self._held)
        return greeting

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


async def open_session(terms: Terms, number: int, token: str | None, encoding: str) -> Session:
    """A connection that is ready."""
    # The client compresses what has 1,024 bytes and more, by zlib and by permessage-deflate.
    layers = {"format": "json", "compression": "zlib"} if encoding == "zlib" else {"format": encoding}
    options: dict[str, Any] = {**layers, "reconnect": False}
    if terms.sources:
        options["source_address"] = terms.sources[number % len(terms.sources)]
    if token is not None:
        options["token"] = token
    if terms.cookie_name is not None:
        options.update(token_placement="cookie", token_name=terms.cookie_name)
    if terms.layer == "deflate":
        options["compression"] = "deflate"
    if terms.layer == "encryption":
        options["encryption"] = "on"
    if terms.ca is not None:
        options["tls_ca_file"] = terms.ca
    client = await asyncio.wait_for(tidewire.connect(terms.url, **options).open(), terms.connect_timeout_s)
    return Session(client, number)
