"""Waiting on an event loop for what happens to a client."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any

from .errors import TidewireError

if TYPE_CHECKING:
    from ._native import ClientCore, ClientSignal, Ticket


class Waker:
    """Wakes the tasks of one event loop that wait for a client: for the answer to a call, or for something to receive.

    The loop watches the client's descriptor from the first wait on until the client has ended and nobody waits any
    more. That is looked at in one place, whenever something happened; and the end of a client, which ends every call,
    always happens. So no call waits for ever, and whatever way a client goes, nothing of it is left in the loop.

    The loop holds this, and this holds the client by a weak reference: a client that is forgotten ends.
    """

    def __init__(self, core: ClientCore) -> None:
        self._core = weakref.ref(core)
        # The descriptor is open as long as it is watched, whoever else is gone.
        self._signal: ClientSignal = core.signal
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: dict[int, tuple[Ticket, asyncio.Future[Any]]] = {}
        self._receivers: set[asyncio.Future[None]] = set()

    async def answer(self, ticket: Ticket) -> Any:
        """Waits for the answer to a call; who gives up waiting gives up the call."""
        future: asyncio.Future[Any] = self._watch().create_future()
        self._calls[ticket.number] = (ticket, future)
        try:
            return await future
        finally:
            self._calls.pop(ticket.number, None)
            self._rest()

    async def happening(self) -> None:
        """Waits until something has happened."""
        future: asyncio.Future[None] = self._watch().create_future()
        self._receivers.add(future)
        try:
            await future
        finally:
            self._receivers.discard(future)
            self._rest()

    def wake_receivers(self) -> None:
        """Something is left for all who wait for something to receive."""
        for receiver in self._receivers:
            if not receiver.done():
                receiver.set_result(None)

    def attach(self) -> None:
        """Belongs to the running loop from now on, unless the client has ended: then nothing happens any more.

        Raises:
            TidewireError: The client belongs to another one.
        """
        self._attach()
        self._rest()

    def _attach(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None:
            if not self._loop.is_closed():
                raise TidewireError("the client was opened on another event loop", code="ANOTHER_LOOP")
            # A task that waited there will never be woken, and there is nobody to wait for.
            self._calls.clear()
            self._receivers.clear()
        self._loop = loop
        loop.add_reader(self._signal.fileno(), self._wake)

    def _watch(self) -> asyncio.AbstractEventLoop:
        self._attach()
        return asyncio.get_running_loop()

    def _wake(self) -> None:
        """Something has happened: wakes all who wait for it."""
        for number in self._signal.clear():
            ticket, future = self._calls.pop(number, (None, None))
            if ticket is None or future is None or future.done():
                continue
            try:
                future.set_result(ticket.take())
            except Exception as error:
                future.set_exception(error)
        self.wake_receivers()
        self._rest()

    def _rest(self) -> None:
        """Stops watching when nothing can happen any more that somebody waits for."""
        if self._loop is None or self._calls or self._receivers:
            return
        core = self._core()
        if core is None or core.state == "closed":
            loop, self._loop = self._loop, None
            if not loop.is_closed():
                loop.remove_reader(self._signal.fileno())
