"""The names that an interpreter or an editor offers."""

from __future__ import annotations

import pytest
import tidewire
import tidewire.asgi


@pytest.mark.parametrize("module", [tidewire, tidewire.jwt, tidewire.sync, tidewire.errors, tidewire.asgi])
def test_modules_offer_what_is_public(module) -> None:
    offered = {name for name in dir(module) if not name.startswith("__")}
    assert offered == {name for name in module.__all__ if not name.startswith("__")}
    assert all(hasattr(module, name) for name in offered)
    assert "__doc__" in dir(module)


def test_objects_offer_what_is_public() -> None:
    server = tidewire.Server(port=0, no_auth=True)
    client = tidewire.sync.Client("ws://127.0.0.1:1/ws")
    for thing, wanted in ((server, "publish"), (server, "history"), (client, "subscribe")):
        offered = dir(thing)
        assert wanted in offered
        assert "__class__" in offered
        assert [name for name in offered if name.startswith("_") and not name.startswith("__")] == []
