"""Compression, MessagePack and envelopes, against zlib and json."""

from __future__ import annotations

import json
import random
import threading
import uuid
import zlib
from datetime import datetime, timezone
from typing import Any

import pytest
import tidewire
from tidewire import InvalidArgumentError, InvalidMessageError, TidewireError, WrongTypeError

SAMPLES = [b"", b"a", b"hello " * 100, bytes(range(256)) * 500, random.Random(1).randbytes(100_000)]


@pytest.mark.parametrize("level", range(10))
@pytest.mark.parametrize("plain", SAMPLES, ids=len)
def test_zlib_reads_ours_and_we_read_its(plain: bytes, level: int) -> None:
    assert zlib.decompress(tidewire.compress(plain, level)) == plain
    assert tidewire.decompress(zlib.compress(plain, level)) == plain
    prefixed = tidewire.compress(plain, level, prefix=True)
    assert prefixed[:2] == b"C:"
    assert prefixed[2:] == tidewire.compress(plain, level)
    assert tidewire.decompress(prefixed) == plain


def test_any_bytes_like_object_will_do() -> None:
    plain = b"some bytes " * 10
    for given in (bytearray(plain), memoryview(plain), memoryview(plain * 2)[: len(plain)]):
        assert tidewire.decompress(tidewire.compress(given)) == plain
    every_other = memoryview(plain)[::2]
    assert tidewire.decompress(tidewire.compress(every_other)) == plain[::2]
    assert tidewire.decompress(memoryview(zlib.compress(plain))) == plain


def test_a_bomb_stops_at_the_limit() -> None:
    bomb = zlib.compress(bytes(50_000_000))
    with pytest.raises(InvalidMessageError, match="larger than 1000 bytes") as refused:
        tidewire.decompress(bomb, bytes_max=1000)
    assert refused.value.code == "TOO_LARGE"
    with pytest.raises(InvalidMessageError, match="16777216"):
        tidewire.decompress(bomb)
    assert len(tidewire.decompress(bomb, bytes_max=50_000_000)) == 50_000_000


@pytest.mark.parametrize(
    "broken", [b"", b"C:", b"{}", zlib.compress(b"x" * 99)[:-1], zlib.compress(b"x") + b"y"]
)
def test_what_is_no_stream_is_told(broken: bytes) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        tidewire.decompress(broken)
    assert refused.value.fault == "peer"
    assert tidewire.decompress(zlib.compress(b"next")) == b"next", "the state is clean again"


def test_wrong_arguments_are_the_callers() -> None:
    wrong: Any
    for wrong in ("text", 5, None, ["x"]):
        with pytest.raises(WrongTypeError, match="bytes-like"):
            tidewire.compress(wrong)
    for level in (-1, 10, 2**70):
        with pytest.raises(InvalidArgumentError):
            tidewire.compress(b"", level)
    for wrong in (1.5, "6", None):
        with pytest.raises(WrongTypeError):
            tidewire.compress(b"", wrong)


