"""The lines between a worker and its controller."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import orjson

#: A controller that has said nothing for so long is gone.
SILENCE_MAX_S = 10.0
LINE_BYTES_MAX = 256 * 1024 * 1024

Word = dict[str, Any]


class Link:
    """Standard input and output. What is heard at any time has a handler; orders are carried out one by one."""

    def __init__(self, at_once: dict[str, Callable[[Word], None]]) -> None:
        self._at_once = {"clock": self._tell_clock, **at_once}
        self._heard_s = time.monotonic()
        #: What was said about the newest order: `stop` or `abandon`.
        self.wish: str | None = None
        self._out = os.dup(1)
        # What a library prints must not look like a word.
        os.dup2(2, 1)

    def say(self, kind: str, **figures: Any) -> None:
        """Writes a line."""
        line = memoryview(orjson.dumps({"say": kind, **figures}) + b"\n")
        try:
            while line:
                line = line[os.write(self._out, line) :]
        except OSError:
            # Nobody is there to work for.
            os._exit(1)

    async def serve(self, obey: Callable[[str, Word], Coroutine[Any, Any, None]]) -> None:
        """Carries out the orders until the controller is gone."""
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        orders: asyncio.Queue[Word] = asyncio.Queue()
        hearing = asyncio.create_task(self._hear(reader, orders))
        self._end_in_silence()
        try:
            while True:
                order = await orders.get()
                await obey(order.pop("do"), order)
        except Exception as error:
            self._fail(error)
        finally:
            hearing.cancel()

    async def _hear(self, reader: asyncio.StreamReader, orders: asyncio.Queue[Word]) -> None:
        while line := await reader.readline():
            self._heard_s = time.monotonic()
            try:
                order = orjson.loads(line)
                kind = order["do"]
            except (ValueError, TypeError, KeyError) as error:
                self._fail(error)
            if kind == "quit":
                break
            if kind in ("stop", "abandon"):
                self.wish = kind
            if kind in self._at_once:
                self._at_once[kind](order)
            else:
                self.wish = None
                orders.put_nowait(order)
        os._exit(0)

    def _fail(self, error: Exception) -> NoReturn:
        """Tells the controller that this worker cannot go on."""
        self.say("failed", reason=f"{type(error).__name__}: {error}")
        os._exit(1)

    def _end_in_silence(self) -> None:
        left_s = self._heard_s + SILENCE_MAX_S - time.monotonic()
        if left_s <= 0:
            os._exit(1)
        asyncio.get_running_loop().call_later(left_s, self._end_in_silence)

    def _tell_clock(self, order: Word) -> None:
        self.say("clock", id=order["id"], clock_ns=time.monotonic_ns())
