"""Fixtures of pytest, which finds them when the package is installed. In a source tree: `-p tidewire.pytest_plugin`.

def test_double(tidewire_run, tidewire_connect):
    server = tidewire_run(my_app.server)
    assert tidewire_connect(server, "ann").request(2, type="double") == 4
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from . import testing

if TYPE_CHECKING:
    from . import sync
    from ._server import Server


@pytest.fixture
def tidewire_run() -> Iterator[Callable[[Server], Server]]:
    """Runs a server and its handlers to the end of the test, as `tidewire.testing.running` does, and returns it."""
    with contextlib.ExitStack() as stack:
        yield lambda server: stack.enter_context(testing.running(server))


@pytest.fixture
def tidewire_connect(tidewire_run: Callable[[Server], Server]) -> Iterator[Callable[..., sync.Client]]:
    """Connects a client, as `tidewire.testing.connect` does. It is closed at the end of the test, before the server."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(testing.connect(*arguments, **options))
