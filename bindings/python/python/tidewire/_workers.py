"""Tells when an ASGI server runs several workers whose engines know nothing of each other."""

from __future__ import annotations

import fcntl
import logging
import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._server import Server

logger = logging.getLogger("tidewire")

# The first worker holds the lock of this file for as long as it lives; the descriptor has to stay open for that.
_held: int | None = None


def warn(server: Server) -> None:
    """Logs a warning in every worker but the first, unless a broker connects the engines."""
    if not _is_worker() or server._options.get("broker"):
        return
    if not _is_first():
        logger.warning(
            "this is not the only worker: each has an engine of its own, and a publication reaches only the clients"
            " of one. Give the server a broker, or run one worker"
        )


def _is_worker() -> bool:
    """Whether a server with workers, such as uvicorn, granian, hypercorn or gunicorn, has started this process."""
    return multiprocessing.parent_process() is not None or "gunicorn" in os.environ.get("SERVER_SOFTWARE", "")


def _is_first() -> bool:
    global _held
    if _held is not None:
        return True
    path = Path(tempfile.gettempdir(), f"tidewire-workers-{os.getuid()}-{os.getppid()}")
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        # Nothing depends on it.
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return False
    _held = file
    return True
