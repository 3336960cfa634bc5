"""A client behind a proxy that breaks its connections, and the checks of its results."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from typing import Any

import tidewire
from conftest import DEADLINE_S
from scenarios.proxy import Proxy

ROUNDS = 100
"""Rounds behind a proxy that may change nothing that anybody notices."""

ROUNDS_MIN = 20
"""Rounds however soon the proxy is calm."""

OPTIONS: dict[str, Any] = {
    "wait": False,
    "offline_queue": ":memory:",
    "connect_timeout_ms": 2_000,
    "idle_timeout_ms": 2_000,
    "ping_interval_ms": 250,
    "reconnect_base_ms": 10,
    "reconnect_max_ms": 50,
    "breaker_failures_max": 0,
}
"""Notices silence soon, and comes back fast."""

SERVER_OPTIONS: dict[str, Any] = {"history": {"kept.>": 1_000}}


class Ledger:
    """The messages of a server's application, in order."""

    def __init__(self, server: tidewire.Server) -> None:
        self.sent: list[int] = []
        self.acknowledged: list[int] = []
        self.requested: list[int] = []
        self._server = server
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for batch in self._server.batches():
            for message in batch:
                # What was corrupted on its way need not be a number, or JSON.
                with contextlib.suppress(tidewire.TidewireError, TypeError):
                    self._add(message)

    def _add(self, message: tidewire.Message) -> None:
        if message.kind == "request":
            self.requested.append(message.payload)
            message.reply(2 * message.payload)
        elif message.kind == "message" and message.type == "sent":
            self.sent.append(message.payload)
        elif message.kind == "message" and message.type == "acknowledged":
            self.acknowledged.append(message.payload)


class Work:
    """The work of one client, until the proxy has carried out its plans, or for a while."""

    def __init__(
        self, client: tidewire.Client, server: tidewire.Server, ledger: Ledger, proxy: Proxy
    ) -> None:
        self._client = client
        self._server = server
        self._ledger = ledger
        self._proxy = proxy
        self._from_server = 0
        self._acknowledged: list[asyncio.Task[None]] = []
        self._answered: list[int] = []
        self._published: list[int] = []
        self._received: dict[str | None, list[Any]] = {"kept.server": [], "kept.own": []}
        self._wrong: list[Any] = []

    async def run(self, *, keeps_promises: bool) -> None:
        """`keeps_promises` is for proxies that change no byte without its being noticed."""
        client = self._client
        await client.open()
        receiving = asyncio.create_task(self._receive())
        is_subscribed = False
        for number in itertools.count():
            is_over = self._proxy.is_calm
            if not keeps_promises:
                # A byte that nobody misses ends no connection.
                is_over = is_over or number == ROUNDS or client.state == "closed"
            if is_over and number >= ROUNDS_MIN:
                break
            if not is_subscribed:
                with contextlib.suppress(tidewire.TidewireError):
                    await client.subscribe(["kept.server", "kept.own"])
                    is_subscribed = True
            if is_subscribed:
                await self._round(number)
        if keeps_promises:
            await self._check()
        await asyncio.wait_for(client.close(), DEADLINE_S)
        assert client.state == "closed"
        await asyncio.wait_for(asyncio.wait([receiving, *self._acknowledged]), DEADLINE_S)
        if keeps_promises:
            receiving.result()
            assert not self._wrong

    async def _round(self, number: int) -> None:
        client = self._client
        self._server.publish("kept.server", self._from_server)
        self._from_server += 1
        self._acknowledged.append(
            asyncio.create_task(client.send_acknowledged(len(self._acknowledged), type="acknowledged"))
        )
        with contextlib.suppress(tidewire.TidewireError):
            await client.send(number, type="sent")
        # What it gives depends on what happens to the connection; that it ends does not.
        with contextlib.suppress(tidewire.TidewireError):
            await client.request(number, type="double")
            self._answered.append(number)
        if number % 4 == 0:
            with contextlib.suppress(tidewire.TidewireError):
                await client.publish("kept.own", number)
                self._published.append(number)

    async def _receive(self) -> None:
        with contextlib.suppress(tidewire.ConnectionClosedError):
            async for batch in self._client.batches():
                for message in batch:
                    topic, payload = None, None
                    with contextlib.suppress(tidewire.TidewireError):
                        topic, payload = message.topic, message.payload
                    if message.kind == "message" and topic in self._received:
                        self._received[topic].append(payload)
                    elif message.kind not in ("connected", "disconnected", "rate_limit_warning"):
                        self._wrong.append((message.kind, payload))

    async def _check(self) -> None:
        """Every promise of `docs/client.md` about messages."""
        await asyncio.wait_for(asyncio.gather(*self._acknowledged), DEADLINE_S)
        received = self._received

        async def everything() -> None:
            while not (  # noqa: ASYNC110
                len(received["kept.server"]) >= self._from_server
                and len(received["kept.own"]) >= len(self._published)
            ):
                await asyncio.sleep(0.002)

        await asyncio.wait_for(everything(), DEADLINE_S)
        # What is behind them shows that nothing comes twice.
        while True:
            with contextlib.suppress(tidewire.TidewireError):
                await self._client.ping()
                break
            assert self._client.state != "closed"
        ledger = self._ledger
        assert ledger.acknowledged == list(range(len(self._acknowledged)))
        assert received["kept.server"] == list(range(self._from_server))
        for ordered in (ledger.sent, ledger.requested, received["kept.own"]):
            assert ordered == sorted(set(ordered))
        assert set(self._answered) <= set(ledger.requested)
        assert set(self._published) <= set(received["kept.own"])


async def work_behind(
    proxy: Proxy, server: tidewire.Server, url: str, *, keeps_promises: bool, **options: Any
) -> None:
    """Works until the proxy has carried out its plans."""
    ledger = Ledger(server)
    while not proxy.is_calm:
        client = tidewire.connect(url, **OPTIONS | options)
        await Work(client, server, ledger, proxy).run(keeps_promises=keeps_promises)
