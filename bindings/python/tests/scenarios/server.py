"""The server's side of a scenario: an interpreter of its steps, byte by byte.

It is on a thread of its own, so that clients of every kind can be held against it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import struct
import threading
import time
from email.utils import formatdate
from typing import Any

from . import single

READY = {"c": "WSE", "t": "server_ready", "p": {"details": {"connection_id": "c1"}}}
HELLO = {"c": "WSE", "t": "server_hello", "p": {"connection_id": "c1"}}


class Gone(Exception):
    """The client has gone."""


class Seen:
    """The log of the servers of one scenario."""

    def __init__(self) -> None:
        self.connections = 0
        self.types: list[str] = []


class ScenarioServer:
    """Does on its connections what the scripts say."""

    def __init__(self, scripts: list[list[Any]], seen: Seen) -> None:
        self._scripts = scripts
        self._seen = seen
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._sockets: list[socket.socket] = []
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self.url = f"ws://127.0.0.1:{self._listener.getsockname()[1]}/ws"

    def end(self) -> None:
        """Ends all connections."""
        self._is_over.set()
        # To close it does not wake who accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(30)

    def _accept(self) -> None:
        index = 0
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            self._seen.connections += 1
            self._sockets.append(stream)
            script = self._scripts[min(index, len(self._scripts) - 1)]
            index += 1
            thread = threading.Thread(
                target=Connection(stream, self._seen, self._is_over).serve, args=(script,), daemon=True
            )
            self._threads.append(thread)
            thread.start()


class Connection:
    """One connection."""

    def __init__(self, stream: socket.socket, seen: Seen, is_over: threading.Event) -> None:
        self._stream = stream
        self._is_over = is_over
        self._seen = seen
        self._cid = ""
        self._has_closed = False

    def serve(self, script: list[Any]) -> None:
        """Does what the script says, then reads until the client ends the connection."""
        try:
            self._run(script)
            self._hold()
        except (Gone, OSError):
            pass
        finally:
            self._stream.close()

    def _run(self, script: list[Any]) -> None:
        for step in script:
            if isinstance(step, str):
                self._word(step)
            else:
                self._step(*single(step))

    def _word(self, word: str) -> None:
        if word == "accept":
            self._upgrade()
        elif word in ("ready", "hello"):
            self._frame(1, json.dumps(READY if word == "ready" else HELLO).encode())
        elif word == "let_in":
            self._run(["accept", "ready"])
        elif word == "welcome":
            self._run(["accept", "ready", {"read": "client_hello"}, "hello"])
        elif word == "cut":
            raise Gone
        elif word == "half_close":
            self._stream.shutdown(socket.SHUT_WR)
        elif word == "freeze":
            self._freeze()
            raise Gone
        else:
            raise AssertionError(f"no server does {word}")

    def _step(self, name: str, value: Any) -> None:
        if name == "answer":
            self._head()
            self._stream.sendall(with_date(value).encode("latin-1"))
        elif name == "text":
            text = value if isinstance(value, str) else json.dumps(value)
            self._frame(1, text.replace("$cid", self._cid).encode())
        elif name == "frames":
            self._stream.sendall(bytes.fromhex(value))
        elif name == "read":
            while self._next() != value:
                pass
        elif name == "close":
            self._has_closed = True
            payload = struct.pack("!H", value[0]) if value else b""
            self._frame(8, payload + "".join(value[1:]).encode())
        elif name == "repeat":
            for _ in range(value[0]):
                self._run(value[1])
        else:
            raise AssertionError(f"no server does {name}")

    def _head(self) -> str:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._exactly(1)
        return head.decode("latin-1")

    def _upgrade(self) -> None:
        key = re.search(r"Sec-WebSocket-Key: (\S+)", self._head())
        assert key is not None
        digest = hashlib.sha1(key[1].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        answer = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n\r\n"
        )
        self._stream.sendall(answer.encode())

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._stream.recv(count - len(data))
            if not part:
                raise Gone
            data += part
        return data

    def _frame(self, opcode: int, payload: bytes) -> None:
        length = len(payload)
        if length < 126:
            head = struct.pack("!BB", 0x80 | opcode, length)
        elif length < 65536:
            head = struct.pack("!BBH", 0x80 | opcode, 126, length)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 127, length)
        self._stream.sendall(head + payload)

    def _next(self) -> str:
        """The type of the next message, `close` for a close frame, nothing for other frames."""
        first, second = self._exactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self._exactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._exactly(8))
        mask = self._exactly(4)
        masked = self._exactly(length)
        payload = bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked))
        found = ""
        if first & 0x0F == 8:
            found = "close"
        elif first & 0x0F == 1:
            text = payload.decode(errors="replace")
            try:
                # Older types carry the category in front of the envelope.
                envelope = json.loads(text[max(text.find("{"), 0) :])
            except ValueError:
                envelope = {}
            self._cid = envelope.get("cid", self._cid)
            found = envelope.get("t", "")
        self._seen.types.append(found)
        return found

    def _hold(self) -> None:
        while True:
            if self._next() == "close":
                if not self._has_closed:
                    self._frame(8, struct.pack("!H", 1000))
                return

    def _freeze(self) -> None:
        """Reads nothing until the client has gone, or the scenario ends."""
        # What is not read hides the end behind it; then the end of the scenario is the end.
        while not self._is_over.wait(0.01) and self._stream.recv(1, socket.MSG_PEEK):
            pass


def with_date(text: str) -> str:
    """`$date+7` stands for the HTTP date 7 s from now."""
    return re.sub(r"\$date\+(\d+)", lambda found: formatdate(time.time() + int(found[1]), usegmt=True), text)
