// Generated from options/*.toml by `cargo xtask options`. Do not edit.

/** The history and other rules of the topics that match a pattern. */
export interface TopicRule {
  /** A topic's name, or a pattern such as `orders.*` and `orders.>`. */
  pattern: string;
  /** Publications kept of each topic; 0 keeps none, but they are numbered. Default: no history. */
  historyPublications?: number | null;
  /** Size of the publications kept of each topic. Default: 4194304 (4 MiB). */
  historyBytes?: number | null;
  /** How long a publication is kept; 0 for any time. Default: 0. */
  historyAgeS?: number | null;
  /** A new subscriber gets the newest publication at once. Default: false. */
  lastValue?: boolean | null;
  /** Subscribers see who else is present. Default: false. */
  presence?: boolean | null;
  /**
   * The priority of publications: 1, 3, 5, 8 or 10. The highest one is sent first to a client
   * that lags. Default: 5.
   */
  priority?: 1 | 3 | 5 | 8 | 10 | null;
  /**
   * The overload policy of a lagging subscription that does not choose one itself. Default:
   * "disconnect".
   */
  overload?: "disconnect" | "conflate" | "drop_oldest" | null;
  /**
   * The servers that share the topics: all with the same broker, or each server has its own.
   * Without a broker every topic is the server's own. Default: "cluster".
   */
  scope?: "cluster" | "node" | null;
}

/**
 * The options of the engine, with the names and units of `tidewire serve` in camelCase. `null` is the default of each.
 *
 * Protocol version 1 needs a key to check tokens with (`jwtSecret`, `jwtSecretFile` or `jwtPublicKey`), or `noAuth: true`.
 * Limits hold per connection unless their description says otherwise.
 */
