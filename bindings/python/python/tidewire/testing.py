"""Servers and clients for tests.

    server = tidewire.Server(port=0, jwt_secret=secret)

    @server.request("double")
    def double(message):
        return message.payload * 2

    def test_double():
        with tidewire.testing.running(server), tidewire.testing.connect(server, "ann") as client:
            assert client.request(2, type="double") == 4

`tidewire.pytest_plugin` has the same as fixtures of pytest.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import jwt, sync
from ._completion import names
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._server import Server

__all__ = ["connect", "running", "token"]

TOKEN_S = 3600


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """Runs a server and its handlers until the end of the block. The handlers run on an event loop of their own, in
    another thread, so that the test may wait for them.

    Each block starts a new engine with the same options and handlers: nothing of an earlier test is left. It is a real
    server on a real socket; give it `port=0`, so that tests can run at the same time.

    Raises:
        AddressError: Its address is in use.
        TidewireError: It runs already.
    """
    if server.state == "stopped":
        server._renew()
    server.start()
    thread = threading.Thread(target=asyncio.run, args=(server.serve(),), name="tidewire handlers")
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def token(server: Server, user: str, claims: Mapping[str, Any] | None = None) -> str:
    """A token of a user that the server accepts for an hour.

    Args:
        server: It has a `jwt_secret`.
        user: The `sub` of the token.
        claims: Further claims, such as `access`.

    Raises:
        InvalidArgumentError: The server has no `jwt_secret` to sign with.
    """
    secret = server._options.get("jwt_secret")
    if secret is None:
        raise InvalidArgumentError(
            "the server has no jwt_secret to sign a token with; pass one with token=..."
        )
    return jwt.encode({"sub": user, "exp": time.time() + TOKEN_S, **(claims or {})}, secret)


def connect(
    server: Server, user: str = "user-1", *, claims: Mapping[str, Any] | None = None, **options: Any
) -> sync.Client:
    """A client of a running server, to be used with `with` or closed.

    Args:
        server: The server.
        user: Who it is, if the server wants to know.
        claims: Further claims of its token.
        options: Those of `tidewire.sync.connect`.

    Raises:
        InvalidArgumentError: The server wants a token and has no `jwt_secret` to sign one with.
    """
    if "token" not in options and not server._options.get("no_auth"):
        options["token"] = token(server, user, claims)
    return sync.connect(server.url, **options)


def __dir__() -> list[str]:
    return names(__all__, globals())
