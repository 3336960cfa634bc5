"""The options of a client."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from ._native import nearest_name
from ._options import Path
from .errors import ConfigurationError, InvalidArgumentError, WrongTypeError

Url = str | Sequence[str | tuple[str, int]]
Token = str | Callable[[], str] | Callable[[], Awaitable[str]]
Secret = str | bytes


class ClientOptions(TypedDict, total=False):
    """The options of `connect`. `None` is the default of each."""

    #: The token, or a function that gives one, `def` or `async def`. It is called before each connection,
    #: and when the session's token is about to expire, on a thread of its own. With a text the client ends when
    #: its token expires.
    token: Token
    #: How the token is sent. Default `"header"`: `Authorization: Bearer`.
    token_placement: Literal["header", "cookie", "query", "subprotocol"]
    #: The name of the cookie (default `access_token`) or query parameter (default `token`), or what the
    #: subprotocol begins with.
    token_name: str
    #: Further headers of the upgrade request.
    headers: Mapping[str, str]
    #: A file with the certificates to trust for `wss://`, PEM. Default: those that browsers trust.
    tls_ca_file: Path
    #: How messages are encoded, both ways. Default `"json"`.
    format: Literal["json", "msgpack"]
    #: How messages of 1,024 bytes and more are compressed: `"zlib"` as a layer of the protocol's own,
    #: `"deflate"` by the WebSocket extension. Default `"off"`.
    compression: Literal["off", "zlib", "deflate"]
    #: Encrypts messages inside the WebSocket. A server that does not is given up. Default `"off"`.
    encryption: Literal["off", "on", "version-1"]
    #: With `encryption="on"`: the server's public identity key, 65 bytes; any other server is given up.
    server_identity: bytes
    #: Signs messages with HMAC-SHA256; at least 32 bytes.
    signature_secret: Secret
    #: 1 for servers that know no other. Default 2.
    signature_version: Literal[1, 2]
    #: Which of several addresses comes next. Default `"weighted"`: at random, by weight and health.
    choice: Literal["weighted", "least_connections", "round_robin"]
    #: Come back after a lost connection. Default True.
    reconnect: bool
    #: How the time between attempts grows. Each time is drawn at random from nothing to the full one.
    #: Default `"exponential"`.
    reconnect_delay: Literal["exponential", "linear", "fibonacci", "adaptive"]
    #: The full time before the first attempt. Default 500.
    reconnect_base_ms: int
    #: The longest full time. What the server asks for may be longer. Default 30000.
    reconnect_max_ms: int
    #: Attempts in a row that may fail; 0 for any number. Default 0.
    reconnect_attempts_max: int
    #: For how long to try; 0 for ever. Default 0.
    reconnect_time_max_ms: int
    #: Failures in a row after which an address is left alone; 0 for never. Default 5.
    breaker_failures_max: int
    #: For how long it is left alone. Default 30000.
    breaker_open_ms: int
    #: Attempts that then have to succeed before it counts as well. Default 1.
    breaker_trials: int
    #: Time for a connection to be established. Default 10000.
    connect_timeout_ms: int
    #: Time for the answer to a request. Default 10000.
    request_timeout_ms: int
    #: Silence after which the server is given up; 0 for never. Default 60000.
    idle_timeout_ms: int
    #: Time between pings, if they are to come more often than the server asks for.
    ping_interval_ms: int
    #: The largest message that is received. Default 16 MiB.
    message_bytes_max: int
    #: What may wait to be sent; then sending waits. Default 4 MiB.
    outbox_bytes_max: int
    #: What may wait to be received by the program; then the server is held back. Default 4 MiB.
    inbox_bytes_max: int
    #: Requests that may wait for an answer. Default 10000.
    requests_max: int
    #: For how long a publication that comes before its turn waits for those before it. Default 5000.
    reorder_window_ms: int
    #: Send no faster than the server takes. Default True.
    rate_limit: bool
    #: What the client calls itself.
    client_version: str
    #: The SQLite file for messages that must arrive (`send_acknowledged`), or `":memory:"`. One client at a
    #: time uses a file.
    offline_queue: Path
    #: Messages in it at most. Default 100000.
    queue_messages_max: int
    #: Bytes of their payloads at most. Default 64 MiB.
    queue_bytes_max: int
    #: For how long a message is kept that was not sent; 0 for ever. Default a day.
    queue_age_max_ms: int
    #: Messages that may be on their way without an acknowledgement. Default 1024.
    queue_window: int
    #: Send messages again of which it is not known whether they arrived, because the server has forgotten
    #: this client; else they are dropped and told (`uncertain`). Default False.
    queue_resend_uncertain: bool
    #: Wait for the first session, with one attempt for each address. With False the client goes on trying
    #: while the program does something else. Default True.
    wait: bool


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
