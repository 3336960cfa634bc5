"""Checks of the options of a client."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ._native import nearest_name
from .errors import ConfigurationError, InvalidArgumentError, WrongTypeError

Url = str | Sequence[str | tuple[str, int]]


def split_options(
    url: Url, options: Mapping[str, Any], known: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Checks the options, and parts those that are JSON from those that are not."""
    _check_names(options, known)
    plain = {name: value for name, value in options.items() if value is not None}
    plain["urls"] = [url] if isinstance(url, str) else _urls(url)
    apart: dict[str, Any] = {}
    token = plain.pop("token", None)
    if callable(token):
        apart["token_provider"] = token
    elif token is not None:
        apart["token"] = _text("token", token)
    secret = plain.pop("signature_secret", None)
    if secret is not None:
        apart["signature_secret"] = _secret("signature_secret", secret)
    identity = plain.pop("server_identity", None)
    if identity is not None:
        apart["server_identity"] = _bytes("server_identity", identity)
    for name in ("offline_queue", "tls_ca_file"):
        if name in plain:
            plain[name] = _path(name, plain[name])
    return plain, apart


def call_for_token(provider: Callable[[], Any]) -> str:
    """Calls a function that gives tokens, whatever kind it is."""
    token = provider()
    if inspect.isawaitable(token):
        token = asyncio.run(_awaited(token))
    return _text("the token", token)


def _check_names(options: Mapping[str, Any], known: list[str]) -> None:
    """Raises `ConfigurationError` for the first option that does not exist, with the nearest that does."""
    for name in options:
        if name not in known:
            nearest = nearest_name(name, known)
            hint = f": did you mean {nearest}?" if nearest else ""
            raise ConfigurationError(f"unknown option {name}{hint}")


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _urls(urls: Any) -> list[Any]:
    try:
        return [url if isinstance(url, str) else list(url) for url in urls]
    except TypeError:
        raise ConfigurationError(
            f"an address is a text such as ws://127.0.0.1:5006/ws, not {urls!r}"
        ) from None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise WrongTypeError(f"{name} is a text, not a {type(value).__name__}")
    return value


def _secret(name: str, value: object) -> bytes:
    if not isinstance(value, str):
        return _bytes(name, value)
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"{name} has a lone surrogate, which has no UTF-8") from None


def _path(name: str, value: Any) -> str:
    try:
        path: str | bytes = os.fspath(value)
    except TypeError:
        raise WrongTypeError(f"{name} is a path, not a {type(value).__name__}") from None
    return os.fsdecode(path)


def _bytes(name: str, value: object) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise WrongTypeError(f"{name} is bytes, not a {type(value).__name__}")
    return bytes(value)
