"""A proxy that spoils its connections at a byte that comes from a seed; see `protocol/scenarios/README.md`."""

from __future__ import annotations

import socket
import threading
from typing import Any, NamedTuple

MASK = (1 << 64) - 1

PASSED_CORRUPT = 16_384
"""Bytes between a change, which nobody may notice, and the cut."""


class Plan(NamedTuple):
    """The fault of one connection, and its place."""

    kind: str
    direction: str
    at: int
    flip: int


def plan(seed: int, connection: int, kinds: list[str]) -> Plan:
    """The same for every implementation."""
    state = ((seed << 32) + connection) & MASK

    def below(end: int) -> int:
        # The generator splitmix64.
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & MASK
        mixed = state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        return (mixed ^ (mixed >> 31)) % end

    kind = kinds[below(len(kinds))]
    direction = "down" if below(2) else "up"
    bits = 5 + below(9)
    return Plan(kind, direction, below(1 << bits), 1 + below(255))


class Proxy:
    """Spoils its first connections by their plans, and passes on what comes by the later ones."""

    def __init__(self, port: int, plans: list[Plan]) -> None:
        self._target = port
        self._plans = plans
        self._accepted = 0
        self._is_over = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._links: list[Link] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        self.port: int = self._listener.getsockname()[1]

    @property
    def is_calm(self) -> bool:
        """Whether every plan has been carried out, and a connection accepted that nothing happens to."""
        return self._accepted > len(self._plans)

    def end(self) -> None:
        """Ends all connections."""
        self._is_over = True
        # To close it does not wake who accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)
        for link in self._links:
            link.end()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            number = self._accepted
            self._accepted += 1
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            chosen = self._plans[number] if number < len(self._plans) else None
            self._links.append(Link(client, server, chosen))


class Link:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket, plan: Plan | None) -> None:
        self._sockets = (client, server)
        self._is_stalled = False
        ways = {"up": (client, server), "down": (server, client)}
        self._threads = [
            threading.Thread(
                target=self._pass,
                args=(*way, plan if plan and plan.direction == name else None),
                daemon=True,
            )
            for name, way in ways.items()
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Ends both sides, and waits for it."""
        self._cut()
        for thread in self._threads:
            thread.join(30)
        for one in self._sockets:
            one.close()

    def _cut(self) -> None:
        for one in self._sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _pass(self, source: socket.socket, sink: socket.socket, plan: Plan | None) -> None:
        passed = 0
        cut_at = None
        is_open = True
        while True:
            data = receive(source)
            if not data:
                if self._is_stalled:
                    self._cut()
                elif is_open:
                    shut(sink)
                return
            if self._is_stalled or not is_open:
                continue
            start, passed = passed, passed + len(data)
            if cut_at is not None and passed >= cut_at:
                self._cut()
                return
            if plan is None or plan.at >= passed:
                if not send(sink, data):
                    return
                continue
            at = plan.at - start
            if plan.kind == "corrupt":
                send(sink, data[:at] + bytes([data[at] ^ plan.flip]) + data[at + 1 :])
                cut_at = plan.at + PASSED_CORRUPT
            else:
                send(sink, data[:at])
                if plan.kind == "cut":
                    self._cut()
                    return
                if plan.kind == "stall":
                    self._is_stalled = True
                else:
                    shut(sink)
                    is_open = False
            plan = None


def receive(source: socket.socket) -> bytes:
    """The next event, nothing at the end."""
    try:
        return source.recv(4096)
    except OSError:
        return b""


def send(sink: socket.socket, data: bytes) -> bool:
    """Passes data on; whether that was possible."""
    try:
        sink.sendall(data)
    except OSError:
        return False
    return True


def shut(sink: socket.socket) -> None:
    """Ends what is sent to a side."""
    try:
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def as_json(plan: Plan) -> dict[str, Any]:
    """A plan as the vectors have it."""
    return plan._asdict()
