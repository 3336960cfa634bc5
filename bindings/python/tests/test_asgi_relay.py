"""The relay's side of a connection as bytes in, events out; and refusals where the ASGI server cannot pass them on."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import socket
from typing import Any

import pytest
import tidewire
from tidewire._native import Relay, RelayClosed, RelayOpened, RelayRefused
from tidewire._relay import RelayConnection

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def relay(**parts: Any) -> Relay:
    usual: dict[str, Any] = {
        "host": "example.com",
        "target": "/ws?a=b",
        "headers": [(b"cookie", b"a=b"), (b"x-latin", b"\xfc")],
        "protocols": ["one", "two"],
        "message_bytes_max": 1000,
    }
    return Relay(**{**usual, **parts})


def acceptance(request: bytes, *headers: bytes) -> bytes:
    fields = dict(line.split(b": ", 1) for line in request.split(b"\r\n")[1:] if line)
    accept = base64.b64encode(hashlib.sha1(fields[b"Sec-WebSocket-Key"] + GUID).digest())
    lines = [
        b"HTTP/1.1 101 Switching Protocols",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Accept: " + accept,
        *headers,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def opened(**parts: Any) -> Relay:
    new = relay(**parts)
    (event,) = new.receive(acceptance(new.request))
    assert isinstance(event, RelayOpened)
    return new


def seen(events: list[Any]) -> list[Any]:
    """Events as values that can be compared."""
    kinds = {
        RelayOpened: lambda event: ("opened", event.protocol),
        RelayRefused: lambda event: ("refused", event.status, event.reason, event.retry_after),
        RelayClosed: lambda event: ("closed", event.code, event.reason),
    }
    return [kinds[type(event)](event) if type(event) in kinds else event for event in events]


def unmasked(frame: bytes) -> tuple[int, bytes]:
    """The first byte of a client's short frame, and its payload."""
    assert frame[1] & 0x80
    length = frame[1] & 0x7F
    assert length < 126
    mask, payload = frame[2:6], frame[6 : 6 + length]
    assert len(frame) == 6 + length
    return frame[0], bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def test_the_request_has_the_clients_headers() -> None:
    lines = relay().request.split(b"\r\n")
    assert lines[0] == b"GET /ws?a=b HTTP/1.1"
    for line in (b"Host: example.com", b"cookie: a=b", b"Sec-WebSocket-Protocol: one, two"):
        assert line in lines
    assert "x-latin: ü".encode() in lines
    assert not any(line.lower().startswith(b"sec-websocket-extensions") for line in lines)


@pytest.mark.parametrize(
    "parts",
    [
        {"host": "a\r\nX: y"},
        {"target": "/a b"},
        {"headers": [(b"x", b"a\r\nX: y")]},
        {"headers": [(b"x y", b"a")]},
        {"protocols": ["a,b"]},
    ],
)
def test_what_cannot_stand_in_a_request_makes_none(parts) -> None:
    assert relay(**parts).request == b""


def test_bytes_may_come_in_any_pieces() -> None:
    said = (
        b"\x81\x05hello"
        + b"\x89\x02hi"
        + b"\x82\x02\x00\xff"
        + b"\x01\x02\xc3\xbc"
        + b"\x80\x01!"
        + b"\x88\x05\x0f\xa1bye"
    )
    expected = [("opened", "two"), "hello", b"\x00\xff", "ü!", ("closed", 4001, "bye")]
    length = len(acceptance(relay().request, b"Sec-WebSocket-Protocol: two"))
    for step in (1, 2, 3, 7, length - 1, length, length + 1, 1000):
        one = relay()
        bytes_in = acceptance(one.request, b"Sec-WebSocket-Protocol: two") + said
        events = []
        replies = b""
        for at in range(0, len(bytes_in), step):
            events += one.receive(bytes_in[at : at + step])
            replies += one.take_replies()
        assert seen(events) == expected, step
        # The ping gets a pong, and the close a close.
        pong, close = replies[:8], replies[8:]
        assert unmasked(pong) == (0x8A, b"hi")
        assert unmasked(close) == (0x88, b"\x0f\xa1")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 3\r\n\r\nno!", ("refused", 401, "no!", None)),
        (
            b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\n\r\n",
            ("refused", 503, "Service Unavailable", 7),
        ),
        (b"SSH-2.0-OpenSSH\r\n", ("refused", 502)),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            ("refused", 502),
        ),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000, ("refused", 502)),
    ],
)
def test_other_answers_are_refusals(answer, expected) -> None:
    one = relay()
    (event,) = seen(one.receive(answer))
    assert event[: len(expected)] == expected
    assert one.receive(b"\x81\x01x") == []


