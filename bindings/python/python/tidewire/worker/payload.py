"""The messages of the tests: the load lab's trades, as Python values."""

from __future__ import annotations

import functools
import itertools
import random
import string
from collections.abc import Callable
from typing import Any

import orjson

SYMBOLS = (
    "BTC-USD",
    "ETH-USD",
    "SOL-USD",
    "XRP-EUR",
    "ADA-USD",
    "LTC-USD",
    "AAPL",
    "MSFT",
    "AMZN",
    "NVDA",
    "EUR-USD",
    "GBP-JPY",
)
LETTERS = "".join(random.Random(0).choices(string.digits + string.ascii_lowercase, k=128 * 1024))
TRADE_BYTES = 175
PAYLOAD_BYTES_MIN = 64
FULL_BYTES_MIN = 170
TRADES_BYTES_MIN = 512
RING_MIN, RING_MAX, RING_BYTES = 16, 256, 1024 * 1024

Payload = dict[str, Any]


def message_bytes(type: str, payload: Payload) -> int:
    """The length of a message as the application sees it, in JSON."""
    return len(orjson.dumps({"t": type, "p": payload}))


def trade(size: int, generator: random.Random) -> Payload:
    """One trade whose message has so many bytes."""
    symbol = generator.choice(SYMBOLS)
    price = generator.randrange(100, 10_000_000) / 100
    payload: Payload
    if size < FULL_BYTES_MIN:
        payload = {"s": symbol, "x": price, "r": ""}
        filled = "r"
    else:
        payload = {
            "symbol": symbol,
            "price": price,
            "quantity": generator.randrange(1, 1_000_000) / 1_000_000,
            "side": generator.choice(("buy", "sell")),
            "venue": "XNAS",
            "ts": 1_700_000_000_000 + generator.randrange(100_000_000_000),
            "ref": "",
        }
        filled = "ref"
    payload[filled] = letters(size - message_bytes("trade", payload), generator)
    return payload


def letters(count: int, generator: random.Random) -> str:
    """Random letters, from a random place in many."""
    start = generator.randrange(len(LETTERS))
    text = LETTERS[start : start + max(0, count)]
    while len(text) < count:
        text += LETTERS[: count - len(text)]
    return text


def trades(size: int, generator: random.Random) -> Payload:
    """Several trades whose message has so many bytes."""
    rows: list[Payload] = []
    payload: Payload = {"venue": "XNAS", "trades": rows, "note": ""}
    left = size - message_bytes("trades", payload)
    while True:
        row = {**trade(FULL_BYTES_MIN, generator), "ref": ""}
        # A comma stands before all but the first.
        taken = len(orjson.dumps(row)) + min(1, len(rows))
        if taken > left:
            break
        rows.append(row)
        left -= taken
    payload["note"] = ("partial fill " * (left // 13 + 1))[:left]
    return payload


class Messages:
    """A ring of messages of one size; each message sent is a new value."""

    def __init__(self, size: int, *, several: bool = False, seed: int = 1, least: int = RING_MIN) -> None:
        if size < PAYLOAD_BYTES_MIN:
            raise ValueError(f"a message takes at least {PAYLOAD_BYTES_MIN} bytes")
        generator = random.Random(seed)
        self.size = size
        self.type = "trades" if several and size >= TRADES_BYTES_MIN else "trade"
        make = trades if self.type == "trades" else trade
        wanted = max(least, RING_MIN, min(RING_MAX, RING_BYTES // size))
        known: dict[bytes, Payload] = {}
        while len(known) < wanted:
            # No two are alike, so that each reply has its one message.
            made = make(size, generator)
            known[orjson.dumps(made)] = made
        self.ring = list(known.values())

    def stream(self, start: int) -> Callable[[], Payload]:
        """The source of a new message's payload, beginning somewhere in the ring."""
        at = start % len(self.ring)
        following = itertools.cycle(self.ring[at:] + self.ring[:at])
        return lambda: next(following).copy()


@functools.lru_cache(maxsize=4)
def messages(size: int, several: bool, seed: int, least: int = RING_MIN) -> Messages:
    """The messages of a test, made once in a process."""
    return Messages(size, several=several, seed=seed, least=least)


def publication(number: int, due_us: Any, size: int) -> Payload:
    """A publication of a fan-out: its number, when it was due, and as many letters as its size takes."""
    payload: Payload = {"n": number, "at": due_us, "x": ""}
    message = {"c": "U", "t": "f", "tp": "fan-out", "p": payload}
    payload["x"] = "x" * max(0, size - len(orjson.dumps(message)))
    return payload
