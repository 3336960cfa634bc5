"""Whatever comes, it is taken or refused by an exception of the package."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
import tidewire
from tidewire import TidewireError, jwt

SECRET = "a secret of more than thirty-two bytes"
SESSION = "0190a5f0-0000-7000-8000-000000000001"
MESSAGE = tidewire.encode_envelope("order", {"a": [1, "ü"]}, correlation_id="c", signature="2:hs256:1:00:x")
PACKED = tidewire.encode_envelope("order", {"a": [1, "ü"]}, format="msgpack")
SEALED = tidewire.KeyPair().accept(tidewire.KeyPair().public_key, SESSION).seal(b"something")
TOKEN = jwt.encode({"sub": "a", "exp": 4102444800}, SECRET).encode()
VERIFIER = tidewire.Verifier(SECRET)
WANTED = tidewire.Filter({"a.b": {"$gt": 1}, "c": {"$regex": "x+"}})

READERS: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "decompress": (tidewire.compress(MESSAGE), lambda data: tidewire.decompress(data, bytes_max=10_000)),
    "msgpack": (PACKED, tidewire.msgpack_to_json),
    "json": (MESSAGE, tidewire.json_to_msgpack),
    "envelope": (MESSAGE, lambda data: tidewire.parse_envelope(data).payload),
    "packed envelope": (PACKED, lambda data: tidewire.parse_envelope(data).payload),
    "token": (TOKEN, lambda data: jwt.decode(data, SECRET)),
    "key": (b"-----BEGIN PUBLIC KEY-----\nAAAA\n", lambda data: jwt.TokenVerifier(data)),
    "cipher": (
        SEALED,
        lambda data: tidewire.KeyPair().accept(tidewire.KeyPair().public_key, SESSION).open(data),
    ),
    "point": (tidewire.KeyPair().public_key, lambda data: tidewire.KeyPair().accept(data, SESSION)),
    "signed message": (MESSAGE, VERIFIER.verify_message),
    "filtered": (b'{"a":{"b":2},"c":"axx"}', WANTED.matches),
    "filter": (b'{"a":{"$in":[1,2]},"$or":[{"b":1}]}', tidewire.Filter),
}


@pytest.mark.parametrize("name", READERS)
def test_broken_bytes_are_survived(name: str) -> None:
    good, read = READERS[name]
    generator = random.Random(name)
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(generator.randrange(1, 5)):
            at = generator.randrange(len(data) + 1)
            change = generator.randrange(4)
            if change == 0:
                del data[at : at + generator.randrange(1, 9)]
            elif change == 1:
                data[at:at] = generator.randbytes(generator.randrange(1, 9))
            elif change == 2 and data:
                data[at % len(data)] ^= 1 << generator.randrange(8)
            else:
                data = data[:at] * 2
        with contextlib.suppress(TidewireError):
            read(bytes(data))
    for length in (0, 1, 2, 13, 30, 65, 1000):
        with contextlib.suppress(TidewireError):
            read(generator.randbytes(length))


ODD: list[Any] = [
    None,
    True,
    -1,
    2**64,
    1.5,
    float("nan"),
    "",
    "\ud800",
    b"",
    [],
    {},
    (),
    object(),
    int,
    10**400,
]


@pytest.mark.parametrize(
    "call",
    [
        tidewire.compress,
        lambda odd: tidewire.compress(b"", odd),
        lambda odd: tidewire.decompress(b"", bytes_max=odd),
        tidewire.json_to_msgpack,
        lambda odd: tidewire.hmac_sha256(odd, b""),
        lambda odd: tidewire.hmac_sha256(b"", odd),
        lambda odd: tidewire.sign("", SECRET, version=odd),
        lambda odd: tidewire.sign("", SECRET, now=odd),
        lambda odd: tidewire.verify("", odd, SECRET),
        tidewire.Signer,
        lambda odd: tidewire.Verifier(SECRET, nonces_max=odd),
        lambda odd: tidewire.KeyPair().accept(tidewire.KeyPair().public_key, odd),
        lambda odd: tidewire.TokenBucket(odd, 1),
        lambda odd: tidewire.TokenBucket(1, odd),
        lambda odd: tidewire.TokenBucket(1, 1).take(odd),
        lambda odd: tidewire.TokenBucket(1, 1).take(now=odd),
        lambda odd: tidewire.Sequencer[int](topics_max=odd),
        lambda odd: tidewire.Sequencer[int]().add(odd, (1, 1), 1),
        lambda odd: tidewire.Sequencer[int]().add("t", odd, 1),
        lambda odd: tidewire.Sequencer[int]().add("t", (odd, odd), 1),
        lambda odd: tidewire.Sequencer[int]().expire(now=odd),
        lambda odd: tidewire.PriorityQueue[int](items_max=odd),
        lambda odd: tidewire.PriorityQueue[int]().push(1, odd),
        lambda odd: tidewire.PriorityQueue[int]().push(1, size=odd),
        lambda odd: tidewire.PriorityQueue[int]().pop_many(odd),
        tidewire.Filter,
        lambda odd: tidewire.Filter({}).matches(odd),
        lambda odd: tidewire.Filter({}).select(odd),
        tidewire.parse_envelope,
        tidewire.encode_envelope,
        lambda odd: tidewire.encode_envelope("t", odd),
        lambda odd: tidewire.encode_envelope("t", time=odd),
        lambda odd: tidewire.encode_envelope("t", topic="a", position=odd),
        lambda odd: jwt.encode(odd, SECRET),
        lambda odd: jwt.encode({}, odd),
        lambda odd: jwt.encode({"exp": odd}, SECRET),
        lambda odd: jwt.decode(TOKEN, odd),
        lambda odd: jwt.decode(odd, SECRET),
        lambda odd: jwt.decode(TOKEN, SECRET, algorithms=odd),
        lambda odd: jwt.decode(TOKEN, SECRET, leeway_s=odd),
        lambda odd: jwt.decode(TOKEN, SECRET, required=odd),
        lambda odd: jwt.decode(TOKEN, SECRET, now=odd),
    ],
)
def test_odd_arguments_are_the_callers_fault(call: Callable[[Any], Any]) -> None:
    refused = []
    for odd in ODD:
        try:
            call(odd)
        except TidewireError as error:
            refused.append(error)
    assert refused
    assert {error.fault for error in refused} <= {"caller", "peer"}
    assert all(str(error) for error in refused)
