"""Servers on this machine, for the checks of this folder: free ports, and what is fetched from them."""

from __future__ import annotations

import socket
import time
import urllib.request

WAIT_S = 60


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def fetch(url: str) -> str:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        return str(answer.read().decode())


def wait_for(url: str) -> str:
    """What the URL answers, as soon as it does."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return fetch(url)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
