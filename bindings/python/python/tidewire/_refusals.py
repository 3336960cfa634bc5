"""Errors of handlers: an answer for the other side, or a line in the log."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any, NamedTuple

from .errors import CallError

logger = logging.getLogger("tidewire")

HANDLER_ERROR = "HANDLER_ERROR"


class Refusal(NamedTuple):
    """The answer to the other side."""

    code: str
    text: str


def refusal_of(error: BaseException) -> Refusal | None:
    """The answer of a handler that raised `CallError`; `None` for any other error.

    What it raised may carry what a client has sent. A code that is no code, a text that cannot be written, an error
    whose words cannot be had: each is an error of the handler, like any other.
    """
    if not isinstance(error, CallError):
        return None
    try:
        code, text = error.code, str(error)
        if not isinstance(code, str) or not 1 <= len(code.encode()) <= CODE_BYTES_MAX:
            return None
        text.encode()
    except Exception:
        return None
    return Refusal(code, text)


def is_interrupt(error: BaseException) -> bool:
    """Whether an error may be Ctrl-C that was pressed while a handler ran, and not the handler's own."""
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def log_error(words: str, *arguments: Any, error: BaseException) -> None:
    """Logs an error with its traceback, whatever the application's loggers do about it."""
    try:
        logger.error(words, *arguments, exc_info=error)
    except Exception:
        # An error that cannot even be shown, or a logger that is broken: neither is a reason to end.
        logger.debug("an error could not be logged")


CODE_BYTES_MAX = 128
