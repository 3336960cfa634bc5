"""The engine's log in Python's `logging`, as the logger `tidewire`.

The engine logs on threads that never wait for Python. A thread of this module passes the lines to the logger, so a line
appears a moment after its event, with the time of the logger. Handlers, filters and levels of `logging` apply.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading

from . import _native

logger = logging.getLogger("tidewire")

WAIT_MS = 1000
JOIN_S = 5.0

_lock = threading.Lock()
_thread: threading.Thread | None = None
_is_ending = False


def start(level: str | None) -> None:
    """Forwards what the engine logs from now on; with `None` at the level that holds, at first `info`.

    Raises:
        ConfigurationError: There is no such level.
    """
    global _thread, _level
    with _lock:
        if level is not None or _level is None:
            _native.log_start(level or "info")
            _level = level or "info"
        if _thread is None and not _is_ending:
            _thread = threading.Thread(target=_forward, name="tidewire-log", daemon=True)
            _thread.start()


def _forward() -> None:
    while not _is_ending:
        _emit(WAIT_MS)


def _emit(timeout_ms: int) -> None:
    for level, target, words in _native.log_take(timeout_ms):
        try:
            logger.log(level, "%s", words, extra={"engine_module": target})
        except Exception:
            # A filter of the application that raises must not end the log.
            continue


def _end() -> None:
    """The lines of the servers' end are forwarded, too."""
    global _is_ending
    _is_ending = True
    if _thread is not None and _thread.is_alive():
        _native.log_wake()
        _thread.join(JOIN_S)
        if not _thread.is_alive():
            # A thread that is still there waits for a handler that would hold this one, too.
            _emit(0)


def _after_fork() -> None:
    global _thread, _lock
    _thread, _lock = None, threading.Lock()
    _native.log_after_fork(True)


_level: str | None = None
atexit.register(_end)
os.register_at_fork(
    before=_native.log_before_fork,
    after_in_parent=lambda: _native.log_after_fork(False),
    after_in_child=_after_fork,
)
