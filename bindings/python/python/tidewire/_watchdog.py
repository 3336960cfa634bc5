"""Notices handlers that keep the event loop from running."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._handlers import Handler, Handlers

logger = logging.getLogger("tidewire")


class Watchdog:
    """Looks from a thread of its own whether the loop is still in the same step of the same handler.

    Attributes:
        handler: The handler that runs now; set by who calls it, and `None` after.
        step: Counts calls, so that two of one handler can be told apart.
    """

    __slots__ = ("_handlers", "handler", "step")

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self.handler: Handler | None = None
        self.step = 0

    @contextlib.contextmanager
    def watching(self, after_ms: int) -> Iterator[None]:
        """Watches the calling thread; 0 turns it off."""
        if after_ms <= 0:
            yield
            return
        over = threading.Event()
        arguments = (threading.get_ident(), after_ms, over)
        thread = threading.Thread(target=self._watch, args=arguments, name="tidewire watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, thread: int, after_ms: int, over: threading.Event) -> None:
        seen = reported = -1
        while not over.wait(after_ms / 1000):
            handler, step = self.handler, self.step
            if handler is not None and step == seen and step != reported:
                reported = step
                self._handlers.blocked += 1
                frame = sys._current_frames().get(thread)
                where = "".join(traceback.format_stack(frame)[-FRAMES_MAX:]) if frame else ""
                logger.warning(
                    "handler %s has blocked the event loop for more than %d ms; nothing else runs meanwhile. "
                    "Let it wait with await, or run it in a thread (asyncio.to_thread). It is here:\n%s",
                    handler.name,
                    after_ms,
                    where,
                )
            seen = step if handler is not None else -1


FRAMES_MAX = 6
