"""A `redis-server` of a test's own, on a Unix socket in a temporary folder."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

START_S = 60.0


class RedisServer:
    """It runs until `stop`; `pause` lets it answer nothing."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="tidewire-redis-")
        self._socket = Path(self._folder) / "socket"
        self._process = subprocess.Popen(
            [
                "redis-server",
                *("--port", "0"),
                *("--save", ""),
                *("--unixsocket", str(self._socket)),
                *("--dir", self._folder),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(self._socket))
                return
            assert time.monotonic() < deadline, "redis-server of Debian's package redis-server does not start"
            time.sleep(0.002)

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """It answers nothing meanwhile; then it answers what has waited."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
