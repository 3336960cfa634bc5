// The types of the options of a server.

import type { Priority } from "./index.js";

export interface TopicRule {
  /** A topic's name, or a pattern such as `orders.*` and `orders.>`. */
  pattern: string;
  /** Publications kept of each topic. */
  historyPublications?: number;
  /** The same in bytes. Default 4 MiB. */
  historyBytes?: number;
  /** Only publications younger than this are kept, in seconds; 0 for any age. Default 0. */
  historyAgeS?: number;
  /** Subscribers get the newest publication at once. Default false. */
  lastValue?: boolean;
  /** Subscribers are told who else is there. Default false. */
  presence?: boolean;
  /** What happens to a subscription that lags. Default `disconnect`. */
  overload?: "disconnect" | "conflate" | "drop_oldest";
  priority?: Priority;
}

type Texts = string | string[];

/**
 * The options of a server: those of `tidewire serve`, in camelCase, and of its handlers. `null` is the
 * default of each.
 */
export interface ServerOptions {
  /** Where clients connect, such as `0.0.0.0:5006`; instead of `host` and `port`. */
  listen?: string | null;
  /** The address to listen on, `0.0.0.0` for all. Default `127.0.0.1`. */
  host?: string | null;
  /** The port; 0 takes a free one. Default 5006. */
  port?: number | null;
  /** Where /health, /ready, /metrics and /stats are answered, without authentication, and the HTTP API. */
  opsListen?: string | null;
  /** A file with the key of the HTTP API, at least 16 visible letters; without it the API is off. */
  apiKeyFile?: string | null;
  /** The key of the HTTP API itself. */
  apiKey?: string | null;
  /** Event loops, each with a thread of its own. Default one per core. */
  shards?: number | null;
  /**
   * What is spoken inside the WebSocket: Tidewire's protocol version 1, which wants a token unless
   * `noAuth` is given, or plain messages for any client. Default `"v1"`.
   */
  protocol?: "v1" | "raw" | null;
  /** Paths that take connections, or `any`. Default `/ws` and `/wse`. */
  path?: Texts | null;
  /** Origins of web pages that may connect besides those of the same host, or `any`. */
  origin?: Texts | null;
  /** Subprotocols that are confirmed to clients that offer them; the client's first if none is given. */
  subprotocol?: Texts | null;
  /**
   * Names by which the server may be called, such as `app.example.com` or `*.example.com`, or `any`.
   * Default any, but none for web pages on a loopback address without authentication.
   */
  allowHost?: Texts | null;
  /** Proxies that are believed when they tell whom they forward, such as `10.0.0.0/8`. */
  trustedProxy?: Texts | null;
  /** The header line that they write. Default `"x-forwarded-for"`. */
  forwardedHeader?: "x-forwarded-for" | "forwarded" | null;
  /** A file with the certificate chain, PEM; with `tlsKey` it turns TLS on. */
  tlsCertificate?: string | null;
  /** The certificate's private key, PEM. */
  tlsKey?: string | null;
  /** Sessions in all; the next one gets HTTP 503. Default 1000000. */
  connectionsMax?: number | null;
  /**
   * Connections in the opening handshake that are read, in all; past it, the address with the most gives
   * way. Default 512.
   */
  handshakesMax?: number | null;
  /**
   * The same of one address (IPv6: of a /64); further ones wait for those of their own address. Default
   * 256.
   */
  handshakesPerAddressMax?: number | null;
  /** Connections that wait so, in all. Default 16384. */
  handshakesParkedMax?: number | null;
  /** Time for the opening handshake, TLS included. Default 10000. */
  handshakeTimeoutMs?: number | null;
  /** Size of the head of the upgrade request. Default 16384. */
  requestHeadBytesMax?: number | null;
  /** Size of a message, also when inflated. Default 1048576. */
  messageBytesMax?: number | null;
  /** Messages that may come at once; 0 for no rate limit. Default 100000. */
  rateLimitCapacity?: number | null;
  /** Messages a second that may come in the long run. Default 10000. */
  rateLimitRefillPerS?: number | null;
  /**
   * Messages that may have to be refused in `errorsWindowMs` before the connection is closed; 0 for no
   * limit. Default 50.
   */
  errorsMax?: number | null;
  /** The time in which so many errors are forgotten. Default 10000. */
  errorsWindowMs?: number | null;
  /** What may wait to be sent before the connection is closed. Default 16777216. */
  outboxBytesMax?: number | null;
  /**
   * What may wait for all connections together, in bytes; past it a connection for which more than 64
   * KiB wait is closed. Default 1 GiB.
   */
  outboxesBytesMax?: number | null;
  /** What may wait to be sent before nothing more is read. Default 1048576. */
  outboxPauseBytes?: number | null;
  /**
   * What the kernel may hold unread of a connection that sends fast; 0 leaves it to the kernel. Default
   * 4194304.
   */
  receiveBufferBytesMax?: number | null;
  /**
   * The same of all connections together; each gets an equal part, but at least 64 KiB. Default
   * 1073741824.
   */
  receiveBuffersBytesMax?: number | null;
  /** Time between the server's pings. Default 25000. */
  pingIntervalMs?: number | null;
  /** Silence after which a connection is closed. Default 60000. */
  idleTimeoutMs?: number | null;
  /** Time a peer has to answer a close. Default 5000. */
  closeTimeoutMs?: number | null;
  /** Time that an event loop may take for one turn before it counts as stuck. Default 5000. */
  shardStallMs?: number | null;
  /** Wait that a client is told that finds the server full. Default 5. */
  retryAfterS?: number | null;
  /** How long the application has to answer a call of a client. Default 10000. */
  callTimeoutMs?: number | null;
  /** Calls that may be open at once, in each direction. Default 100. */
  callsPerConnectionMax?: number | null;
  /**
   * Milliseconds of each second that the requests of one user or, without tokens, of one address may
   * keep an event loop busy; 0 for no limit. Default 500.
   */
  ownerWorkMsPerS?: number | null;
  /** Drop messages for the application whose `id` has come before from the same user. */
  deduplicate?: boolean | null;
  /** Ids remembered for that, in all. Default 50000. */
  intakeIdsMax?: number | null;
  /** Producers (those who number their messages) that are remembered, in all. Default 10000. */
  producersMax?: number | null;
  /** How long a producer without a connection is remembered. Default 3600000. */
  producerTtlMs?: number | null;
  /**
   * Sessions that each event loop closes in a second of a drain; 0 for all in half of
   * `drain_timeout_ms`. Default 0.
   */
  drainRatePerS?: number | null;
  /**
   * Clients that have to leave are told to come back after a random time of up to so long; 0 to tell
   * nothing. Default 5000.
   */
  reconnectSpreadMs?: number | null;
  /** The secret of HS256 tokens, 32 bytes or more. */
  jwtSecret?: string | null;
  /** A file with that secret. */
  jwtSecretFile?: string | null;
  /** A file with the public key of tokens, PEM; with `jwtAlgorithm`. */
  jwtPublicKey?: string | null;
  /** What the public key is for. */
  jwtAlgorithm?: "rs256" | "es256" | "eddsa" | null;
  /** Accept only tokens that name this key (`kid`). */
  jwtKeyId?: string | null;
  /** During rotation: the secret before, still accepted. */
  jwtPreviousSecret?: string | null;
  /** A file with that secret. */
  jwtPreviousSecretFile?: string | null;
  /** During rotation: a file with the public key before, still accepted. */
  jwtPreviousPublicKey?: string | null;
  /** What that public key is for. */
  jwtPreviousAlgorithm?: "rs256" | "es256" | "eddsa" | null;
  /** The `kid` of the previous key. */
  jwtPreviousKeyId?: string | null;
  /** What the claim `iss` has to be. */
  jwtIssuer?: string | null;
  /** What the claim `aud` has to be or contain. */
  jwtAudience?: string | null;
  /** How far the clocks of signer and server may be apart. Default 5. */
  jwtLeewayS?: number | null;
  /**
   * How long a session goes on after its token has expired, so that a new token that is late can still
   * come; at least `jwtLeewayS`. Then it ends with close code 4401. Default 10.
   */
  tokenGraceS?: number | null;
  /**
   * How long before that a client is told that its token expires; of a token that is good for less than
   * twice as long, half of that. 0 for never. Default 60.
   */
  tokenWarningS?: number | null;
  /** Sessions go on when their token has expired. */
  keepExpiredSessions?: boolean | null;
  /** The cookie that may hold the token. Default `access_token`. */
  cookieName?: string | null;
  /** The query parameter that may hold the token. */
  tokenQueryParameter?: string | null;
  /** A subprotocol with this prefix may hold the token in its rest. */
  tokenSubprotocolPrefix?: string | null;
  /** Let everyone in. */
  noAuth?: boolean | null;
  /**
   * Tell a bad token by an error message and close code 4401 after the upgrade, where a browser can read
   * it, instead of HTTP 401.
   */
  authFailureAfterUpgrade?: boolean | null;
  /**
   * permessage-deflate for clients that offer it: with the event loops' own compressors, or with a
   * memory of what each connection said before (340 to 430 KB of it). Default `"off"`.
   */
  deflate?: "off" | "shared" | "per-connection" | null;
  /** 1 (fastest) to 9 (smallest), also of messages sent as `C:`. Default 1. */
  compressionLevel?: number | null;
  /** Shorter messages are not compressed. Default 1024. */
  compressionThresholdBytes?: number | null;
  /** How far back compressed messages refer, as a power of two. Default 15. */
  deflateWindowBits?: number | null;
  /** Whether clients can encrypt their messages, or must. Default `"off"`. */
  encryption?: "off" | "optional" | "required" | null;
  /**
   * A file with the private key, PEM (PKCS#8, P-256), by which clients tell this server from somebody in
   * between.
   */
  identityKey?: string | null;
  /** The secret that signatures of messages are checked with, at least 32 bytes. */
  signatureSecret?: string | null;
  /** Check the signatures of messages with the secret in this file, at least 32 bytes. */
  signatureSecretFile?: string | null;
  /** A file with the ECDSA key, PEM (P-256), that signatures of messages are checked with. */
  signaturePublicKey?: string | null;
  /** Refuse messages without a signature. */
  requireSignatures?: boolean | null;
  /** Clients may subscribe to everything, publish everywhere and see who is present. */
  topicsOpen?: boolean | null;
  /**
   * Topics that clients may subscribe to: names or patterns such as `orders.*` and `orders.>`, with
   * `{sub}` for the user's name.
   */
  clientSubscribeAllow?: Texts | null;
  /** Topics that clients may not subscribe to, though they be allowed. */
  clientSubscribeDeny?: Texts | null;
  /** Topics that clients may publish to. */
  clientPublishAllow?: Texts | null;
  /** Topics that clients may not publish to, though they be allowed. */
  clientPublishDeny?: Texts | null;
  /** Topics of which clients may ask who is present. */
  clientPresenceAllow?: Texts | null;
  /** Topics of which clients may not ask who is present, though they be allowed. */
  clientPresenceDeny?: Texts | null;
  /** Topics of which clients may be members of queue groups, if they may subscribe to them. */
  clientQueueGroupAllow?: Texts | null;
  /** Topics of which clients may not be members of queue groups, though they be allowed. */
  clientQueueGroupDeny?: Texts | null;
  /**
   * The claim of a token with rules for its user, in place of those above; empty to look at none.
   * Default `topics`.
   */
  topicAccessClaim?: string | null;
  /** Keep so many publications of each of these topics: `{ "orders.>": 1000 }`. */
  history?: Record<string, number> | string[] | null;
  /** Tell the subscribers of these topics who else is there. */
  presence?: Texts | null;
  /** What is kept of which topics, in detail; the first rule whose pattern matches counts. */
  topicRules?: TopicRule[] | null;
  /** Topics and patterns that one connection may have. Default 10000. */
  subscriptionsPerConnectionMax?: number | null;
  /** Subscribers of one topic on one shard. Default 1000000. */
  subscribersPerTopicMax?: number | null;
  /** The payload of a publication. Default 1048576. */
  payloadBytesMax?: number | null;
  /** Publications that a shard has yet to deliver, before publishing fails. Default 16777216. */
  backlogBytesMax?: number | null;
  /** All histories together. Default 268435456. */
  historyBytesMax?: number | null;
  /** Topics whose position is remembered. Default 1000000. */
  historyTopicsMax?: number | null;
  /** What a subscriber may tell others about itself, as JSON. Default 4096. */
  presenceDataBytesMax?: number | null;
  /** Ids remembered to drop repeated publications. Default 50000. */
  rememberedIdsMax?: number | null;
  /** Publications that may wait for a lagging subscription that conflates or drops. Default 1000. */
  lagPublicationsMax?: number | null;
  /** The same in bytes. Default 1048576. */
  lagBytesMax?: number | null;
  /** Publications that wait for the members of a queue group. Default 100000. */
  groupWaitingMax?: number | null;
  /** The same in bytes. Default 16777216. */
  groupWaitingBytesMax?: number | null;
  /** Queue groups of one topic. Default 64. */
  groupsPerTopicMax?: number | null;
  /**
   * What a full queue group drops: what has waited longest, or the new publication. Default
   * `drop_oldest`.
   */
  groupOverload?: "drop_oldest" | "drop_newest" | null;
  /** Patterns that one connection may have. Default 256. */
  patternsPerConnectionMax?: number | null;
  /** What the subscriptions of one connection may take, in bytes as estimated. Default 16 MiB. */
  subscriptionBytesPerConnectionMax?: number | null;
  /** The same for one user or, without tokens, one address. Default 256 MiB. */
  subscriptionBytesPerOwnerMax?: number | null;
  /** The same for the whole server. Default 2 GiB. */
  subscriptionBytesMax?: number | null;
  /**
   * What may wait for `batches()` or `receive()`, in bytes; past it nothing is read from the
   * connections. Default 64 MiB.
   */
  queueBytesMax?: number | null;
  /**
   * Clients that ask for the state of topics are answered by the application (messages of the kind
   * `snapshotRequest`), not with what the topics keep. Default false.
   */
  snapshotRequests?: boolean | null;
  /** Handlers that may wait at once; at the limit nothing more is received. Default 256. */
  handlersMax?: number | null;
  /** Messages that may wait for an earlier one of their connection. Default 1024. */
  waitingMax?: number | null;
  /** The same in bytes of these messages. Default 16 MiB. */
  waitingBytesMax?: number | null;
  /** A handler that waits for longer is given up, and its client is told. By default none is. */
  handlerTimeoutMs?: number | null;
  /** With `false` messages of one connection are handled at once, too. Default true. */
  keepOrder?: boolean | null;
  /** A handler that keeps the event loop for so long is told in the log; 0 for never. Default 250. */
  blockedWarningMs?: number | null;
  /** How long handlers have to end after the server has stopped. Default 5000. */
  stopTimeoutMs?: number | null;
  /** Where errors of handlers and warnings go. Default the console, without `debug`. */
  log?: (level: "error" | "warn" | "debug", message: string, error?: unknown) => void;
}
