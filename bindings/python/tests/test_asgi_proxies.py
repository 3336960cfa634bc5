"""The relay of an ASGI application between proxies that spoil connections: what was promised holds through it, too."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import tidewire
import uvicorn
from async_support import run_on
from conftest import DEADLINE_S, until
from proxied import SERVER_OPTIONS, work_behind
from scenarios.proxy import Proxy, plan
from tidewire.asgi import WebSocketEndpoint

Serve = Callable[..., tidewire.Server]


class Elsewhere(NamedTuple):
    """An engine at another place, which the relay takes for its own."""

    url: str

    @property
    def _doorkeeper(self) -> None:
        """Nobody decides about its clients."""

    def _adopt_relayed(self, *_: object) -> int:
        where = urlsplit(self.url)
        assert where.hostname
        assert where.port
        return socket.create_connection((where.hostname, where.port)).detach()


@pytest.fixture
def relay() -> Iterator[Callable[[str], int]]:
    """Starts a relay to an address, under uvicorn on a thread of its own; its port."""
    running = []

    def start(url: str) -> int:
        endpoint = WebSocketEndpoint(Elsewhere(url), opening_timeout_ms=2_000)  # type: ignore[arg-type]
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(endpoint, lifespan="off", log_level="critical")
        asgi = uvicorn.Server(config)
        thread = threading.Thread(target=asgi.run, args=([listener],), daemon=True)
        thread.start()
        running.append((asgi, thread))
        until(lambda: asgi.started)
        port: int = listener.getsockname()[1]
        return port

    yield start
    for asgi, thread in running:
        asgi.should_exit = True
        thread.join(DEADLINE_S)


@pytest.mark.parametrize("seed", [31, 32])
@pytest.mark.parametrize("place", ["before the relay", "behind the relay"])
def test_what_was_promised_holds(serve: Serve, relay: Callable[[str], int], place: str, seed: int) -> None:
    server = serve(**SERVER_OPTIONS)
    plans = [plan(seed, number, ["cut", "stall", "half_close"]) for number in range(12)]
    if place == "before the relay":
        proxy = Proxy(relay(server.url), plans)
        port = proxy.port
    else:
        proxy = Proxy(server.port, plans)
        port = relay(f"ws://127.0.0.1:{proxy.port}/ws")
    work = work_behind(proxy, server, f"ws://127.0.0.1:{port}/ws", keeps_promises=True)
    try:
        run_on("uvloop", asyncio.wait_for(work, 8 * DEADLINE_S))
    finally:
        proxy.end()
    # Nothing of the connections that were spoilt is left in the engine.
    until(lambda: server.connections == 0)


class Engine:
    """Writes the same bytes to everybody, and then does one thing."""

    def __init__(self, answer: bytes, end: str) -> None:
        self._answer = answer
        self._end = end
        self._held: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Elsewhere:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return Elsewhere(f"ws://127.0.0.1:{port}/ws")

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._held:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        await writer.drain()
        if self._end == "reset":
            # Closed with something unread, as a process that was killed does it.
            options = (1).to_bytes(4, "little") + bytes(4)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, options)
            writer.transport.abort()
        elif self._end == "closed":
            writer.close()
        else:
            self._held.append(writer)


@pytest.mark.parametrize("end", ["closed", "reset", "stalled"])
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 101 Swi", b"nothing of HTTP\r\n\r\n", b"\0" * 100_000])
def test_an_engine_that_does_not_answer_is_a_refusal_to_come_back_from(answer: bytes, end: str) -> None:
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        said.append(message)

    scope: dict[str, Any] = {
        "type": "websocket",
        "headers": [(b"host", b"a")],
        "extensions": {"websocket.http.response": {}},
    }

    async def main() -> None:
        async with Engine(answer, end) as engine:
            endpoint = WebSocketEndpoint(engine, opening_timeout_ms=50)  # type: ignore[arg-type]
            await asyncio.wait_for(endpoint(scope, receive, send), DEADLINE_S)

    run_on("asyncio", main())
    start, body = said
    assert start["status"] in (502, 503)
    assert body["body"]


def test_a_relay_that_is_cancelled_leaves_nothing(serve: Serve) -> None:
    server = serve()
    stages = ["before it connects", "while it opens", "while it relays"]

    async def one(stage: str) -> None:
        reached = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if stage == "before it connects":
                reached.set()
                await asyncio.sleep(DEADLINE_S)
            if reached.is_set():
                await asyncio.sleep(DEADLINE_S)
            if stage == "while it opens":
                reached.set()
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            reached.set()

        scope: dict[str, Any] = {"type": "websocket", "headers": [(b"host", b"a")]}
        async with Engine(b"", "stalled") as engine:
            to = engine if stage == "while it opens" else server
            relaying = asyncio.create_task(WebSocketEndpoint(to)(scope, receive, send))  # type: ignore[arg-type]
            await asyncio.wait_for(reached.wait(), DEADLINE_S)
            await asyncio.sleep(0.01)
            relaying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(relaying, DEADLINE_S)

    async def main() -> None:
        for stage in stages:
            await one(stage)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            for stage in stages:
                await one(stage)
        # This one, and the one that limits its time.
        while len(os.listdir("/proc/self/fd")) > before or len(asyncio.all_tasks()) > 2:
            gc.collect()
            await asyncio.sleep(0.01)

    run_on("asyncio", asyncio.wait_for(main(), 4 * DEADLINE_S))
    until(lambda: server.connections == 0)