export interface EngineOptions {
  /** The address where clients connect; port 0 selects a free port. Default: "127.0.0.1:5006". */
  listen?: string | null;
  /** The address to listen on, `0.0.0.0` for all; instead of `listen`. Default: "127.0.0.1". */
  host?: string | null;
  /** The port to listen on; 0 selects a free port. Instead of `listen`. Default: 5006. */
  port?: number | null;
  /**
   * The address of the operations listener: /health, /ready, /metrics and /stats without
   * authentication, and the HTTP API and the dashboard. Default: no operations listener.
   */
  opsListen?: string | null;
  /**
   * The key of the HTTP API, at least 16 visible ASCII characters. On the command line other
   * users of the machine can see it. Default: no HTTP API.
   */
  apiKey?: string | null;
  /**
   * A file with the key of the HTTP API, at least 16 visible ASCII characters. Default: no HTTP
   * API.
   */
  apiKeyFile?: string | null;
  /**
   * A file with keys of the HTTP API, one per line: a name, rights (`read`, `publish`, `admin`
   * or `all`, with commas) and the key. Default: no further keys.
   */
  apiKeysFile?: string | null;
  /**
   * Other processes of the same user may listen at the same address, if they have this option,
   * too; the system spreads the connections over all of them. Default: false.
   */
  reusePort?: boolean | null;
  /** Event loops, each on a thread of its own. Default: one per core. */
  shards?: number | null;
  /**
   * The protocol inside the WebSocket: version 1 of Tidewire's protocol, which needs a token
   * unless `noAuth` is set, or plain messages for any client. Default: "v1".
   */
  protocol?: "v1" | "raw" | null;
  /**
   * The type of a client's message that has none (`t`), for clients of version 1 that leave it
   * out; without it the message is refused with `INVALID_MESSAGE`. Default: none: such a
   * message is refused.
   */
  defaultType?: string | null;
  /** The paths that accept connections, or `any`. Default: ["/ws", "/wse"]. */
  path?: string | string[] | null;
  /**
   * Origins of web pages that may connect besides those of the same host, such as `null` for
   * pages without one, or `any`. Default: the same host.
   */
  origin?: string | string[] | null;
  /**
   * Subprotocols of the application: the first one that a client offers is confirmed. Default:
   * the client's first offer.
   */
  subprotocol?: string | string[] | null;
  /**
   * The secret of HS256 tokens, at least 32 bytes. On the command line other users of the
   * machine can see it. Default: no secret.
   */
  jwtSecret?: string | null;
  /** A file with the secret of HS256 tokens. Default: no file. */
  jwtSecretFile?: string | null;
  /** A file with the public key of tokens, PEM; needs `jwtAlgorithm`. Default: no file. */
  jwtPublicKey?: string | null;
  /** The algorithm of the public key. Default: none. */
  jwtAlgorithm?: "rs256" | "es256" | "eddsa" | null;
  /** Accept only tokens that name this key (`kid`). Default: any key. */
  jwtKeyId?: string | null;
  /** A file with the keys of tokens: a JSON Web Key Set (RFC 7517). Default: no file. */
  jwtJwksFile?: string | null;
  /**
   * The URL that the keys of tokens are fetched from, a JSON Web Key Set (RFC 7517):
   * `https://`, or `http://` of this machine. Default: no URL.
   */
  jwtJwksUrl?: string | null;
  /**
   * Certificates of the authorities that the server of `jwtJwksUrl` is checked with, PEM.
   * Default: the authorities of the web.
   */
  jwtJwksCaFile?: string | null;
  /**
   * How often the keys of `jwtJwksUrl` are fetched; a token with an unknown key fetches them at
   * once, at most every 30 seconds. Default: 300.
   */
  jwtJwksRefreshS?: number | null;
  /** During rotation: the previous secret, still accepted. Default: no secret. */
  jwtPreviousSecret?: string | null;
  /** During rotation: a file with the previous secret, still accepted. Default: no file. */
  jwtPreviousSecretFile?: string | null;
  /**
   * During rotation: a file with the previous public key, PEM, still accepted. Default: no
   * file.
   */
  jwtPreviousPublicKey?: string | null;
  /** The algorithm of the previous public key. Default: that of `jwt_algorithm`. */
  jwtPreviousAlgorithm?: "rs256" | "es256" | "eddsa" | null;
  /** The name of the previous key (`kid`). Default: any key. */
  jwtPreviousKeyId?: string | null;
  /** The value that the claim `iss` must have. Default: not checked. */
  jwtIssuer?: string | null;
  /** The value that the claim `aud` must have or contain. Default: not checked. */
  jwtAudience?: string | null;
  /** The largest difference between the clocks of signer and server. Default: 5. */
  jwtLeewayS?: number | null;
  /**
   * How long a session continues after its token has expired, so that a late new token can
   * still arrive; at least `jwtLeewayS`. Then the session ends with the error TOKEN_EXPIRED and
   * close code 4401. Default: 10.
   */
  tokenGraceS?: number | null;
  /**
   * How long before its token expires a client is warned; for a token that is valid for less
   * than twice this time, half of the token's time. 0 for no warning. Default: 60.
   */
  tokenWarningS?: number | null;
  /** Sessions continue when their token has expired. Default: false. */
  keepExpiredSessions?: boolean | null;
  /** The cookie that may hold the token. Default: "access_token". */
  cookieName?: string | null;
  /** The query parameter that may hold the token. Default: none. */
  tokenQueryParameter?: string | null;
  /** A subprotocol that begins with this prefix may hold the token in its rest. Default: none. */
  tokenSubprotocolPrefix?: string | null;
  /** Everybody may connect, without a token. Default: false. */
  noAuth?: boolean | null;
  /**
   * A bad token is reported by an error message and close code 4401 after the upgrade, where a
   * browser can read it, instead of by HTTP 401. Default: false.
   */
  authFailureAfterUpgrade?: boolean | null;
  /** A file with the certificate chain, PEM; with `tlsKey` it enables TLS. Default: no TLS. */
  tlsCertificate?: string | null;
  /** A file with the certificate's private key, PEM. Default: no TLS. */
  tlsKey?: string | null;
  /**
   * Names by which clients may address the server besides addresses and localhost, such as
   * `app.example.com` or `*.example.com`, or `any`. Default: any; on a loopback address without
   * authentication none for web pages.
   */
  allowHost?: string | string[] | null;
  /**
   * Proxies, such as `10.0.0.0/8`, from which the server accepts the client's address: by a
   * PROXY header (version 1 or 2) or by a header line. Default: none.
   */
  trustedProxy?: string | string[] | null;
  /** The header line that trusted proxies write. Default: "x-forwarded-for". */
  forwardedHeader?: "x-forwarded-for" | "forwarded" | null;
  /**
   * Whether clients can encrypt their messages, or must; `required` accepts version 1 too,
   * which does not detect repeated, dropped or reordered messages, `required-v2` refuses it.
   * Default: "off".
   */
  encryption?: "off" | "optional" | "required" | "required-v2" | null;
  /**
   * A file with the server's private identity key, PEM (PKCS#8, P-256), by which clients
   * recognize this server. Default: none.
   */
  identityKey?: string | null;
  /**
   * The secret that signatures of messages are checked with, at least 32 bytes. On the command
   * line other users of the machine can see it. Default: signatures are not checked.
   */
  signatureSecret?: string | null;
  /**
   * A file with the secret that signatures of messages are checked with, at least 32 bytes.
   * Default: signatures are not checked.
   */
  signatureSecretFile?: string | null;
  /**
   * A file with the ECDSA public key, PEM (P-256), that signatures of messages are checked
   * with. Default: signatures are not checked.
   */
  signaturePublicKey?: string | null;
  /**
   * Signatures remembered for 5 to 7 minutes, so that each counts once; one user or, without
   * authentication, one address has at most a quarter. Default: 1000000.
   */
  signatureNoncesMax?: number | null;
  /** Reject messages without a signature. Default: false. */
  requireSignatures?: boolean | null;
  /**
   * permessage-deflate for clients that offer it: `shared` uses one compressor per event loop
   * and no memory per connection; `per-connection` refers to earlier messages and uses 340 to
   * 430 KB per connection. Default: "off".
   */
  deflate?: "off" | "shared" | "per-connection" | null;
  /**
   * The compression level, from 1 (fastest) to 9 (smallest), also of messages sent as `C:`.
   * Default: 1.
   */
  compressionLevel?: number | null;
  /** Messages shorter than this are not compressed. Default: 1024 (1 KiB). */
  compressionThresholdBytes?: number | null;
  /** The size of the compression window as a power of two. Default: 15. */
  deflateWindowBits?: number | null;
  /**
   * Drop messages for the application whose `id` was already received from the same user or,
   * without authentication, on the same connection. Default: false.
   */
  deduplicate?: boolean | null;
  /** Message ids remembered for `deduplicate`, for the whole server. Default: 50000. */
  deduplicatedIdsMax?: number | null;
  /**
   * Producers (clients that number their messages) that are remembered, for the whole server.
   * Default: 10000.
   */
  producersMax?: number | null;
  /** How long a producer without a connection is remembered. Default: 3600000. */
  producerTtlMs?: number | null;
  /**
   * Sessions that each event loop closes per second of a drain; 0 to close all of them in the
   * first half of the drain's timeout. Default: 0.
   */
  drainRatePerS?: number | null;
  /**
   * During a drain each client reconnects after a random time of at most this length; 0 for no
   * delay. Default: 5000.
   */
  reconnectSpreadMs?: number | null;
  /** Sessions of the whole server; the next client gets HTTP 503. Default: 1000000. */
  connectionsMax?: number | null;
  /**
   * Pending handshakes that the whole server reads, and clients that wait for a decision; past
   * it, a new one replaces the oldest one of the address that has the most. Default: 512.
   */
  handshakesMax?: number | null;
  /**
   * Pending handshakes that the server reads per address (IPv6: per /64), further ones wait for
   * those of their own address; and clients of it that wait for a decision, further ones get
   * 503. Default: 256.
   */
  handshakesPerAddressMax?: number | null;
  /**
   * Connections of the whole server that wait to begin their handshake; past it, the oldest one
   * of the address that has the most is closed. Default: 16384.
   */
  handshakesParkedMax?: number | null;
  /** Time for the opening handshake, TLS included. Default: 10000. */
  handshakeTimeoutMs?: number | null;
  /**
   * Size of the head of the upgrade request; more than 32 KiB counts as 32 KiB. Default: 16384
   * (16 KiB).
   */
  requestHeadBytesMax?: number | null;
  /** Size of a received message, also after decompression. Default: 1048576 (1 MiB). */
  messageBytesMax?: number | null;
  /**
   * Memory of the messages of one user or, without authentication, of one address that have
   * begun and not ended; past it the connection of its oldest one is closed with code 4431.
   * Default: 67108864 (64 MiB).
   */
  unfinishedBytesPerOwnerMax?: number | null;
  /**
   * Memory of the messages that have begun and not ended, for the whole server; past it the
   * user or address with the most loses its oldest one, with the connection. Default: 536870912
   * (512 MiB).
   */
  unfinishedBytesMax?: number | null;
  /** Messages that a client may send in one burst; 0 for no rate limit. Default: 100000. */
  rateLimitCapacity?: number | null;
  /** Messages per second that a client may send in the long run. Default: 10000. */
  rateLimitRefillPerS?: number | null;
  /**
   * Rejected messages within `errorsWindowMs` after which the connection is closed with code
   * 4430; 0 for no limit. Default: 50.
   */
  errorsMax?: number | null;
  /** The time in which the server forgets `errorsMax` rejected messages, evenly. Default: 10000. */
  errorsWindowMs?: number | null;
  /** Data that waits to be sent; past it the connection is closed. Default: 16777216 (16 MiB). */
  outboxBytesMax?: number | null;
  /**
   * Data that waits to be sent, for the whole server; past it a connection for which more than
   * 64 KiB wait is closed. Default: 1073741824 (1 GiB).
   */
  outboxesBytesMax?: number | null;
  /**
   * Data that waits to be sent; past it the server stops reading the connection. More than half
   * of `outboxBytesMax` counts as half. Default: 1048576 (1 MiB).
   */
  outboxPauseBytes?: number | null;
  /**
   * Data that the kernel buffers for a connection that sends fast; 0 leaves it to the kernel.
   * Default: 4194304 (4 MiB).
   */
  receiveBufferBytesMax?: number | null;
  /**
   * Data that the kernel buffers for all connections together; each gets an equal part, but at
   * least 64 KiB. Default: 1073741824 (1 GiB).
   */
  receiveBuffersBytesMax?: number | null;
  /**
   * Time between two pings of the server: of RFC 6455 and, in protocol version 1, messages.
   * Default: 25000.
   */
  pingIntervalMs?: number | null;
  /** Silence after which a connection is closed. Default: 60000. */
  idleTimeoutMs?: number | null;
  /** Time that a peer has to answer a close. Default: 5000. */
  closeTimeoutMs?: number | null;
  /** Time that an event loop may take for one turn before it counts as stuck. Default: 5000. */
  shardStallMs?: number | null;
  /** The time that a client waits before it reconnects to a full server. Default: 5. */
  retryAfterS?: number | null;
  /**
   * Time that the application has to answer a call of a client, or to decide about its
   * connection or publication; more than a day counts as a day. Default: 10000.
   */
  callTimeoutMs?: number | null;
  /** Open calls in each direction. Default: 100. */
  callsPerConnectionMax?: number | null;
  /**
   * Milliseconds of each second for which the requests of one user or, without authentication,
   * of one address may keep an event loop busy; 0 for no limit. Default: 500.
   */
  ownerWorkMsPerS?: number | null;
  /**
   * Clients may subscribe to every topic, publish to it and see who is present; for trials.
   * Default: false.
   */
  topicsOpen?: boolean | null;
  /**
   * Names of topics may have characters that change the direction of writing (U+202A to U+202E,
   * U+2066 to U+2069), by which one name can look like another; for those who have such topics.
   * Default: false.
   */
  topicBidiControls?: boolean | null;
  /**
   * Topics that clients may subscribe to: names or patterns such as `orders.*` and `orders.>`,
   * with `{sub}` for the user's name. Default: none.
   */
  clientSubscribeAllow?: string | string[] | null;
  /**
   * Topics that clients may not subscribe to, even if they are allowed elsewhere. Default:
   * none.
   */
  clientSubscribeDeny?: string | string[] | null;
  /** Topics that clients may publish to. Default: none. */
  clientPublishAllow?: string | string[] | null;
  /** Topics that clients may not publish to, even if they are allowed elsewhere. Default: none. */
  clientPublishDeny?: string | string[] | null;
  /** Topics of which clients may ask who is present. Default: as for subscribing. */
  clientPresenceAllow?: string | string[] | null;
  /**
   * Topics of which clients may not ask who is present, even if they are allowed elsewhere.
   * Default: as for subscribing.
   */
  clientPresenceDeny?: string | string[] | null;
  /**
   * Topics of which clients may join queue groups, if they may subscribe to them. Default:
   * none.
   */
  clientQueueGroupAllow?: string | string[] | null;
  /**
   * Topics of which clients may not join queue groups, even if they are allowed elsewhere.
   * Default: none.
   */
  clientQueueGroupDeny?: string | string[] | null;
  /**
   * The claim of a token that holds its user's own access rules, which replace those above;
   * empty to ignore claims. Default: "topics".
   */
  topicAccessClaim?: string | null;
  /**
   * Topics whose newest publications are kept, and how many of each topic, such as
   * `orders.>=1000`. Default: none.
   */
  history?: Record<string, number> | string[] | null;
  /** Topics whose subscribers see who else is present. Default: none. */
  presence?: string | string[] | null;
  /**
   * How topics are kept and delivered: history, presence, priority, scope and slow subscribers;
   * the first rule whose pattern matches a topic applies. Default: none.
   */
  topicRules?: TopicRule[] | null;
  /** Topics and patterns that one connection may subscribe to. Default: 10000. */
  subscriptionsPerConnectionMax?: number | null;
  /** Estimated memory for the subscriptions of one connection. Default: 16777216 (16 MiB). */
  subscriptionBytesPerConnectionMax?: number | null;
  /**
   * Estimated memory for the subscriptions of one user or, without authentication, of one
   * address. Default: 268435456 (256 MiB).
   */
  subscriptionBytesPerOwnerMax?: number | null;
  /** Estimated memory for all subscriptions. Default: 2147483648 (2 GiB). */
  subscriptionBytesMax?: number | null;
  /** Patterns that one connection may subscribe to. Default: 256. */
  patternsPerConnectionMax?: number | null;
  /** Subscribers of one topic per event loop. Default: 1000000. */
  subscribersPerTopicMax?: number | null;
  /** Size of the payload of a publication. Default: 1048576 (1 MiB). */
  payloadBytesMax?: number | null;
  /**
   * Publications that an event loop has not delivered yet; past it publishing fails, and
   * clients that publish are not read. Default: 16777216 (16 MiB).
   */
  backlogBytesMax?: number | null;
  /**
   * Size of all histories together; past it the topic that was unused for the longest time
   * loses its history first. Default: 268435456 (256 MiB).
   */
  historyBytesMax?: number | null;
  /** Topics whose position is remembered. Default: 1000000. */
  historyTopicsMax?: number | null;
  /** Size of a subscriber's presence data, as JSON. Default: 4096 (4 KiB). */
  presenceDataBytesMax?: number | null;
  /**
   * Bytes of presence events per second that one user or, without authentication, one address
   * may cause, counted for each receiver; 0 for no limit. Default: 8388608.
   */
  presenceBytesPerS?: number | null;
  /** Publication ids remembered to drop repeated publications. Default: 50000. */
  rememberedIdsMax?: number | null;
  /**
   * Publications that may wait for one lagging subscription that conflates or drops. Default:
   * 1000.
   */
  lagPublicationsMax?: number | null;
  /**
   * Size of the publications that may wait for one lagging subscription that conflates or
   * drops. Default: 1048576 (1 MiB).
   */
  lagBytesMax?: number | null;
  /** Publications that may wait for the members of one queue group. Default: 100000. */
  groupWaitingMax?: number | null;
  /**
   * Size of the publications that may wait for the members of one queue group. Default:
   * 16777216 (16 MiB).
   */
  groupWaitingBytesMax?: number | null;
  /** Queue groups of one topic. Default: 64. */
  groupsPerTopicMax?: number | null;
  /**
   * The publication that a full queue group drops: the one that has waited longest, or the new
   * one. Default: "drop_oldest".
   */
  groupOverload?: "drop_oldest" | "drop_newest" | null;
  /**
   * Data that may wait for the application to receive it; past it the connections are not read.
   * Default: 67108864 (64 MiB).
   */
  queueBytesMax?: number | null;
  /**
   * The application answers clients that ask for the state of topics (messages of the kind
   * `snapshot_request`); otherwise they get what the topics keep. Default: false.
   */
  snapshotRequests?: boolean | null;
  /**
   * The URL of the Redis or Valkey (7 or newer) that the servers share: `redis://`, `rediss://`
   * for TLS, `unix://`, `redis+sentinel://` for the master that sentinels name, or
   * `redis+cluster://` for a Redis Cluster. Several independent ones, separated by commas,
   * share the topics. On the command line other users of the machine can see its password.
   * Default: no broker: every topic is this server's own.
   */
  broker?: string | null;
  /**
   * Into how many parts the topics are divided, each with keys of its own, so that several
   * brokers or the masters of a Redis Cluster share them. The same at all servers; `tidewire
   * partition` changes it. Default: one for each broker.
   */
  brokerPartitions?: number | null;
  /**
   * Certificates of the authorities that a `rediss://` broker is checked with, PEM. Default:
   * the authorities of the web.
   */
  brokerCaFile?: string | null;
  /**
   * The certificate chain that this server shows to a `rediss://` broker which asks for one,
   * PEM. Read again before each connection. Default: no certificate.
   */
  brokerCertificateFile?: string | null;
  /** The key of that certificate, PEM. Default: no key. */
  brokerKeyFile?: string | null;
  /** The user of the broker, also for a Unix socket. Default: the user of the URL, or `default`. */
  brokerUsername?: string | null;
  /**
   * A file whose first line is the password of the broker. Read again before each connection.
   * Default: the password of the URL, or none.
   */
  brokerPasswordFile?: string | null;
  /**
   * A program and its arguments, divided by spaces, that prints the password of the broker in
   * its first line: it runs before each connection, for passwords that end, such as those of
   * the IAM of a cloud. It has 10 s. Default: no command.
   */
  brokerPasswordCommand?: string | null;
  /**
   * The prefix of all keys and channels in the broker. Servers with another prefix are another
   * cluster. Default: "tw".
   */
  brokerPrefix?: string | null;
  /**
   * Positions of topics outlive a restart of the broker. Only for one Redis without replicas,
   * with `appendonly yes` and `appendfsync always`. Default: false.
   */
  brokerIsDurable?: boolean | null;
  /**
   * How long publications and subscriptions wait while the broker does not answer. Default:
   * 5000.
   */
  brokerWaitMs?: number | null;
  /**
   * How long the broker may be away until this server ends its sessions, so that their clients
   * go to servers that reach it: each client receives `reconnect`, spread over
   * `reconnectSpreadMs`, and the code 1012. Once in an outage. 0: sessions stay. Default: 0.
   */
  brokerLostCloseS?: number | null;
  /** The URL that events are posted to: `http://` or `https://`. Default: no backend. */
  backend?: string | null;
  /**
   * The events that the backend gets: `connect`, `subscribe`, `publish`, `request`, `message`,
   * `disconnect`. Default: no events.
   */
  backendEvents?: string | string[] | null;
  /**
   * The key of the signature of each request (HMAC-SHA256), at least 16 bytes. On the command
   * line other users of the machine can see it. Default: requests are not signed.
   */
  backendSecret?: string | null;
  /**
   * A file with the key of the signature of each request, at least 16 bytes. Default: requests
   * are not signed.
   */
  backendSecretFile?: string | null;
  /**
   * Certificates of the authorities that an `https://` backend is checked with, PEM. Default:
   * the authorities of the web.
   */
  backendCaFile?: string | null;
  /**
   * Connections, subscriptions and publications without a usable answer of the backend: refuse
   * them, or allow what the other options allow. Default: "refuse".
   */
  backendAway?: "refuse" | "allow" | null;
  /** Connections to the backend, each with one request at a time. Default: 16. */
  backendConnectionsMax?: number | null;
  /** Events that may wait for an answer; further ones are refused. Default: 1024. */
  backendInFlightMax?: number | null;
  /** The same in bytes. Default: 16777216 (16 MiB). */
  backendInFlightBytesMax?: number | null;
  /** How long a connection to the backend may take, with TLS. Default: 1000. */
  backendConnectTimeoutMs?: number | null;
  /** How long an event waits for its answer. Default: 5000. */
  backendTimeoutMs?: number | null;
  /**
   * A connection to the backend without a request is closed after this time; it should be
   * shorter than the time of the backend itself. Default: 4000.
   */
  backendIdleTimeoutMs?: number | null;
  /** The longest answer of the backend. Default: 1048576 (1 MiB). */
  backendAnswerBytesMax?: number | null;
}
