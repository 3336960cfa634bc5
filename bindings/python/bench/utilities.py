"""The utilities beside what one would use without them, in interleaved rounds.

    python bench/utilities.py             # some minutes
    python bench/utilities.py --quick     # to see that it works
    python bench/utilities.py --only jwt

Each line is one operation: the median of all rounds of ours, the other's, and how many times faster ours is. Rounds
of both alternate, so that whatever else the machine does meets both.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import heapq
import hmac
import itertools
import json
import random
import secrets
import statistics
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tidewire

Operation = Callable[[], object]


class Comparison(NamedTuple):
    """One line of the table."""

    name: str
    other_name: str
    ours: Operation
    other: Operation
    operations: int = 1


SECRET = "a secret of more than thirty-two bytes"
TRADE = {
    "symbol": "EURUSD",
    "side": "buy",
    "order": {"id": 4711, "price": 1.08512, "quantity": 100_000, "kind": "limit"},
    "tags": ["desk-7", "algo"],
    "account": "client-0042",
    "note": "filled in two parts",
}
TRADE_JSON = json.dumps(TRADE, separators=(",", ":")).encode()


def jwt_comparisons() -> Iterator[Comparison]:
    """Tokens."""
    import jwt as pyjwt
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    claims = {"sub": "user-1", "exp": int(time.time()) + 3600, "roles": ["reader", "writer"]}
    token = pyjwt.encode(claims, SECRET)
    yield Comparison(
        "JWT sign, HS256",
        "PyJWT",
        lambda: tidewire.jwt.encode(claims, SECRET),
        lambda: pyjwt.encode(claims, SECRET),
    )
    yield Comparison(
        "JWT check, HS256",
        "PyJWT",
        lambda: tidewire.jwt.decode(token, SECRET),
        lambda: pyjwt.decode(token, SECRET, algorithms=["HS256"]),
    )
    pairs: list[tuple[Any, Any]] = [
        ("RS256", rsa.generate_private_key(65537, 2048)),
        ("ES256", ec.generate_private_key(ec.SECP256R1())),
    ]
    for algorithm, private in pairs:
        public = private.public_key()
        pem = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        public_pem = public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ).decode()
        signer, verifier = tidewire.jwt.TokenSigner(pem), tidewire.jwt.TokenVerifier(public_pem)
        signed = pyjwt.encode(claims, private, algorithm=algorithm)
        yield Comparison(
            f"JWT sign, {algorithm}, key read before",
            "PyJWT",
            lambda signer=signer: signer.encode(claims),
            lambda private=private, algorithm=algorithm: pyjwt.encode(claims, private, algorithm=algorithm),
        )
        yield Comparison(
            f"JWT check, {algorithm}, key read before",
            "PyJWT",
            lambda verifier=verifier, signed=signed: verifier.decode(signed),
            lambda public=public, signed=signed, algorithm=algorithm: pyjwt.decode(
                signed, public, algorithms=[algorithm]
            ),
        )


def compression_comparisons() -> Iterator[Comparison]:
    """zlib."""
    large = b",".join([TRADE_JSON] * 300)
    yield Comparison(
        "compress a message of 200 bytes, level 1",
        "zlib",
        lambda: tidewire.compress(TRADE_JSON, 1),
        lambda: zlib.compress(TRADE_JSON, 1),
    )
    for name, plain in (("a message of 200 bytes", TRADE_JSON), ("60 KB of messages", large)):
        packed = zlib.compress(plain, 6)
        yield Comparison(
            f"compress {name}",
            "zlib",
            lambda plain=plain: tidewire.compress(plain),
            lambda plain=plain: zlib.compress(plain, 6),
        )
        yield Comparison(
            f"decompress {name}",
            "zlib",
            lambda packed=packed: tidewire.decompress(packed),
            lambda packed=packed: zlib.decompress(packed),
        )


class PythonBucket:
    """A token bucket as one writes it."""

    def __init__(self, capacity: float, refill_per_s: float) -> None:
        self.capacity = self.tokens = capacity
        self.refill_per_s = refill_per_s
        self.last = time.monotonic()

    def take(self) -> tuple[bool, float]:
        now = time.monotonic()
        self.tokens = min(self.capacity, self.tokens + (now - self.last) * self.refill_per_s)
        self.last = now
        if self.tokens >= 1:
            self.tokens -= 1
            return True, self.tokens
        return False, (1 - self.tokens) / self.refill_per_s


class PythonSequencer:
    """Duplicates and gaps of topics as one writes it, with a limit to what is held and for how long."""

    def __init__(self, held_max: int = 1024, window_s: float = 1.0) -> None:
        self.last: dict[str, tuple[int, int]] = {}
        self.held: dict[str, dict[int, object]] = {}
        self.deadlines: dict[str, float] = {}
        self.held_max = held_max
        self.window_s = window_s

    def add(self, topic: str, position: tuple[int, int], message: object) -> tuple[str, list[object]]:
        epoch, offset = position
        last = self.last.get(topic)
        if last is None or last[0] != epoch:
            self.last[topic] = position
            self.held[topic] = {}
            return "delivered", [message]
        held = self.held[topic]
        if offset <= last[1] or offset in held:
            return "duplicate", []
        if offset == last[1] + 1:
            out = [message]
            while held and offset + 1 in held:
                offset += 1
                out.append(held.pop(offset))
            self.last[topic] = epoch, offset
            if not held:
                self.deadlines.pop(topic, None)
            return "delivered", out
        if len(held) >= self.held_max:
            raise OverflowError("too many are held")
        held[offset] = message
        self.deadlines.setdefault(topic, time.monotonic() + self.window_s)
        return "held", []


def queue_comparisons() -> Iterator[Comparison]:
    """A queue of waiting items, and its speed."""
    bucket, plain_bucket = tidewire.TokenBucket(4_000_000, 4_000_000), PythonBucket(4_000_000, 4_000_000)
    yield Comparison("token bucket, one try", "a class", bucket.take, plain_bucket.take)

    items = [(random.Random(n).choice([1, 3, 5, 8, 10]), f"item {n}") for n in range(1000)]

    def ours() -> None:
        queue: tidewire.PriorityQueue[str] = tidewire.PriorityQueue()
        for priority, item in items:
            queue.push(item, priority)  # type: ignore[arg-type]
        while queue.pop() is not None:
            pass

    def by_heap() -> None:
        heap: list[tuple[int, int, str]] = []
        number = itertools.count()
        for priority, item in items:
            heapq.heappush(heap, (-priority, next(number), item))
        while heap:
            heapq.heappop(heap)

    yield Comparison("priority queue, in and out", "heapq", ours, by_heap, len(items))

    offsets = [*range(1, 1001)]
    for at in range(0, 1000, 50):
        offsets[at : at + 2] = reversed(offsets[at : at + 2])
    message = object()

    def sequenced() -> None:
        sequencer: tidewire.Sequencer[object] = tidewire.Sequencer()
        sequencer.advance("topic", (1, 0))
        for offset in offsets:
            sequencer.add("topic", (1, offset), message)

    def by_dict() -> None:
        sequencer = PythonSequencer()
        sequencer.add("topic", (1, 0), message)
        for offset in offsets:
            sequencer.add("topic", (1, offset), message)

    yield Comparison("sequencer, one in 50 early", "a class", sequenced, by_dict, len(offsets))


def filter_comparisons() -> Iterator[Comparison]:
    """Which messages are wanted."""
    wanted = tidewire.Filter(
        {"side": "buy", "order.price": {"$gte": 1, "$lt": 2}, "symbol": {"$in": ["EURUSD", "GBPUSD"]}}
    )

    def by_hand(trade: dict[str, Any]) -> bool:
        order = trade.get("order")
        price = order.get("price") if isinstance(order, dict) else None
        return (
            trade.get("side") == "buy"
            and isinstance(price, (int, float))
            and 1 <= price < 2
            and trade.get("symbol") in ("EURUSD", "GBPUSD")
        )

    yield Comparison(
        "filter, JSON text",
        "json.loads and if",
        lambda: wanted.matches(TRADE_JSON),
        lambda: by_hand(json.loads(TRADE_JSON)),
    )
    import orjson

    yield Comparison(
        "filter, JSON text",
        "orjson and if",
        lambda: wanted.matches(TRADE_JSON),
        lambda: by_hand(orjson.loads(TRADE_JSON)),
    )


def signature_comparisons() -> Iterator[Comparison]:
    """The writer of a message."""
    key = SECRET.encode()
    yield Comparison(
        "HMAC-SHA256 of 200 bytes",
        "hmac.digest",
        lambda: tidewire.hmac_sha256(key, TRADE_JSON),
        lambda: hmac.digest(key, TRADE_JSON, "sha256"),
    )
    large = TRADE_JSON * 300
    yield Comparison(
        "HMAC-SHA256 of 60 KB",
        "hmac.digest",
        lambda: tidewire.hmac_sha256(key, large),
        lambda: hmac.digest(key, large, "sha256"),
    )

    def by_hand() -> str:
        digest = hashlib.sha256(TRADE_JSON).hexdigest()
        signed = f"{digest}:{int(time.time())}:{secrets.token_hex(16)}"
        return f"{signed}:{hmac.new(key, signed.encode(), 'sha256').hexdigest()}"

    signer = tidewire.Signer(key)
    yield Comparison(
        "sign a message", "hashlib and hmac", lambda: signer.sign(TRADE_JSON, version=1), by_hand
    )


def encryption_comparisons() -> Iterator[Comparison]:
    """Keys, and what is sealed with them."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    session = str(uuid.uuid4())
    peer = tidewire.KeyPair()
    cipher = tidewire.KeyPair().accept(peer.public_key, session)
    other = AESGCM(secrets.token_bytes(32))

    def sealed_by_hand() -> bytes:
        iv = secrets.token_bytes(12)
        return b"E:" + iv + other.encrypt(iv, TRADE_JSON, b"E:")

    yield Comparison("encrypt 200 bytes", "cryptography", lambda: cipher.seal(TRADE_JSON), sealed_by_hand)
    theirs = ec.generate_private_key(ec.SECP256R1()).public_key()

    def agreed_by_hand() -> object:
        own = ec.generate_private_key(ec.SECP256R1())
        key = HKDF(SHA256(), 32, salt=None, info=b"wse-encryption/aes-gcm-key")
        return AESGCM(key.derive(own.exchange(ec.ECDH(), theirs)))

    yield Comparison(
        "agree on a key",
        "cryptography",
        lambda: tidewire.KeyPair().accept(peer.public_key, session, version=1),
        agreed_by_hand,
    )