@pytest.mark.parametrize(
    "frame", [b"\xc1\x01x", b"\x81\x81abcdx", b"\x81\x01\xff", b"\x82\x7e\x04\x00", b"\x80\x00"]
)
def test_an_engine_that_breaks_the_protocol_is_left(frame) -> None:
    one = opened()
    ((kind, code, _),) = seen(one.receive(frame))
    assert (kind, code) == ("closed", 1011)
    assert one.receive(b"\x81\x01x") == []


def test_frames_are_masked_each_with_another_mask() -> None:
    one = opened()
    assert unmasked(one.text("hé")) == (0x81, "hé".encode())
    assert unmasked(one.binary(b"\x00\x01")) == (0x82, b"\x00\x01")
    assert len({one.text("same") for _ in range(20)}) > 10
    assert unmasked(one.close(4000, "bye")) == (0x88, b"\x0f\xa0bye")
    # Nothing follows a close frame.
    assert one.close(4000, "bye") == one.text("late") == b""
    assert unmasked(opened().close(1005, "bye")) == (0x88, b"")
    assert len(unmasked(opened().close(1000, "ü" * 100))[1]) <= 125


def connected_to(host: str, port: int) -> Any:
    """A function that connects to an engine at this address."""

    async def connect(_scope: Any) -> socket.socket:
        return socket.create_connection((host, port))

    return connect


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, ["accept", 4401]),
        (503, ["accept", 1013]),
        (403, [1000]),
    ],
)
def test_a_server_that_cannot_pass_on_a_status_closes_with_the_code_that_it_means(status, expected) -> None:
    """As far as it would mislead the client: an ASGI server by itself can only say 403."""

    async def main() -> list[Any]:
        engine = await asyncio.start_server(refuse, "127.0.0.1", 0)
        host, port = engine.sockets[0].getsockname()
        sent = []

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message.get("code") or message["type"].removeprefix("websocket."))

        scope = {"type": "websocket", "headers": [(b"host", b"example.com")], "query_string": b""}
        await RelayConnection(
            scope,
            receive,
            send,
            path="/ws",
            connect=connected_to(host, port),
            buffer_bytes_max=1000,
            message_bytes_max=1000,
            opening_timeout_s=30,
        ).run()
        engine.close()
        return sent

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d No\r\n\r\n" % status)
        await writer.drain()
        writer.close()

    assert asyncio.run(main()) == expected


def test_what_a_client_does_not_take_stays_in_the_engine() -> None:
    frames = 200
    frame = b"\x82\x7f" + (1_000_000).to_bytes(8, "big") + bytes(1_000_000)

    async def main() -> int:
        written, received = 0, 0
        takes = asyncio.Event()

        async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal written
            writer.write(acceptance(await reader.readuntil(b"\r\n\r\n")))
            for _ in range(frames):
                writer.write(frame)
                await writer.drain()
                written += 1
            writer.write(b"\x88\x00")
            await writer.drain()
            await reader.read()
            writer.close()

        async def receive() -> dict[str, Any]:
            if not received:
                return {"type": "websocket.connect"}
            return await asyncio.get_running_loop().create_future()

        async def send(message: dict[str, Any]) -> None:
            nonlocal received
            received += 1
            if message["type"] == "websocket.send":
                await takes.wait()

        engine = await asyncio.start_server(say, "127.0.0.1", 0)
        host, port = engine.sockets[0].getsockname()
        connection = RelayConnection(
            {"type": "websocket", "headers": [], "query_string": b""},
            receive,
            send,
            path="/ws",
            connect=connected_to(host, port),
            buffer_bytes_max=64 * 1024,
            message_bytes_max=1_000_000,
            opening_timeout_s=30,
        )
        running = asyncio.create_task(connection.run())
        unchanged, before = 0, -1
        while unchanged < 100:
            await asyncio.sleep(0.002)
            unchanged = unchanged + 1 if received >= 2 and written == before else 0
            before = written
        # The buffers of the system, and not more.
        assert written < frames / 2
        takes.set()
        await asyncio.wait_for(running, 60)
        engine.close()
        return received

    # The acceptance and the close besides.
    assert asyncio.run(main()) == frames + 2


def test_wrong_arguments_of_the_relay_are_errors() -> None:
    with pytest.raises(TypeError):
        Relay()  # type: ignore[call-arg]
    with pytest.raises((TypeError, OverflowError)):
        relay(message_bytes_max=-1)
    assert issubclass(tidewire.StoppedError, tidewire.TidewireError)
