# Generated from options/*.toml by `cargo xtask options`. Do not edit.
"""The options of a server."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, Union

Path = Union[str, "os.PathLike[str]"]


class TopicRule(TypedDict, total=False):
    """The history and other rules of the topics that match a pattern."""

    #: A topic's name, or a pattern such as `orders.*` and `orders.>`. Required.
    pattern: str
    #: Publications kept of each topic; 0 keeps none, but they are numbered. Default: no history.
    history_publications: int
    #: Size of the publications kept of each topic. Default: 4194304 (4 MiB).
    history_bytes: int
    #: How long a publication is kept; 0 for any time. Default: 0.
    history_age_s: int
    #: A new subscriber gets the newest publication at once. Default: False.
    last_value: bool
    #: Subscribers see who else is present. Default: False.
    presence: bool
    #: The priority of publications: 1, 3, 5, 8 or 10. The highest one is sent first to a client
    #: that lags. Default: 5.
    priority: Literal[1, 3, 5, 8, 10]
    #: The overload policy of a lagging subscription that does not choose one itself. Default:
    #: "disconnect".
    overload: Literal["disconnect", "conflate", "drop_oldest"]
    #: The servers that share the topics: all with the same broker, or each server has its own.
    #: Without a broker every topic is the server's own. Default: "cluster".
    scope: Literal["cluster", "node"]


class ServerOptions(TypedDict, total=False):
    """The options of a server, with the names and units of `tidewire serve`. `None` is the default of each.

    Protocol version 1 needs a key to check tokens with (such as `jwt_secret_file`, `jwt_public_key` or
    `jwt_jwks_url`), or `no_auth=True`. Limits hold per connection unless their description says otherwise.
    """

    #: The address where clients connect; port 0 selects a free port. Default: "127.0.0.1:5006".
    listen: str
    #: The address to listen on, `0.0.0.0` for all; instead of `listen`. Default: "127.0.0.1".
    host: str
    #: The port to listen on; 0 selects a free port. Instead of `listen`. Default: 5006.
    port: int
    #: The address of the operations listener: /health, /ready, /metrics and /stats without
    #: authentication, and the HTTP API and the dashboard. Default: no operations listener.
    ops_listen: str
    #: The key of the HTTP API, at least 16 visible ASCII characters. On the command line other
    #: users of the machine can see it. Default: no HTTP API.
    api_key: str
    #: A file with the key of the HTTP API, at least 16 visible ASCII characters. Default: no HTTP
    #: API.
    api_key_file: Path
    #: A file with keys of the HTTP API, one per line: a name, rights (`read`, `publish`, `admin` or
    #: `all`, with commas) and the key. Default: no further keys.
    api_keys_file: Path
    #: Other processes of the same user may listen at the same address, if they have this option,
    #: too; the system spreads the connections over all of them. Default: False.
    reuse_port: bool
    #: Event loops, each on a thread of its own. Default: one per core.
    shards: int
    #: The protocol inside the WebSocket: version 1 of Tidewire's protocol, which needs a token
    #: unless `no_auth` is set, or plain messages for any client. Default: "v1".
    protocol: Literal["v1", "raw"]
    #: The type of a client's message that has none (`t`), for clients of version 1 that leave it
    #: out; without it the message is refused with `INVALID_MESSAGE`. Default: none: such a message
    #: is refused.
    default_type: str
    #: The paths that accept connections, or `any`. Default: ["/ws", "/wse"].
    path: str | Sequence[str]
    #: Origins of web pages that may connect besides those of the same host, such as `null` for
    #: pages without one, or `any`. Default: the same host.
    origin: str | Sequence[str]
    #: Subprotocols of the application: the first one that a client offers is confirmed. Default:
    #: the client's first offer.
    subprotocol: str | Sequence[str]
    #: The secret of HS256 tokens, at least 32 bytes. On the command line other users of the machine
    #: can see it. Default: no secret.
    jwt_secret: str
    #: A file with the secret of HS256 tokens. Default: no file.
    jwt_secret_file: Path
    #: A file with the public key of tokens, PEM; needs `jwt_algorithm`. Default: no file.
    jwt_public_key: Path
    #: The algorithm of the public key. Default: none.
    jwt_algorithm: Literal["rs256", "es256", "eddsa"]
    #: Accept only tokens that name this key (`kid`). Default: any key.
    jwt_key_id: str
    #: A file with the keys of tokens: a JSON Web Key Set (RFC 7517). Default: no file.
    jwt_jwks_file: Path
    #: The URL that the keys of tokens are fetched from, a JSON Web Key Set (RFC 7517): `https://`,
    #: or `http://` of this machine. Default: no URL.
    jwt_jwks_url: str
    #: Certificates of the authorities that the server of `jwt_jwks_url` is checked with, PEM.
    #: Default: the authorities of the web.
    jwt_jwks_ca_file: Path
    #: How often the keys of `jwt_jwks_url` are fetched; a token with an unknown key fetches them at
    #: once, at most every 30 seconds. Default: 300.
    jwt_jwks_refresh_s: int
    #: During rotation: the previous secret, still accepted. Default: no secret.
    jwt_previous_secret: str
    #: During rotation: a file with the previous secret, still accepted. Default: no file.
    jwt_previous_secret_file: Path
    #: During rotation: a file with the previous public key, PEM, still accepted. Default: no file.
    jwt_previous_public_key: Path
    #: The algorithm of the previous public key. Default: that of `jwt_algorithm`.
    jwt_previous_algorithm: Literal["rs256", "es256", "eddsa"]
    #: The name of the previous key (`kid`). Default: any key.
    jwt_previous_key_id: str
    #: The value that the claim `iss` must have. Default: not checked.
    jwt_issuer: str
    #: The value that the claim `aud` must have or contain. Default: not checked.
    jwt_audience: str
    #: The largest difference between the clocks of signer and server. Default: 5.
    jwt_leeway_s: int
    #: How long a session continues after its token has expired, so that a late new token can still
    #: arrive; at least `jwt_leeway_s`. Then the session ends with the error TOKEN_EXPIRED and close
    #: code 4401. Default: 10.
    token_grace_s: int
    #: How long before its token expires a client is warned; for a token that is valid for less than
    #: twice this time, half of the token's time. 0 for no warning. Default: 60.
    token_warning_s: int
    #: Sessions continue when their token has expired. Default: False.
    keep_expired_sessions: bool
    #: The cookie that may hold the token. Default: "access_token".
    cookie_name: str
    #: The query parameter that may hold the token. Default: none.
    token_query_parameter: str
    #: A subprotocol that begins with this prefix may hold the token in its rest. Default: none.
    token_subprotocol_prefix: str
    #: Everybody may connect, without a token. Default: False.
    no_auth: bool
    #: A bad token is reported by an error message and close code 4401 after the upgrade, where a
    #: browser can read it, instead of by HTTP 401. Default: False.
    auth_failure_after_upgrade: bool
    #: A file with the certificate chain, PEM; with `tls_key` it enables TLS. Default: no TLS.
    tls_certificate: Path
    #: A file with the certificate's private key, PEM. Default: no TLS.
    tls_key: Path
    #: Names by which clients may address the server besides addresses and localhost, such as
    #: `app.example.com` or `*.example.com`, or `any`. Default: any; on a loopback address without
    #: authentication none for web pages.
    allow_host: str | Sequence[str]
    #: Proxies, such as `10.0.0.0/8`, from which the server accepts the client's address: by a PROXY
    #: header (version 1 or 2) or by a header line. Default: none.
    trusted_proxy: str | Sequence[str]
    #: The header line that trusted proxies write. Default: "x-forwarded-for".
    forwarded_header: Literal["x-forwarded-for", "forwarded"]
    #: Whether clients can encrypt their messages, or must; `required` accepts version 1 too, which
    #: does not detect repeated, dropped or reordered messages, `required-v2` refuses it. Default:
    #: "off".
    encryption: Literal["off", "optional", "required", "required-v2"]
    #: A file with the server's private identity key, PEM (PKCS#8, P-256), by which clients
    #: recognize this server. Default: none.
    identity_key: Path
    #: The secret that signatures of messages are checked with, at least 32 bytes. On the command
    #: line other users of the machine can see it. Default: signatures are not checked.
    signature_secret: str
    #: A file with the secret that signatures of messages are checked with, at least 32 bytes.
    #: Default: signatures are not checked.
    signature_secret_file: Path
    #: A file with the ECDSA public key, PEM (P-256), that signatures of messages are checked with.
    #: Default: signatures are not checked.
    signature_public_key: Path
    #: Signatures remembered for 5 to 7 minutes, so that each counts once; one user or, without
    #: authentication, one address has at most a quarter. Default: 1000000.
    signature_nonces_max: int
    #: Reject messages without a signature. Default: False.
    require_signatures: bool
    #: permessage-deflate for clients that offer it: `shared` uses one compressor per event loop and
    #: no memory per connection; `per-connection` refers to earlier messages and uses 340 to 430 KB
    #: per connection. Default: "off".
    deflate: Literal["off", "shared", "per-connection"]
    #: The compression level, from 1 (fastest) to 9 (smallest), also of messages sent as `C:`.
    #: Default: 1.
    compression_level: int
    #: Messages shorter than this are not compressed. Default: 1024 (1 KiB).
    compression_threshold_bytes: int
    #: The size of the compression window as a power of two. Default: 15.
    deflate_window_bits: int
    #: Drop messages for the application whose `id` was already received from the same user or,
    #: without authentication, on the same connection. Default: False.
    deduplicate: bool
    #: Message ids remembered for `deduplicate`, for the whole server. Default: 50000.
    deduplicated_ids_max: int
    #: Producers (clients that number their messages) that are remembered, for the whole server.
    #: Default: 10000.
    producers_max: int
    #: How long a producer without a connection is remembered. Default: 3600000.
    producer_ttl_ms: int
    #: Sessions that each event loop closes per second of a drain; 0 to close all of them in the
    #: first half of the drain's timeout. Default: 0.
    drain_rate_per_s: int
    #: During a drain each client reconnects after a random time of at most this length; 0 for no
    #: delay. Default: 5000.
    reconnect_spread_ms: int
    #: Sessions of the whole server; the next client gets HTTP 503. Default: 1000000.
    connections_max: int
    #: Pending handshakes that the whole server reads, and clients that wait for a decision; past
    #: it, a new one replaces the oldest one of the address that has the most. Default: 512.
    handshakes_max: int
    #: Pending handshakes that the server reads per address (IPv6: per /64), further ones wait for
    #: those of their own address; and clients of it that wait for a decision, further ones get 503.
    #: Default: 256.
    handshakes_per_address_max: int
    #: Connections of the whole server that wait to begin their handshake; past it, the oldest one
    #: of the address that has the most is closed. Default: 16384.
    handshakes_parked_max: int
    #: Time for the opening handshake, TLS included. Default: 10000.
    handshake_timeout_ms: int
    #: Size of the head of the upgrade request; more than 32 KiB counts as 32 KiB. Default: 16384
    #: (16 KiB).
    request_head_bytes_max: int
    #: Size of a received message, also after decompression. Default: 1048576 (1 MiB).
    message_bytes_max: int
    #: Memory of the messages of one user or, without authentication, of one address that have begun
    #: and not ended; past it the connection of its oldest one is closed with code 4431. Default:
    #: 67108864 (64 MiB).
    unfinished_bytes_per_owner_max: int
    #: Memory of the messages that have begun and not ended, for the whole server; past it the user
    #: or address with the most loses its oldest one, with the connection. Default: 536870912 (512
    #: MiB).
    unfinished_bytes_max: int
    #: Messages that a client may send in one burst; 0 for no rate limit. Default: 100000.
    rate_limit_capacity: int
    #: Messages per second that a client may send in the long run. Default: 10000.
    rate_limit_refill_per_s: int
    #: Rejected messages within `errors_window_ms` after which the connection is closed with code
    #: 4430; 0 for no limit. Default: 50.
    errors_max: int
    #: The time in which the server forgets `errors_max` rejected messages, evenly. Default: 10000.
    errors_window_ms: int
    #: Data that waits to be sent; past it the connection is closed. Default: 16777216 (16 MiB).
    outbox_bytes_max: int
    #: Data that waits to be sent, for the whole server; past it a connection for which more than 64
    #: KiB wait is closed. Default: 1073741824 (1 GiB).
    outboxes_bytes_max: int
    #: Data that waits to be sent; past it the server stops reading the connection. More than half
    #: of `outbox_bytes_max` counts as half. Default: 1048576 (1 MiB).
    outbox_pause_bytes: int
    #: Data that the kernel buffers for a connection that sends fast; 0 leaves it to the kernel.
    #: Default: 4194304 (4 MiB).
    receive_buffer_bytes_max: int
    #: Data that the kernel buffers for all connections together; each gets an equal part, but at
    #: least 64 KiB. Default: 1073741824 (1 GiB).
    receive_buffers_bytes_max: int
    #: Time between two pings of the server: of RFC 6455 and, in protocol version 1, messages.
    #: Default: 25000.
    ping_interval_ms: int
    #: Silence after which a connection is closed. Default: 60000.
    idle_timeout_ms: int
    #: Time that a peer has to answer a close. Default: 5000.
    close_timeout_ms: int
    #: Time that an event loop may take for one turn before it counts as stuck. Default: 5000.
    shard_stall_ms: int
    #: The time that a client waits before it reconnects to a full server. Default: 5.
    retry_after_s: int
    #: Time that the application has to answer a call of a client, or to decide about its connection
    #: or publication; more than a day counts as a day. Default: 10000.
    call_timeout_ms: int
    #: Open calls in each direction. Default: 100.
    calls_per_connection_max: int
    #: Milliseconds of each second for which the requests of one user or, without authentication, of
    #: one address may keep an event loop busy; 0 for no limit. Default: 500.
    owner_work_ms_per_s: int
    #: Clients may subscribe to every topic, publish to it and see who is present; for trials.
    #: Default: False.
    topics_open: bool
    #: Names of topics may have characters that change the direction of writing (U+202A to U+202E,
    #: U+2066 to U+2069), by which one name can look like another; for those who have such topics.
    #: Default: False.
    topic_bidi_controls: bool
    #: Topics that clients may subscribe to: names or patterns such as `orders.*` and `orders.>`,
    #: with `{sub}` for the user's name. Default: none.
    client_subscribe_allow: str | Sequence[str]
    #: Topics that clients may not subscribe to, even if they are allowed elsewhere. Default: none.
    client_subscribe_deny: str | Sequence[str]
    #: Topics that clients may publish to. Default: none.
    client_publish_allow: str | Sequence[str]
    #: Topics that clients may not publish to, even if they are allowed elsewhere. Default: none.
    client_publish_deny: str | Sequence[str]
    #: Topics of which clients may ask who is present. Default: as for subscribing.
    client_presence_allow: str | Sequence[str]
    #: Topics of which clients may not ask who is present, even if they are allowed elsewhere.
    #: Default: as for subscribing.
    client_presence_deny: str | Sequence[str]
    #: Topics of which clients may join queue groups, if they may subscribe to them. Default: none.
    client_queue_group_allow: str | Sequence[str]
    #: Topics of which clients may not join queue groups, even if they are allowed elsewhere.
    #: Default: none.
    client_queue_group_deny: str | Sequence[str]
    #: The claim of a token that holds its user's own access rules, which replace those above; empty
    #: to ignore claims. Default: "topics".
    topic_access_claim: str
    #: Topics whose newest publications are kept, and how many of each topic, such as
    #: `orders.>=1000`. Default: none.
    history: Mapping[str, int] | Sequence[str]
    #: Topics whose subscribers see who else is present. Default: none.
    presence: str | Sequence[str]
    #: How topics are kept and delivered: history, presence, priority, scope and slow subscribers;
    #: the first rule whose pattern matches a topic applies. Default: none.
    topic_rules: Sequence[TopicRule]
    #: Topics and patterns that one connection may subscribe to. Default: 10000.
    subscriptions_per_connection_max: int
    #: Estimated memory for the subscriptions of one connection. Default: 16777216 (16 MiB).
    subscription_bytes_per_connection_max: int
    #: Estimated memory for the subscriptions of one user or, without authentication, of one
    #: address. Default: 268435456 (256 MiB).
    subscription_bytes_per_owner_max: int
    #: Estimated memory for all subscriptions. Default: 2147483648 (2 GiB).
    subscription_bytes_max: int
    #: Patterns that one connection may subscribe to. Default: 256.
    patterns_per_connection_max: int
    #: Subscribers of one topic per event loop. Default: 1000000.
    subscribers_per_topic_max: int
    #: Size of the payload of a publication. Default: 1048576 (1 MiB).
    payload_bytes_max: int
    #: Publications that an event loop has not delivered yet; past it publishing fails, and clients
    #: that publish are not read. Default: 16777216 (16 MiB).
    backlog_bytes_max: int
    #: Size of all histories together; past it the topic that was unused for the longest time loses
    #: its history first. Default: 268435456 (256 MiB).
    history_bytes_max: int
    #: Topics whose position is remembered. Default: 1000000.
    history_topics_max: int
    #: Size of a subscriber's presence data, as JSON. Default: 4096 (4 KiB).
    presence_data_bytes_max: int
    #: Bytes of presence events per second that one user or, without authentication, one address may
    #: cause, counted for each receiver; 0 for no limit. Default: 8388608.
    presence_bytes_per_s: int
    #: Publication ids remembered to drop repeated publications. Default: 50000.
    remembered_ids_max: int
    #: Publications that may wait for one lagging subscription that conflates or drops. Default:
    #: 1000.
    lag_publications_max: int
    #: Size of the publications that may wait for one lagging subscription that conflates or drops.
    #: Default: 1048576 (1 MiB).
    lag_bytes_max: int
    #: Publications that may wait for the members of one queue group. Default: 100000.
    group_waiting_max: int
    #: Size of the publications that may wait for the members of one queue group. Default: 16777216
    #: (16 MiB).
    group_waiting_bytes_max: int
    #: Queue groups of one topic. Default: 64.
    groups_per_topic_max: int
    #: The publication that a full queue group drops: the one that has waited longest, or the new
    #: one. Default: "drop_oldest".
    group_overload: Literal["drop_oldest", "drop_newest"]
    #: Data that may wait for the application to receive it; past it the connections are not read.
    #: Default: 67108864 (64 MiB).
    queue_bytes_max: int
    #: The application answers clients that ask for the state of topics (messages of the kind
    #: `snapshot_request`); otherwise they get what the topics keep. Default: False.
    snapshot_requests: bool
    #: The URL of the Redis or Valkey (7 or newer) that the servers share: `redis://`, `rediss://`
    #: for TLS, `unix://`, `redis+sentinel://` for the master that sentinels name, or
    #: `redis+cluster://` for a Redis Cluster. Several independent ones, separated by commas, share
    #: the topics. On the command line other users of the machine can see its password. Default: no
    #: broker: every topic is this server's own.
    broker: str
    #: Into how many parts the topics are divided, each with keys of its own, so that several
    #: brokers or the masters of a Redis Cluster share them. The same at all servers; `tidewire
    #: partition` changes it. Default: one for each broker.
    broker_partitions: int
    #: Certificates of the authorities that a `rediss://` broker is checked with, PEM. Default: the
    #: authorities of the web.
    broker_ca_file: Path
    #: The certificate chain that this server shows to a `rediss://` broker which asks for one, PEM.
    #: Read again before each connection. Default: no certificate.
    broker_certificate_file: Path
    #: The key of that certificate, PEM. Default: no key.
    broker_key_file: Path
    #: The user of the broker, also for a Unix socket. Default: the user of the URL, or `default`.
    broker_username: str
    #: A file whose first line is the password of the broker. Read again before each connection.
    #: Default: the password of the URL, or none.
    broker_password_file: Path
    #: A program and its arguments, divided by spaces, that prints the password of the broker in its
    #: first line: it runs before each connection, for passwords that end, such as those of the IAM
    #: of a cloud. It has 10 s. Default: no command.
    broker_password_command: str
    #: The prefix of all keys and channels in the broker. Servers with another prefix are another
    #: cluster. Default: "tw".
    broker_prefix: str
    #: Positions of topics outlive a restart of the broker. Only for one Redis without replicas,
    #: with `appendonly yes` and `appendfsync always`. Default: False.
    broker_is_durable: bool
    #: How long publications and subscriptions wait while the broker does not answer. Default: 5000.
    broker_wait_ms: int
    #: How long the broker may be away until this server ends its sessions, so that their clients go
    #: to servers that reach it: each client receives `reconnect`, spread over
    #: `reconnect_spread_ms`, and the code 1012. Once in an outage. 0: sessions stay. Default: 0.
    broker_lost_close_s: int
    #: The URL that events are posted to: `http://` or `https://`. Default: no backend.
    backend: str
    #: The events that the backend gets: `connect`, `subscribe`, `publish`, `request`, `message`,
    #: `disconnect`. Default: no events.
    backend_events: str | Sequence[str]
    #: The key of the signature of each request (HMAC-SHA256), at least 16 bytes. On the command
    #: line other users of the machine can see it. Default: requests are not signed.
    backend_secret: str
    #: A file with the key of the signature of each request, at least 16 bytes. Default: requests
    #: are not signed.
    backend_secret_file: Path
    #: Certificates of the authorities that an `https://` backend is checked with, PEM. Default: the
    #: authorities of the web.
    backend_ca_file: Path
    #: Connections, subscriptions and publications without a usable answer of the backend: refuse
    #: them, or allow what the other options allow. Default: "refuse".
    backend_away: Literal["refuse", "allow"]
    #: Connections to the backend, each with one request at a time. Default: 16.
    backend_connections_max: int
    #: Events that may wait for an answer; further ones are refused. Default: 1024.
    backend_in_flight_max: int
    #: The same in bytes. Default: 16777216 (16 MiB).
    backend_in_flight_bytes_max: int
    #: How long a connection to the backend may take, with TLS. Default: 1000.
    backend_connect_timeout_ms: int
    #: How long an event waits for its answer. Default: 5000.
    backend_timeout_ms: int
    #: A connection to the backend without a request is closed after this time; it should be shorter
    #: than the time of the backend itself. Default: 4000.
    backend_idle_timeout_ms: int
    #: The longest answer of the backend. Default: 1048576 (1 MiB).
    backend_answer_bytes_max: int
