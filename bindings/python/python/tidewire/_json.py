"""The JSON of Python values."""

from __future__ import annotations

import base64
import dataclasses
import os
from collections.abc import Mapping, Set
from decimal import Decimal
from typing import Any

import orjson

OPTION = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC | orjson.OPT_SERIALIZE_NUMPY

encode = orjson.dumps
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
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (Set, tuple)):
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
