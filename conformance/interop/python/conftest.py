"""The programs under test, started for the tests and ended after them."""

import contextlib
import os
import subprocess

import pytest

TIDEWIRE = os.environ["TIDEWIRE"]
CLIENT = os.environ["TIDEWIRE_CLIENT"]

MESSAGE_BYTES_MAX = 16 << 20

RAW = [
    *("--protocol", "raw", "--app", "echo", "--no-auth", "--path", "any"),
    *("--message-bytes-max", str(MESSAGE_BYTES_MAX), "--outbox-bytes-max", str(4 * MESSAGE_BYTES_MAX)),
]
DEFLATE = ["off", "shared", "per-connection"]


@contextlib.contextmanager
def serving(*flags):
    """The URL of `tidewire serve` with these flags."""
    command = [TIDEWIRE, "serve", "--listen", "127.0.0.1:0", "--log-level", "error", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            line = server.stdout.readline()
            assert line.startswith("listening on "), line
            yield line.removeprefix("listening on ").strip()
        finally:
            server.terminate()


@pytest.fixture(scope="session", params=DEFLATE)
def echo(request):
    """The URL of an echo server, for each of its ways to compress."""
    with serving(*RAW, "--deflate", request.param, "--compression-threshold-bytes", "0") as url:
        yield url, request.param


@pytest.fixture(scope="session")
def version_1():
    """The URL of a server of protocol version 1."""
    with serving("--no-auth", "--deflate", "per-connection") as url:
        yield url