def envelope_comparisons() -> Iterator[Comparison]:
    """Messages as they travel."""
    message = tidewire.encode_envelope("trade", TRADE)

    def built_by_hand() -> bytes:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"
        fields = {"c": "U", "t": "trade", "id": str(uuid.uuid4()), "ts": stamp, "seq": 0, "p": TRADE, "v": 1}
        return json.dumps(fields, separators=(",", ":")).encode()

    yield Comparison(
        "build an envelope", "json.dumps", lambda: tidewire.encode_envelope("trade", TRADE), built_by_hand
    )
    yield Comparison(
        "read an envelope's type",
        "json.loads",
        lambda: tidewire.parse_envelope(message).type,
        lambda: json.loads(message)["t"],
    )
    yield Comparison(
        "read an envelope with its payload",
        "json.loads",
        lambda: tidewire.parse_envelope(message).payload,
        lambda: json.loads(message)["p"],
    )
    try:
        import msgpack
    except ImportError:
        return
    packed = tidewire.json_to_msgpack(TRADE_JSON)
    yield Comparison(
        "JSON to MessagePack",
        "json and msgpack",
        lambda: tidewire.json_to_msgpack(TRADE_JSON),
        lambda: msgpack.packb(json.loads(TRADE_JSON)),
    )
    yield Comparison(
        "MessagePack to JSON",
        "json and msgpack",
        lambda: tidewire.msgpack_to_json(packed),
        lambda: json.dumps(msgpack.unpackb(packed)),
    )


