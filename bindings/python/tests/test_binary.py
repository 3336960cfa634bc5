"""Payloads of bytes through every way of a server and of a client: bytes in, bytes out."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tidewire

Serve = Callable[..., tidewire.Server]

SIZES = [0, 1, 65_535, 1024 * 1024]
LIMITS = {
    "message_bytes_max": 4 << 20,
    "payload_bytes_max": 2 << 20,
    "history": {"kept.>": 100},
}
LAYERS: list[dict[str, Any]] = [
    {},
    {"format": "msgpack"},
    {"compression": "zlib", "encryption": "on"},
    {"format": "msgpack", "compression": "zlib", "encryption": "on"},
]


def content(length: int) -> bytes:
    return bytes(at * 31 % 251 for at in range(length))


def large(serve: Serve, **options: Any) -> tidewire.Server:
    return serve(**LIMITS, **options)


def connect(server: tidewire.Server, layer: dict[str, Any]) -> tidewire.sync.Client:
    room = {"outbox_bytes_max": 16 << 20, "inbox_bytes_max": 16 << 20}
    return tidewire.sync.connect(server.url, **room, **layer)


@pytest.mark.parametrize("layer", LAYERS)
def test_bytes_arrive_as_bytes(serve: Serve, layer: dict[str, Any]) -> None:
    server = large(serve, **({"encryption": "required"} if "encryption" in layer else {}))

    def answer() -> None:
        for batch in server.batches():
            for message in batch:
                if message.kind == "request":
                    message.reply(message.payload)
                elif message.kind == "message":
                    message.connection.send(message.payload, type="back")

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with connect(server, layer) as client:
            client.subscribe("live")
            for length in SIZES:
                sent = content(length)
                text = base64.b64encode(sent).decode()
                for value in (sent, text, {"b": True, "p": text}):
                    client.send(value)
                    assert client.next(timeout=60).payload == value
                    client.publish("live", value)
                    assert client.next(timeout=60).payload == value
                    server.publish("live", value)
                    assert client.next(timeout=60).payload == value
                    assert client.request(value, type="mirror") == value
    finally:
        server.stop()
        thread.join()


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_history_has_the_bytes(serve: Serve, layer: dict[str, Any]) -> None:
    server = large(serve)
    server.publish_many("kept.a", [b"", "AAH/", b"\0\x01\xff"])
    with connect(server, layer) as client:
        client.subscribe("kept.a", replay=10)
        assert [client.next(timeout=60).payload for _ in range(3)] == [b"", "AAH/", b"\0\x01\xff"]
        page = client.history("kept.a")
        assert [one.payload for one in page.publications] == [b"", "AAH/", b"\0\x01\xff"]
    kept = server.history("kept.a").publications
    assert [one.payload for one in kept] == [b"", "AAH/", b"\0\x01\xff"]


@pytest.mark.parametrize("value", [b"\0\x01\xff", bytearray(b"\0\x01\xff"), memoryview(b"\0\x01\xff")])
def test_every_kind_of_bytes(value: Any) -> None:
    for format in ("json", "msgpack"):
        message = tidewire.encode_envelope("a", value, format=format)
        assert tidewire.parse_envelope(message).payload == b"\0\x01\xff"
        with pytest.raises(tidewire.WrongTypeError, match="write them as a text"):
            tidewire.encode_envelope("a", {"inside": value}, format=format)


def test_presence_data_is_never_bytes(serve: Serve) -> None:
    with (
        connect(serve(), {}) as client,
        pytest.raises(tidewire.InvalidArgumentError, match="presence is a dict"),
    ):
        client.subscribe("a", presence=b"{}")


def test_presence_data_keeps_its_integers(serve: Serve) -> None:
    with connect(serve(), {}) as client:
        text = str(10**30)
        client.subscribe("a", presence={"id": 2**64 - 1, "low": -(2**63), "far": 1e30, text + '\\"': text})
        with pytest.raises(tidewire.InvalidArgumentError, match="at most 64 bits"):
            client.subscribe("a", presence={"deep": [{"id": 10**30}]})
