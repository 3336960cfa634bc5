"""The JSON of Python values."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import os
import uuid
from collections.abc import Mapping, Set
from decimal import Decimal
from typing import Any

import orjson

OPTION = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC | orjson.OPT_SERIALIZE_NUMPY

decode = orjson.loads

RawJson = orjson.Fragment
"""JSON text, `bytes` or `str`, to be put into a message as it is: `RawJson(b'{"n":1}')`."""


def default(value: Any) -> Any:
    """The form of what JSON itself does not have.

    `datetime`, `date`, `time`, `UUID`, `Enum`, dataclasses and numpy arrays are known to the encoder already.
    """
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(
            "bytes are a payload by themselves, not a part of one: write them as a text, such as base64"
        )
    if isinstance(value, Set):
        raise TypeError(f"a {type(value).__name__} has no order: make a list of it")
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    dump = getattr(value, "model_dump", None)  # pydantic
    if callable(dump):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


class Missing(enum.Enum):
    """The default of payloads: no payload, which arrives as `{}`. `None` is null."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return "<missing>"


MISSING = Missing.MISSING


def encode(value: Any, default: Any, option: int) -> bytes:
    """JSON text of a value.

    Raises:
        TypeError: JSON has no form of a part of it, whose place is named.
    """
    if value is MISSING:
        return b"{}"
    try:
        text = orjson.dumps(value, default, option)
    except TypeError:
        return orjson.dumps(_plain(value, ""), default, option)
    if b"null" in text:
        # The encoder writes null for what is no number.
        _plain(value, "")
    return text


def decode_exact(text: bytes) -> Any:
    """The value of JSON text, with integers of any size."""
    return json.loads(text, parse_int=_integer)


def decode_lenient(text: bytes) -> Any:
    """The value of a payload that is not JSON, as an old server may have kept it: with NaN, and U+FFFD for half a
    character. Text that is nothing of the kind is given as a `str`."""
    mended = text.decode("utf-8", "replace")
    try:
        return _mended(json.loads(mended, parse_int=_integer))
    except (ValueError, RecursionError):
        return mended


def _integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # More digits than Python converts.
        return float(digits)


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value


def _plain(value: Any, place: str) -> Any:
    """What the encoder can write of a value, with integers of any size as text of their own."""
    if value is None or isinstance(value, (bool, orjson.Fragment, *KNOWN)):
        return value
    if isinstance(value, enum.Enum):
        return _plain(value.value, place)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise TypeError(f"{_named(place)} has a lone surrogate, which has no UTF-8") from None
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else orjson.Fragment(str(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{_named(place)} is {value}, which JSON does not have")
        return value
    if len(place) > PLACE_MAX:
        raise TypeError(f"{_named(place[:80])}… is nested too deeply")
    if isinstance(value, Mapping):
        return {_key(key, place): _plain(item, f"{place}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
    if getattr(getattr(value, "dtype", None), "kind", None) in ("f", "i", "u", "b"):
        return _plain(value.tolist(), place)  # numpy
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value), place)
    try:
        return _plain(default(value), place)
    except TypeError as error:
        if str(error).startswith(PLACE):
            raise
        raise TypeError(f"{_named(place)}: {error}") from None


def _key(key: Any, place: str) -> Any:
    if isinstance(key, float) and not math.isfinite(key):
        raise TypeError(f"a key of {_named(place)} is {key}, which JSON does not have")
    plain = _plain(key, f"{place}[{key!r}]")
    return str(key) if isinstance(plain, orjson.Fragment) else plain


def _named(place: str) -> str:
    return f"{PLACE}{place}"


PLACE = "value"
PLACE_MAX = 2000
KNOWN = (datetime.datetime, datetime.date, datetime.time, uuid.UUID)
