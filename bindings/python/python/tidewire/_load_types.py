# Generated from options/load.toml by `cargo xtask options`. Do not edit.
"""The options of a load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from ._options import Path


class LoadOptions(TypedDict, total=False):
    """The options of `load`, with the names and units of `tidewire load`. `None` is the default of each."""

    #: Connections in total, not per core. Default: 50.
    connections: int
    #: Requests in total. Default: no limit.
    requests: int
    #: Duration of the load; with `requests`, whichever ends first. Default: 10, without `requests`.
    duration_s: float
    #: Continue until a figure is known precisely enough, such as p99:5%, mean:2% or rate:1%: half
    #: of its 95 % confidence interval is at most this share of it. Ends at the latest after
    #: `duration_s`, which is then 300 by default. Default: none.
    confidence: str
    #: Time of load before the measurement. Default: 0.
    warm_up_s: float
    #: Requests per second over all connections, each sent at its planned time (open loop); latency
    #: counts from that time. Default: the next when the previous one is answered.
    rate_per_s: float
    #: Requests or messages per second on each connection. Default: the next when the previous one
    #: is answered.
    messages_per_s: float
    #: Rates over time, each reached in a straight line, such as 10s:1k,30s:5k,10s:0. Default: none.
    stages: str
    #: With a rate: at random times, as independent users send, not evenly. Default: False.
    poisson: bool
    #: Search for the highest rate at which every `expect` holds: doubled until one breaks, then
    #: halved. Default: False.
    find_limit: bool
    #: With `find_limit`: the first rate. Default: 1000.
    from_per_s: float
    #: With `find_limit`: the highest rate to try. Default: 10 million.
    to_per_s: float
    #: With `find_limit`: the time for each rate. Default: 5.
    step_s: float
    #: New connections per second. Default: all before the clock starts.
    ramp_per_s: float
    #: Numbers of connections over time, such as 10s:100,1m:500,10s:0. Default: none.
    connection_stages: str
    #: Requests in flight on each connection (pipelining of HTTP/1.1, messages of a WebSocket).
    #: Default: 1.
    in_flight: int
    #: Speak HTTP/2: over TLS as ALPN agrees, without TLS from the first byte (prior knowledge). A
    #: server that offers nothing else over TLS gets it in any case. Default: False.
    http2: bool
    #: With `http2`: requests in flight on each connection, each on a stream of its own; the server
    #: may allow fewer. Default: 1.
    streams: int
    #: Threads of the generator. Default: half of the cores.
    threads: int
    #: A shell command that starts a worker, on this or another machine, such as 'ssh load-1
    #: tidewire worker'; the users are divided among the threads of all workers. Default: threads of
    #: this process.
    workers: str | Sequence[str]
    #: End the load, with a partial report, when a worker has ended; otherwise the others go on.
    #: Default: False.
    stop_with_worker: bool
    #: The seed of random choices; the same seed gives the same choices. Default: 1.
    seed: int
    #: The method. Default: GET, or POST with a body.
    method: str
    #: Headers, on the command line as 'name: value'. Default: none.
    headers: Mapping[str, str] | Sequence[tuple[str, str]]
    #: Cookies, on the command line as name=value. Default: none.
    cookies: Mapping[str, str]
    #: Return the cookies that the server sets with later requests of the same user; the flag
    #: ignores them. Default: True.
    keep_cookies: bool
    #: Name and password of Basic authentication (RFC 7617), with a colon between them. Default:
    #: none.
    basic_auth: str
    #: The body. Default: none.
    body: str
    #: A file with the body. Default: none.
    body_file: Path
    #: A body that is sent as JSON. Default: none.
    json_body: object
    #: A JSON body, given as text, with values such as {{seq}}. Default: none.
    json_text: str
    #: Fields of a form, which is the body; on the command line as name=value. Default: none.
    form: Mapping[str, str]
    #: Several requests from a file (TOML or JSON Lines): weighted, or the steps of a journey.
    #: Default: none.
    scenario: Path
    #: Send texts as they are: {{seq}} and the like stand for nothing. Default: False.
    literal: bool
    #: Request compressed responses; their compressed bytes count. Default: False.
    compressed: bool
    #: Redirects to follow per request, to the servers of the load. Default: 0.
    redirects: int
    #: The message, with values such as {{seq}}, {{user}}, {{now_ms}}, {{rand:1:100}} and {{uuid}}.
    #: Default: a small JSON object.
    message: str
    #: Messages from this file, one per line, in turn. Default: none.
    message_file: Path
    #: Messages that each connection sends first, such as a subscription. Default: none.
    subscribe: str | Sequence[str]
    #: The confirmation of a message: the pong to a ping that was sent after it (pong), the next
    #: message from the server (order), a message with the same value in a field (field:NAME) or in
    #: the first group of an expression (regex:EXPRESSION), or one with the number of the message at
    #: a place (seq:2..4). Default: "pong".
    reply: str
    #: The field of the server's messages with the time at which they were created, for their age.
    #: Default: none.
    timestamp_field: str
    #: Send binary messages. Default: False.
    binary: bool
    #: Compress messages by permessage-deflate, without memory between them; a server that does not
    #: accept it fails the connection. Default: False.
    deflate: bool
    #: Encrypt every message under a key of each connection, as Tidewire's protocol version 1 does;
    #: a server that does not agree on a key fails the connection. Default: False.
    encrypt: bool
    #: The protocol of a session: raw (nothing but its messages), v1 (Tidewire's own), socket.io,
    #: graphql-ws, centrifugo, stomp, phoenix, signalr, action-cable, mqtt (3.1.1), mqtt5, or a file
    #: that ends in .toml with the conversation of another one. Default: raw, with `encrypt` v1.
    profile: str
    #: Values of `profile`, such as the topic; no report shows them. Default: those of the profile.
    profile_values: Mapping[str, str]
    #: A token for Authorization: Bearer. Default: none.
    token: str
    #: Statuses that count as a success, such as 200, 2xx,404 or any. Default: up to 399.
    expect_status: str
    #: A text that each body must contain. Default: none.
    expect_body: str
    #: The required length of each body. Default: any.
    expect_length: int
    #: Expectations of figures, such as p99<20ms, errors<0.1% or rate>10k; the exit code is 5 if one
    #: is broken. Default: none.
    expect: str | Sequence[str]
    #: End the load early when an expectation has been broken for this many consecutive seconds.
    #: Default: never.
    abort_after_s: float
    #: Use a connection for many requests; the flag opens a new one for each request. Default: True.
    keep_alive: bool
    #: Replace a connection after this many requests. Default: no limit.
    requests_per_connection: int
    #: Whether an HTTP request whose connection is closed before the first byte of the response is
    #: sent again: never (it has failed), or idle-close (once, on a reused connection, if the method
    #: allows it). Default: "never".
    retry: Literal["never", "idle-close"]
    #: Replace a WebSocket that ends before the load ends it, or that cannot be opened; each end is
    #: counted as a failure all the same. Default: False.
    reconnect: bool
    #: The time to wait for a complete response. Default: 30000.
    timeout_ms: int
    #: The time to wait for a connection, TLS included. Default: 10000.
    connect_timeout_ms: int
    #: The time to wait for the last responses after the last request. Default: 2000.
    drain_ms: int
    #: Trust the authorities in this PEM file. Default: those that browsers trust.
    ca: Path
    #: The client's certificate chain (PEM) for servers that request one. Default: none.
    cert: Path
    #: The key (PEM) of `cert`. Default: none.
    key: Path
    #: The server name to send and to verify in TLS. Default: the URL's host.
    sni: str
    #: Accept any certificate. Default: False.
    insecure: bool
    #: Use this HTTP proxy, http://[user:password@]host:port; with CONNECT for all but http://.
    #: Default: none.
    proxy: str
    #: Connect to this Unix socket instead of the URL's host. Default: none.
    unix_socket: Path
    #: Connect from these addresses in turn. Default: the system's choice; on loopback as many
    #: addresses as the connections need.
    source_address: str | Sequence[str]
    #: Use this address for a host and port, as host:port:address. Default: none.
    resolve: str | Sequence[str]
    #: Measure the memory of both sides: per connection, and the server's after they are closed.
    #: Default: False.
    memory: bool
    #: The server's process, if the program cannot find it by its port. Default: found by its port.
    server_pid: int
