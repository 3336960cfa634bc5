"""Ports for servers that are started in another process, or again."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """A free port below those that the system gives to outgoing connections: one of these could take it meanwhile."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        # Nobody may listen yet at a port that another server of this run was given.
        if port in _given:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.add(port)
            return port


_given: set[int] = set()