def test_threads_do_not_share_their_state() -> None:
    problems: list[object] = []

    def work(seed: int) -> None:
        generator = random.Random(seed)
        for _ in range(200):
            plain = generator.randbytes(generator.randrange(40_000)) + b"a" * 1000
            level = generator.randrange(10)
            if tidewire.decompress(tidewire.compress(plain, level)) != plain:
                problems.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**63,
    1.5,
    "ü\n\u0000",
    [],
    {},
    {"a": [1, {"b": None}], "c": "x" * 300},
    list(range(70_000)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_msgpack_and_back(value: Any) -> None:
    text = json.dumps(value)
    packed = tidewire.json_to_msgpack(text)
    assert json.loads(tidewire.msgpack_to_json(packed)) == value
    prefixed = tidewire.json_to_msgpack(text.encode(), prefix=True)
    assert prefixed == b"M:" + packed
    assert tidewire.msgpack_to_json(prefixed) == tidewire.msgpack_to_json(packed)


def test_msgpack_of_others() -> None:
    assert tidewire.msgpack_to_json(b"\x93\x01\xcb\x7f\xf0\0\0\0\0\0\0\xc4\x01\xff") == b'[1,null,"/w=="]'
    assert tidewire.msgpack_to_json(b"M") == b"77"
    for broken in (b"", b"M:", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x01\x01", b"\x91" * 65 + b"\x01"):
        with pytest.raises(InvalidMessageError):
            tidewire.msgpack_to_json(broken)
    for broken in (b"", b"{", b"[1,]", b"nul", b'"\xff"', b"[" * 65 + b"]" * 65):
        with pytest.raises(InvalidMessageError):
            tidewire.json_to_msgpack(broken)


def test_an_envelope_is_plain_json() -> None:
    message = tidewire.encode_envelope("tick", {"n": 1, "at": datetime(2026, 1, 2, tzinfo=timezone.utc)})
    read = json.loads(message)
    assert (read["c"], read["t"], read["seq"], read["v"]) == ("U", "tick", 0, 1)
    assert read["p"] == {"n": 1, "at": "2026-01-02T00:00:00Z"}
    assert uuid.UUID(read["id"]).version == 7
    envelope = tidewire.parse_envelope(message)
    assert (envelope.category, envelope.type, envelope.payload) == ("update", "tick", read["p"])
    assert (envelope.id, envelope.sequence, envelope.priority) == (read["id"], 0, 5)
    assert envelope.time is not None
    assert envelope.time.isoformat(timespec="milliseconds") == read["ts"].replace("Z", "+00:00")


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_every_field_comes_back(form: Any) -> None:
    identity = str(uuid.uuid4())
    message = tidewire.encode_envelope(
        "order",
        [1, "ü"],
        category="system",
        id=identity,
        time=1_700_000_000.123,
        sequence=7,
        correlation_id="c-1",
        signature="sig",
        number=2**63,
        format=form,
    )
    read = tidewire.parse_envelope(message)
    assert (read.category, read.type, read.id, read.sequence) == ("system", "order", identity, 7)
    assert (read.correlation_id, read.signature, read.number) == ("c-1", "sig", 2**63)
    assert read.time == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=timezone.utc)
    assert (read.payload, json.loads(read.payload_json)) == ([1, "ü"], [1, "ü"])
    assert (read.topic, read.position, read.delivery, read.redelivered) == (None, None, None, False)
    published = tidewire.encode_envelope(
        "order",
        {},
        topic="orders.eu",
        position=("6f0d2c1a", 4711),
        priority=8,
        category="snapshot",
        format=form,
    )
    read = tidewire.parse_envelope(published)
    assert (read.topic, read.position, read.priority) == ("orders.eu", ("6f0d2c1a", 4711), 8)
    assert (read.category, read.time, read.sequence) == ("snapshot", None, None)
    assert "orders.eu" in repr(read)


def test_older_spellings_and_missing_fields() -> None:
    read = tidewire.parse_envelope('S{"type":"state","payload":{"a":1},"x":2}')
    assert (read.category, read.type, read.payload) == ("snapshot", "state", {"a": 1})
    bare = tidewire.parse_envelope('{"t":"x"}')
    assert (bare.category, bare.payload, bare.payload_json) == (None, None, b"null")
    assert bare.payload is None
    assert tidewire.parse_envelope(bytearray(b'{"t":"x","p":[1]}')).payload == [1]


def test_the_payload_is_decoded_once_and_only_when_asked() -> None:
    read = tidewire.parse_envelope(b'{"t":"x","p":{"a":[]}}')
    assert read.payload is read.payload
    broken = tidewire.parse_envelope(b'{"t":"x","p":{"a":01}}')
    assert broken.type == "x"
    with pytest.raises(InvalidMessageError):
        _ = broken.payload
    odd_time = tidewire.parse_envelope(b'{"t":"x","ts":"yesterday"}')
    with pytest.raises(InvalidMessageError, match="yesterday"):
        _ = odd_time.time


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "[]",
        "5",
        "{",
        "{}",
        '{"t":""}',
        '{"t":5}',
        '{"t":"x","seq":-1}',
        '{"t":"x","id":{}}',
        '{"t":"x"} x',
        "M:",
    ],
)
def test_what_is_no_envelope_is_told(broken: str) -> None:
    with pytest.raises(InvalidMessageError):
        tidewire.parse_envelope(broken)


def test_forms_that_have_to_be_opened_first() -> None:
    with pytest.raises(InvalidMessageError, match="decompress"):
        tidewire.parse_envelope(tidewire.compress(b'{"t":"x"}', prefix=True))
    with pytest.raises(InvalidMessageError, match=r"SessionCipher\.open"):
        tidewire.parse_envelope(b"E:" + bytes(40))


def test_an_envelope_that_cannot_be_built() -> None:
    wrong: Any
    for wrong in (
        {"type": ""},
        {"id": "x"},
        {"category": "U"},
        {"format": "zlib"},
        {"topic": "a", "sequence": 1},
        {"topic": "a", "position": ("xyz", 1)},
        {"priority": 4},
        {"time": -1},
        {"time": float("nan")},
    ):
        with pytest.raises(InvalidArgumentError):
            tidewire.encode_envelope(**{"type": "x", **wrong})
    for wrong in ({"type": 5}, {"payload": object()}, {"sequence": "1"}, {"position": 5}):
        with pytest.raises(TidewireError):
            tidewire.encode_envelope(**{"type": "x", **wrong})
