"""The options of a server."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, Union

Path = Union[str, "os.PathLike[str]"]
Overload = Literal["disconnect", "conflate", "drop_oldest"]


class TopicRule(TypedDict, total=False):
    """What is kept of the topics that match a pattern; `pattern` has to be there."""

    #: A topic's name, or a pattern such as `orders.*` and `orders.>`.
    pattern: str
    #: Publications kept of each topic.
    history_publications: int
    #: The same in bytes. Default 4 MiB.
    history_bytes: int
    #: Only publications younger than this are kept, in seconds; 0 for any age. Default 0.
    history_age_s: int
    #: Subscribers get the newest publication at once; with `history_publications`. Default False.
    last_value: bool
    #: Subscribers are told who else is there. Default False.
    presence: bool
    #: What happens to a subscription that lags and says nothing about it. Default `disconnect`.
    overload: Overload
    #: The priority of publications: 1, 3, 5, 8 or 10. Default 5.
    priority: int


class ServerOptions(TypedDict, total=False):
    """The options of `tidewire serve`, with the same names and units; `None` is the default of each.

    Protocol version 1 wants a key to check tokens with (`jwt_secret`, `jwt_secret_file` or `jwt_public_key`), or
    `no_auth=True`. Limits hold for each connection unless they say otherwise.
    """

    #: Where clients connect, such as `0.0.0.0:5006`; instead of `host` and `port`.
    listen: str
    #: The address to listen on, `0.0.0.0` for all. Default `127.0.0.1`.
    host: str
    #: The port; 0 takes a free one. Default 5006.
    port: int
    #: Where /health, /ready, /metrics and /stats are answered, without authentication, and the HTTP API.
    ops_listen: str
    #: A file with the key of the HTTP API, at least 16 visible letters; without it the API is off.
    api_key_file: Path
    #: The key of the HTTP API itself.
    api_key: str
    #: Event loops, each with a thread of its own. Default one per core.
    shards: int
    #: What is spoken inside the WebSocket: Tidewire's protocol version 1, which wants a token unless `no_auth`
    #: is given, or plain messages for any client. Default `"v1"`.
    protocol: Literal["v1", "raw"]
    #: Paths that take connections, or `any`. Default `/ws` and `/wse`.
    path: str | Sequence[str]
    #: Origins of web pages that may connect besides those of the same host, or `any`.
    origin: str | Sequence[str]
    #: Subprotocols that are confirmed to clients that offer them; the client's first if none is given.
    subprotocol: str | Sequence[str]
    #: Names by which the server may be called, such as `app.example.com` or `*.example.com`, or `any`. Default any, but
    #: none for web pages on a loopback address without authentication.
    allow_host: str | Sequence[str]
    #: Proxies that are believed when they tell whom they forward, such as `10.0.0.0/8`.
    trusted_proxy: str | Sequence[str]
    #: The header line that they write. Default `"x-forwarded-for"`.
    forwarded_header: Literal["x-forwarded-for", "forwarded"]
    #: A file with the certificate chain, PEM; with `tls_key` it turns TLS on.
    tls_certificate: Path
    #: The certificate's private key, PEM.
    tls_key: Path
    #: Sessions in all; the next one gets HTTP 503. Default 1000000.
    connections_max: int
    #: Connections in the opening handshake that are read, in all; past it, the address with the most gives way.
    #: Default 512.
    handshakes_max: int
    #: The same of one address (IPv6: of a /64); further ones wait for those of their own address. Default 256.
    handshakes_per_address_max: int
    #: Connections that wait so, in all. Default 16384.
    handshakes_parked_max: int
    #: Time for the opening handshake, TLS included. Default 10000.
    handshake_timeout_ms: int
    #: Size of the head of the upgrade request. Default 16384.
    request_head_bytes_max: int
    #: Size of a message, also when inflated. Default 1048576.
    message_bytes_max: int
    #: Messages that may come at once; 0 for no rate limit. Default 100000.
    rate_limit_capacity: int
    #: Messages a second that may come in the long run. Default 10000.
    rate_limit_refill_per_s: int
    #: Messages that may have to be refused in `errors_window_ms` before the connection is closed; 0 for no
    #: limit. Default 50.
    errors_max: int
    #: The time in which so many errors are forgotten. Default 10000.
    errors_window_ms: int
    #: What may wait to be sent before the connection is closed. Default 16777216.
    outbox_bytes_max: int
    #: What may wait for all connections together, in bytes; past it a connection for which more than 64 KiB wait is
    #: closed. Default 1 GiB.
    outboxes_bytes_max: int
    #: What may wait to be sent before nothing more is read. Default 1048576.
    outbox_pause_bytes: int
    #: What the kernel may hold unread of a connection that sends fast; 0 leaves it to the kernel. Default 4194304.
    receive_buffer_bytes_max: int
    #: The same of all connections together; each gets an equal part, but at least 64 KiB. Default 1073741824.
    receive_buffers_bytes_max: int
    #: Time between the server's pings. Default 25000.
    ping_interval_ms: int
    #: Silence after which a connection is closed. Default 60000.
    idle_timeout_ms: int
    #: Time a peer has to answer a close. Default 5000.
    close_timeout_ms: int
    #: Time that an event loop may take for one turn before it counts as stuck. Default 5000.
    shard_stall_ms: int
    #: Wait that a client is told that finds the server full. Default 5.
    retry_after_s: int
    #: How long the application has to answer a call of a client. Default 10000.
    call_timeout_ms: int
    #: Calls that may be open at once, in each direction. Default 100.
    calls_per_connection_max: int
    #: Milliseconds of each second that the requests of one user or, without tokens, of one address may keep an event
    #: loop busy; 0 for no limit. Default 500.
    owner_work_ms_per_s: int
    #: Drop messages for the application whose `id` has come before from the same user.
    deduplicate: bool
    #: Ids remembered for that, in all. Default 50000.
    intake_ids_max: int
    #: Producers (those who number their messages) that are remembered, in all. Default 10000.
    producers_max: int
    #: How long a producer without a connection is remembered. Default 3600000.
    producer_ttl_ms: int
    #: Sessions that each event loop closes in a second of a drain; 0 for all in half of `drain_timeout_ms`.
    #: Default 0.
    drain_rate_per_s: int
    #: Clients that have to leave are told to come back after a random time of up to so long; 0 to tell
    #: nothing. Default 5000.
    reconnect_spread_ms: int
    #: The secret of HS256 tokens, 32 bytes or more.
    jwt_secret: str
    #: A file with that secret.
    jwt_secret_file: Path
    #: A file with the public key of tokens, PEM; with `jwt_algorithm`.
    jwt_public_key: Path
    #: What the public key is for.
    jwt_algorithm: Literal["rs256", "es256", "eddsa"]
    #: Accept only tokens that name this key (`kid`).
    jwt_key_id: str
    #: During rotation: the secret before, still accepted.
    jwt_previous_secret: str
    #: A file with that secret.
    jwt_previous_secret_file: Path
    #: During rotation: a file with the public key before, still accepted.
    jwt_previous_public_key: Path
    #: What that public key is for.
    jwt_previous_algorithm: Literal["rs256", "es256", "eddsa"]
    #: The `kid` of the previous key.
    jwt_previous_key_id: str
    #: What the claim `iss` has to be.
    jwt_issuer: str
    #: What the claim `aud` has to be or contain.
    jwt_audience: str
    #: How far the clocks of signer and server may be apart. Default 5.
    jwt_leeway_s: int
    #: How long a session goes on after its token has expired, so that a new token that is late can
    #: still come; at least `jwt_leeway_s`. Then it ends with close code 4401. Default 10.
    token_grace_s: int
    #: How long before that a client is told that its token expires; of a token that is good for less
    #: than twice as long, half of that. 0 for never. Default 60.
    token_warning_s: int
    #: Sessions go on when their token has expired.
    keep_expired_sessions: bool
    #: The cookie that may hold the token. Default `access_token`.
    cookie_name: str
    #: The query parameter that may hold the token.
    token_query_parameter: str
    #: A subprotocol with this prefix may hold the token in its rest.
    token_subprotocol_prefix: str
    #: Let everyone in.
    no_auth: bool
    #: Tell a bad token by an error message and close code 4401 after the upgrade, where a browser can read it,
    #: instead of HTTP 401.
    auth_failure_after_upgrade: bool
    #: permessage-deflate for clients that offer it: with the event loops' own compressors, or with a memory of
    #: what each connection said before (340 to 430 KB of it). Default `"off"`.
    deflate: Literal["off", "shared", "per-connection"]
    #: 1 (fastest) to 9 (smallest), also of messages sent as `C:`. Default 1.
    compression_level: int
    #: Shorter messages are not compressed. Default 1024.
    compression_threshold_bytes: int
    #: How far back compressed messages refer, as a power of two. Default 15.
    deflate_window_bits: int
    #: Whether clients can encrypt their messages, or must. Default `"off"`.
    encryption: Literal["off", "optional", "required"]
    #: A file with the private key, PEM (PKCS#8, P-256), by which clients tell this server from somebody in
    #: between.
    identity_key: Path
    #: The secret that signatures of messages are checked with, at least 32 bytes.
    signature_secret: str
    #: Check the signatures of messages with the secret in this file, at least 32 bytes.
    signature_secret_file: Path
    #: A file with the ECDSA key, PEM (P-256), that signatures of messages are checked with.
    signature_public_key: Path
    #: Refuse messages without a signature.
    require_signatures: bool
    #: Clients may subscribe to everything, publish everywhere and see who is present.
    topics_open: bool
    #: Topics that clients may subscribe to: names or patterns such as `orders.*` and `orders.>`, with `{sub}`
    #: for the user's name.
    client_subscribe_allow: str | Sequence[str]
    #: Topics that clients may not subscribe to, though they be allowed.
    client_subscribe_deny: str | Sequence[str]
    #: Topics that clients may publish to.
    client_publish_allow: str | Sequence[str]
    #: Topics that clients may not publish to, though they be allowed.
    client_publish_deny: str | Sequence[str]
    #: Topics of which clients may ask who is present.
    client_presence_allow: str | Sequence[str]
    #: Topics of which clients may not ask who is present, though they be allowed.
    client_presence_deny: str | Sequence[str]
    #: Topics of which clients may be members of queue groups, if they may subscribe to them.
    client_queue_group_allow: str | Sequence[str]
    #: Topics of which clients may not be members of queue groups, though they be allowed.
    client_queue_group_deny: str | Sequence[str]
    #: The claim of a token with rules for its user, in place of those above; empty to look at none. Default
    #: `topics`.
    topic_access_claim: str
    #: Keep so many publications of each of these topics: `{"orders.>": 1000}`.
    history: Mapping[str, int] | Sequence[str]
    #: Tell the subscribers of these topics who else is there.
    presence: str | Sequence[str]
    #: What is kept of which topics, in detail; the first rule whose pattern matches counts.
    topic_rules: Sequence[TopicRule]
    #: Topics and patterns that one connection may have. Default 10000.
    subscriptions_per_connection_max: int
    #: Subscribers of one topic on one shard. Default 1000000.
    subscribers_per_topic_max: int
    #: The payload of a publication. Default 1048576.
    payload_bytes_max: int
    #: Publications that a shard has yet to deliver, before publishing fails. Default 16777216.
    backlog_bytes_max: int
    #: All histories together. Default 268435456.
    history_bytes_max: int
    #: Topics whose position is remembered. Default 1000000.
    history_topics_max: int
    #: What a subscriber may tell others about itself, as JSON. Default 4096.
    presence_data_bytes_max: int
    #: Ids remembered to drop repeated publications. Default 50000.
    remembered_ids_max: int
    #: Publications that may wait for a lagging subscription that conflates or drops. Default 1000.
    lag_publications_max: int
    #: The same in bytes. Default 1048576.
    lag_bytes_max: int
    #: Publications that wait for the members of a queue group. Default 100000.
    group_waiting_max: int
    #: The same in bytes. Default 16777216.
    group_waiting_bytes_max: int
    #: Queue groups of one topic. Default 64.
    groups_per_topic_max: int
    #: What a full queue group drops: what has waited longest, or the new publication. Default `drop_oldest`.
    group_overload: Literal["drop_oldest", "drop_newest"]
    #: Patterns that one connection may have. Default 256.
    patterns_per_connection_max: int
    #: What the subscriptions of one connection may take, in bytes as estimated. Default 16 MiB.
    subscription_bytes_per_connection_max: int
    #: The same for one user or, without tokens, one address. Default 256 MiB.
    subscription_bytes_per_owner_max: int
    #: The same for the whole server. Default 2 GiB.
    subscription_bytes_max: int
    #: What may wait for `batches()` or `receive()`, in bytes; past it nothing is read from the connections.
    #: Default 64 MiB.
    queue_bytes_max: int
    #: Clients that ask for the state of topics are answered by the application (messages of the kind
    #: `snapshot_request`), not with what the topics keep. Default False.
    snapshot_requests: bool
