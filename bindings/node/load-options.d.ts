// Generated from options/load.toml by `cargo xtask options`. Do not edit.

/** The options of a load, with the names and units of `tidewire load` in camelCase. `null` is the default of each. */
export interface LoadSettings {
  /** Connections in total, not per core. Default: 50. */
  connections?: number | null;
  /** Requests in total. Default: no limit. */
  requests?: number | null;
  /**
   * Duration of the load; with `requests`, whichever ends first. Default: 10, without
   * `requests`.
   */
  durationS?: number | null;
  /**
   * Continue until a figure is known precisely enough, such as p99:5%, mean:2% or rate:1%: half
   * of its 95 % confidence interval is at most this share of it. Ends at the latest after
   * `durationS`, which is then 300 by default. Default: none.
   */
  confidence?: string | null;
  /** Time of load before the measurement. Default: 0. */
  warmUpS?: number | null;
  /**
   * Requests per second over all connections, each sent at its planned time (open loop);
   * latency counts from that time. Default: the next when the previous one is answered.
   */
  ratePerS?: number | null;
  /**
   * Requests or messages per second on each connection. Default: the next when the previous one
   * is answered.
   */
  messagesPerS?: number | null;
  /**
   * Rates over time, each reached in a straight line, such as 10s:1k,30s:5k,10s:0. Default:
   * none.
   */
  stages?: string | null;
  /** With a rate: at random times, as independent users send, not evenly. Default: false. */
  poisson?: boolean | null;
  /**
   * Search for the highest rate at which every `expect` holds: doubled until one breaks, then
   * halved. Default: false.
   */
  findLimit?: boolean | null;
  /** With `findLimit`: the first rate. Default: 1000. */
  fromPerS?: number | null;
  /** With `findLimit`: the highest rate to try. Default: 10 million. */
  toPerS?: number | null;
  /** With `findLimit`: the time for each rate. Default: 5. */
  stepS?: number | null;
  /** New connections per second. Default: all before the clock starts. */
  rampPerS?: number | null;
  /** Numbers of connections over time, such as 10s:100,1m:500,10s:0. Default: none. */
  connectionStages?: string | null;
  /**
   * Requests in flight on each connection (pipelining of HTTP/1.1, messages of a WebSocket).
   * Default: 1.
   */
  inFlight?: number | null;
  /**
   * Speak HTTP/2: over TLS as ALPN agrees, without TLS from the first byte (prior knowledge). A
   * server that offers nothing else over TLS gets it in any case. Default: false.
   */
  http2?: boolean | null;
  /**
   * With `http2`: requests in flight on each connection, each on a stream of its own; the
   * server may allow fewer. Default: 1.
   */
  streams?: number | null;
  /** Threads of the generator. Default: half of the cores. */
  threads?: number | null;
  /**
   * A shell command that starts a worker, on this or another machine, such as 'ssh load-1
   * tidewire worker'; the users are divided among the threads of all workers. Default: threads
   * of this process.
   */
  workers?: string | string[] | null;
  /**
   * End the load, with a partial report, when a worker has ended; otherwise the others go on.
   * Default: false.
   */
  stopWithWorker?: boolean | null;
  /** The seed of random choices; the same seed gives the same choices. Default: 1. */
  seed?: number | null;
  /** The method. Default: GET, or POST with a body. */
  method?: string | null;
  /** Headers, on the command line as 'name: value'. Default: none. */
  headers?: Record<string, string> | [name: string, value: string][] | null;
  /** Cookies, on the command line as name=value. Default: none. */
  cookies?: Record<string, string> | null;
  /**
   * Return the cookies that the server sets with later requests of the same user; the flag
   * ignores them. Default: true.
   */
  keepCookies?: boolean | null;
  /**
   * Name and password of Basic authentication (RFC 7617), with a colon between them. Default:
   * none.
   */
  basicAuth?: string | null;
  /** The body. Default: none. */
  body?: string | null;
  /** A file with the body. Default: none. */
  bodyFile?: string | null;
  /** A body that is sent as JSON. Default: none. */
  jsonBody?: unknown | null;
  /** A JSON body, given as text, with values such as {{seq}}. Default: none. */
  jsonText?: string | null;
  /** Fields of a form, which is the body; on the command line as name=value. Default: none. */
  form?: Record<string, string> | null;
  /**
   * Several requests from a file (TOML or JSON Lines): weighted, or the steps of a journey.
   * Default: none.
   */
  scenario?: string | null;
  /** Send texts as they are: {{seq}} and the like stand for nothing. Default: false. */
  literal?: boolean | null;
  /** Request compressed responses; their compressed bytes count. Default: false. */
  compressed?: boolean | null;
  /** Redirects to follow per request, to the servers of the load. Default: 0. */
  redirects?: number | null;
  /**
   * The message, with values such as {{seq}}, {{user}}, {{now_ms}}, {{rand:1:100}} and
   * {{uuid}}. Default: a small JSON object.
   */
  message?: string | null;
  /** Messages from this file, one per line, in turn. Default: none. */
  messageFile?: string | null;
  /** Messages that each connection sends first, such as a subscription. Default: none. */
  subscribe?: string | string[] | null;
  /**
   * The confirmation of a message: the pong to a ping that was sent after it (pong), the next
   * message from the server (order), a message with the same value in a field (field:NAME) or
   * in the first group of an expression (regex:EXPRESSION), or one with the number of the
   * message at a place (seq:2..4). Default: "pong".
   */
  reply?: string | null;
  /**
   * The field of the server's messages with the time at which they were created, for their age.
   * Default: none.
   */
  timestampField?: string | null;
  /** Send binary messages. Default: false. */
  binary?: boolean | null;
  /**
   * Compress messages by permessage-deflate, without memory between them; a server that does
   * not accept it fails the connection. Default: false.
   */
  deflate?: boolean | null;
  /**
   * Encrypt every message under a key of each connection, as Tidewire's protocol version 1
   * does; a server that does not agree on a key fails the connection. Default: false.
   */
  encrypt?: boolean | null;
  /**
   * The protocol of a session: raw (nothing but its messages), v1 (Tidewire's own), socket.io,
   * graphql-ws, centrifugo, stomp, phoenix, signalr, action-cable, mqtt (3.1.1), mqtt5, or a
   * file that ends in .toml with the conversation of another one. Default: raw, with `encrypt`
   * v1.
   */
  profile?: string | null;
  /**
   * Values of `profile`, such as the topic; no report shows them. Default: those of the
   * profile.
   */
  profileValues?: Record<string, string> | null;
  /** A token for Authorization: Bearer. Default: none. */
  token?: string | null;
  /** Statuses that count as a success, such as 200, 2xx,404 or any. Default: up to 399. */
  expectStatus?: string | null;
  /** A text that each body must contain. Default: none. */
  expectBody?: string | null;
  /** The required length of each body. Default: any. */
  expectLength?: number | null;
  /**
   * Expectations of figures, such as p99<20ms, errors<0.1% or rate>10k; the exit code is 5 if
   * one is broken. Default: none.
   */
  expect?: string | string[] | null;
  /**
   * End the load early when an expectation has been broken for this many consecutive seconds.
   * Default: never.
   */
  abortAfterS?: number | null;
  /**
   * Use a connection for many requests; the flag opens a new one for each request. Default:
   * true.
   */
  keepAlive?: boolean | null;
  /** Replace a connection after this many requests. Default: no limit. */
  requestsPerConnection?: number | null;
  /**
   * Whether an HTTP request whose connection is closed before the first byte of the response is
   * sent again: never (it has failed), or idle-close (once, on a reused connection, if the
   * method allows it). Default: "never".
   */
  retry?: "never" | "idle-close" | null;
  /**
   * Replace a WebSocket that ends before the load ends it, or that cannot be opened; each end
   * is counted as a failure all the same. Default: false.
   */
  reconnect?: boolean | null;
  /** The time to wait for a complete response. Default: 30000. */
  timeoutMs?: number | null;
  /** The time to wait for a connection, TLS included. Default: 10000. */
  connectTimeoutMs?: number | null;
  /** The time to wait for the last responses after the last request. Default: 2000. */
  drainMs?: number | null;
  /** Trust the authorities in this PEM file. Default: those that browsers trust. */
  ca?: string | null;
  /** The client's certificate chain (PEM) for servers that request one. Default: none. */
  cert?: string | null;
  /** The key (PEM) of `cert`. Default: none. */
  key?: string | null;
  /** The server name to send and to verify in TLS. Default: the URL's host. */
  sni?: string | null;
  /** Accept any certificate. Default: false. */
  insecure?: boolean | null;
  /**
   * Use this HTTP proxy, http://[user:password@]host:port; with CONNECT for all but http://.
   * Default: none.
   */
  proxy?: string | null;
  /** Connect to this Unix socket instead of the URL's host. Default: none. */
  unixSocket?: string | null;
  /**
   * Connect from these addresses in turn. Default: the system's choice; on loopback as many
   * addresses as the connections need.
   */
  sourceAddress?: string | string[] | null;
  /** Use this address for a host and port, as host:port:address. Default: none. */
  resolve?: string | string[] | null;
  /**
   * Measure the memory of both sides: per connection, and the server's after they are closed.
   * Default: false.
   */
  memory?: boolean | null;
  /**
   * The server's process, if the program cannot find it by its port. Default: found by its
   * port.
   */
  serverPid?: number | null;
}
