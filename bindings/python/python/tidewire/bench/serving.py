"""The server that is started for a run: a `tidewire.Server` in a process of its own."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any

import tidewire


@dataclass
class Child:
    """The server's process and where it listens."""

    process: subprocess.Popen[str]
    url: str
    ops: tuple[str, int]
    secret: str
    failure: str | None = None

    def stop(self) -> None:
        """Ends it."""
        self.process.terminate()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def end(self) -> str | None:
        """Why it has ended by itself; `None` while it runs."""
        code = self.process.poll()
        return None if code is None else f"the server ended with exit code {code}"


def start(*, echoes: bool, reads: str, options: dict[str, Any]) -> Child:
    """Starts a server with a random secret, all topics open and the rate limit off."""
    secret = secrets.token_hex(32)
    plan = {"echoes": echoes, "reads": reads, "options": {**options, "jwt_secret": secret}}
    process = subprocess.Popen(
        [sys.executable, "-m", "tidewire.bench.serving"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(plan) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        process.wait()
        message = f"the server did not start (exit code {process.returncode}); its reason is above"
        raise tidewire.StoppedError(message)
    said = json.loads(line)
    return Child(process, said["url"], tuple(said["ops"]), secret)


def main() -> None:
    """The server's process: it serves until it receives a stop, or its parent is gone."""
    plan = json.loads(sys.stdin.readline())
    defaults = {
        "port": 0,
        "ops_listen": "127.0.0.1:0",
        "rate_limit_capacity": 0,
        "topics_open": True,
        "handshakes_max": 4096,
    }
    server = tidewire.Server(**{**defaults, **plan["options"]})
    server.start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    threading.Thread(target=stop_with_parent, args=(server,), daemon=True).start()
    print(json.dumps({"url": server.url, "ops": server.ops_address}), flush=True)
    work = echo if plan["echoes"] else read_json if plan["reads"] == "json" else touch
    work(server)


def stop_with_parent(server: tidewire.Server) -> None:
    """Stops the server when the process that started it is gone, however it ended: its end closes the pipe."""
    sys.stdin.read()
    server.stop()


def touch(server: tidewire.Server) -> None:
    """Takes the length of every message."""
    total = 0
    for batch in server.batches():
        for message in batch:
            if message.kind == "message":
                total += len(message)


def read_json(server: tidewire.Server) -> None:
    """Reads the payload of every message."""
    total = 0
    for batch in server.batches():
        for message in batch:
            if message.kind == "message":
                total += len(message.json()["p"])


def echo(server: tidewire.Server) -> None:
    """Sends every message back."""
    for batch in server.batches():
        for message in batch:
            if message.kind == "message":
                message.connection.send_raw(message)


if __name__ == "__main__":
    main()
