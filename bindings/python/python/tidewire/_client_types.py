# Generated from options/client*.toml by `cargo xtask options`. Do not edit.
"""The options of a client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypedDict

from ._options import Path

Token = str | Callable[[], str] | Callable[[], Awaitable[str]]
Secret = str | bytes


class ClientOptions(TypedDict, total=False):
    """The options of `connect`. `None` is the default of each."""

    #: The token, or a function that returns one. The client calls it before each connection and
    #: before the session's token expires. With a text the client ends when its token expires.
    #: Default: none.
    token: Token
    #: Where the token is sent: in `Authorization: Bearer`, a cookie, a query parameter or a
    #: subprotocol. Default: "header".
    token_placement: Literal["header", "cookie", "query", "subprotocol"]
    #: The name of the cookie or query parameter, or the prefix of the subprotocol. Default:
    #: `access_token` for a cookie, `token` for a query parameter.
    token_name: str
    #: Further headers of the upgrade request. Default: none.
    headers: Mapping[str, str]
    #: A file with the certificates to trust for `wss://`, PEM. Default: the certificates that
    #: browsers trust.
    tls_ca_file: Path
    #: How the client selects the next of several addresses; `weighted` selects at random by weight
    #: and health. Default: "weighted".
    choice: Literal["weighted", "least_connections", "round_robin"]
    #: Time to establish a connection. Default: 10000.
    connect_timeout_ms: int
    #: Silence after which the client closes the connection; 0 for never. Default: 60000.
    idle_timeout_ms: int
    #: Time between two pings of the client, if it should be shorter than the server asks for.
    #: Default: what the server asks for.
    ping_interval_ms: int
    #: The name that the client gives itself. Default: `tidewire-client/` and the version.
    client_version: str
    #: The address of this machine to connect from. Node: `localAddress` of `nodeTransport`.
    #: Default: the system's choice.
    source_address: str
    #: Wait for the first session, with one attempt per address. With `False` the client continues
    #: to try while the program does something else. Default: True.
    wait: bool
    #: How messages are encoded in both directions. Default: "json".
    format: Literal["json", "msgpack"]
    #: How messages of 1,024 bytes and more are compressed: `zlib` as a layer of the protocol,
    #: `deflate` by the WebSocket extension. Default: "off".
    compression: Literal["off", "zlib", "deflate"]
    #: Encrypt messages inside the WebSocket. The client gives up a server that does not encrypt.
    #: Default: "off".
    encryption: Literal["off", "version-1", "on"]
    #: The server's public identity key, 65 bytes; the client gives up any other server. Default:
    #: any server.
    server_identity: bytes
    #: The secret of HMAC-SHA256 that messages are signed with, at least 32 bytes. Default: messages
    #: are not signed.
    signature_secret: Secret
    #: The version of the signatures; 1 for servers that know no other. Default: 2.
    signature_version: Literal[1, 2]
    #: Reconnect after a lost connection. Default: True.
    reconnect: bool
    #: How the time between attempts grows. Each time is random, from nothing to the full time.
    #: Default: "exponential".
    reconnect_delay: Literal["exponential", "linear", "fibonacci", "adaptive"]
    #: The full time before the first attempt. Default: 500.
    reconnect_base_ms: int
    #: The longest full time. The server may ask for a longer one. Default: 30000.
    reconnect_max_ms: int
    #: Failed attempts in a row after which the client gives up; 0 for never. Default: 0.
    reconnect_attempts_max: int
    #: Time after which the client gives up; 0 for never. Default: 0.
    reconnect_time_max_ms: int
    #: Failures in a row after which the circuit breaker of an address opens; 0 for never. Default:
    #: 5.
    breaker_failures_max: int
    #: How long a circuit breaker stays open. With one address at most `reconnect_max_ms`. Default:
    #: 30000.
    breaker_open_ms: int
    #: Attempts that must then succeed before the circuit breaker closes. Default: 1.
    breaker_trials: int
    #: Time for the answer to a request. Default: 10000.
    request_timeout_ms: int
    #: Size of a received message. Default: 16777216 (16 MiB).
    message_bytes_max: int
    #: Data that may wait to be sent; past it sending waits, in TypeScript it throws `BUSY`.
    #: Default: 4194304 (4 MiB).
    outbox_bytes_max: int
    #: Data that may wait for the program to receive it; past it the connection is not read.
    #: Default: 4194304 (4 MiB).
    inbox_bytes_max: int
    #: Requests that may wait for an answer. Default: 10000.
    requests_max: int
    #: How long a publication that arrives early waits for those before it. Default: 5000.
    reorder_window_ms: int
    #: Send no faster than the server accepts. Default: True.
    rate_limit: bool
    #: The SQLite file for messages that must arrive, or `:memory:`. One client at a time uses a
    #: file; only its owner may read it. Default: no queue.
    offline_queue: Path
    #: Messages in the queue. Default: 100000.
    queue_messages_max: int
    #: Size of the payloads in the queue. Default: 67108864 (64 MiB).
    queue_bytes_max: int
    #: How long an unsent message is kept; 0 for any time. Default: 86400000.
    queue_age_max_ms: int
    #: Messages that may be sent and not acknowledged yet. Default: 1024.
    queue_window: int
    #: Send messages again if the server has forgotten this client, so that it is unknown whether
    #: they arrived; otherwise they are dropped and reported (`uncertain`). Default: False.
    queue_resend_uncertain: bool
