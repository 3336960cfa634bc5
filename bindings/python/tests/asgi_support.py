"""Real ASGI servers, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from async_client import DEADLINE_S, AsyncClient
from ports import free_port

SERVERS = {
    "uvicorn": ["-m", "uvicorn", "--host", "127.0.0.1", "--log-level", "warning", "--port"],
    "granian": [
        "-m",
        "granian",
        "--interface",
        "asgi",
        "--host",
        "127.0.0.1",
        "--log-level",
        "warning",
        "--port",
    ],
}


class Application:
    """An application that runs under one of the servers."""

    def __init__(self, kind: str, module: str, folder: Path, log: Path, **environment: str) -> None:
        self.port = free_port()
        command = [sys.executable, *SERVERS[kind], str(self.port), module]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **environment}, stdout=output, stderr=output
            )
        self.log = log
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", trust_env=False, timeout=DEADLINE_S
        )
        self._wait_until_it_listens()

    def url(self, path: str = "/ws") -> str:
        return f"ws://127.0.0.1:{self.port}{path}"

    def cookie(self, user: str = "ann") -> dict[str, str]:
        """The header with which a browser comes back after its login."""
        answer = self.http.post("/login", json={"user": user})
        return {"Cookie": f"access_token={answer.cookies['access_token']}"}

    def client(self, path: str = "/ws", **options: Any) -> AsyncClient:
        """A client that has logged in."""
        return AsyncClient(self.url(path), additional_headers=self.cookie(), **options)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.http.get("/state").json()
        return state

    def terminate(self) -> int:
        """Ends it as a process manager would; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)

    def end(self) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                problem = self.log.read_text()
                assert self.process.poll() is None, problem
                assert time.monotonic() < deadline, problem
                time.sleep(0.02)


def environment(secret: str, **options: Any) -> dict[str, str]:
    return {"SECRET": secret, "OPTIONS": json.dumps(options)}