PARTS: dict[str, Callable[[], Iterator[Comparison]]] = {
    "jwt": jwt_comparisons,
    "compression": compression_comparisons,
    "queues": queue_comparisons,
    "filter": filter_comparisons,
    "signatures": signature_comparisons,
    "encryption": encryption_comparisons,
    "envelopes": envelope_comparisons,
}


def timed(operation: Operation, loops: int) -> float:
    """Seconds for each call."""
    start = time.perf_counter()
    for _ in range(loops):
        operation()
    return (time.perf_counter() - start) / loops


def loops_for(operation: Operation, seconds: float) -> int:
    """How many calls take so many seconds."""
    loops = 1
    while timed(operation, loops) * loops < seconds / 5:
        loops *= 2
    return loops * 5


def measured(comparison: Comparison, rounds: int, seconds: float) -> tuple[float, float]:
    """Nanoseconds for one operation of ours and of the other's: the medians of all rounds."""
    sides = (comparison.ours, comparison.other)
    loops = [loops_for(side, seconds) for side in sides]
    times: list[list[float]] = [[], []]
    gc.collect()
    for index in range(rounds):
        # Who goes first changes.
        for side in (index % 2, 1 - index % 2):
            times[side].append(timed(sides[side], loops[side]))
    ours, other = (statistics.median(side) * 1e9 / comparison.operations for side in times)
    return ours, other


def duration(nanoseconds: float) -> str:
    """A time with three digits."""
    if nanoseconds < 1000:
        return f"{nanoseconds:.0f} ns"
    if nanoseconds < 1e6:
        return f"{nanoseconds / 1e3:.3g} µs"
    return f"{nanoseconds / 1e6:.3g} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each side (default 9)")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a round (default 0.2)")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="these parts alone")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 10 ms")
    options = parser.parse_args()
    rounds, seconds = (3, 0.01) if options.quick else (options.rounds, options.seconds)
    print("| operation | Tidewire | beside | its time | times as fast |")
    print("|---|---|---|---|---|")
    for part in options.only or PARTS:
        for comparison in PARTS[part]():
            ours, other = measured(comparison, rounds, seconds)
            ratio = f"{other / ours:.2g}" if other < 99.5 * ours else f"{other / ours:.0f}"
            name, beside = comparison.name, comparison.other_name
            print(f"| {name} | {duration(ours)} | {beside} | {duration(other)} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
