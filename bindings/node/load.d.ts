// The types of loads.

type Texts = string | string[];

export interface LoadProgress {
  /** Seconds since the sending began. */
  elapsedS: number;
  /** Successful requests a second, over the last second. */
  ratePerS: number;
  succeeded: number;
  failed: number;
  /** Connections that are open now. */
  connected: number;
}

/** The options of a load: the flags of `tidewire load` (docs/load.md), in camelCase. */
export interface LoadOptions {
  abortAfterS?: number;
  binary?: boolean;
  body?: string;
  ca?: string;
  cert?: string;
  compressed?: boolean;
  confidence?: string;
  connectTimeoutMs?: number;
  connectionStages?: string;
  /** Connections in all. Default 50. */
  connections?: number;
  cookies?: Record<string, string>;
  deflate?: boolean;
  drainMs?: number;
  /** How long to send. Default 10, unless `requests` is given. */
  durationS?: number;
  /** Encrypt every message, as protocol version 1 does; the profile is then `v1`. */
  encrypt?: boolean;
  /** The expectations of the figures, such as `p99<20ms` or `GET /items: errors<1%`. */
  expect?: Texts;
  expectBody?: string;
  expectLength?: number;
  expectStatus?: string;
  findLimit?: boolean;
  form?: Record<string, string>;
  fromPerS?: number;
  headers?: Record<string, string>;
  /** Requests under way on each connection. Default 1. */
  inFlight?: number;
  insecure?: boolean;
  jsonBody?: unknown;
  keepAlive?: boolean;
  key?: string;
  /** Send texts as they are: `{{seq}}` and the like stand for nothing. Default false. */
  literal?: boolean;
  memory?: boolean;
  message?: string;
  messageFile?: string;
  messagesPerS?: number;
  method?: string;
  poisson?: boolean;
  profile?: "raw" | "v1";
  proxy?: string;
  rampPerS?: number;
  /** Requests a second over all connections, whatever the service does. */
  ratePerS?: number;
  /** Replace a WebSocket that ends before the load ends it, or that cannot be opened. Default false. */
  reconnect?: boolean;
  redirects?: number;
  reply?: string;
  requests?: number;
  requestsPerConnection?: number;
  /** Whether a request that is closed unanswered is sent again. Default `never`. */
  retry?: "never" | "idle-close";
  resolve?: Texts;
  scenario?: string;
  seed?: number;
  serverPid?: number;
  sni?: string;
  sourceAddress?: Texts;
  stages?: string;
  stepS?: number;
  subscribe?: Texts;
  /** Default half of the cores. */
  threads?: number;
  timeoutMs?: number;
  timestampField?: string;
  toPerS?: number;
  token?: string;
  unixSocket?: string;
  warmUpS?: number;
  /** Called about twenty times a second. */
  onProgress?: (figures: LoadProgress) => void;
  /** Ends the load early, with a result that is `interrupted`. */
  signal?: AbortSignal;
}

/** The result of a load. `report` has everything (docs/report-format.md). */
export class LoadResult {
  private constructor();
  readonly report: Record<string, any>;
  /** The exit code of `tidewire load`: 0 as expected, 1 failed, 3 the generator was the limit, and more. */
  readonly exitCode: number;
  /** Successful requests or messages in a second. */
  get ratePerS(): number;
  get succeeded(): number;
  get failed(): number;
  /** Whole responses by status. */
  get statuses(): Record<string, number>;
  /** The errors, by name. */
  get errors(): Record<string, number>;
  /** Latency of the successes in milliseconds: `p50`, `p90`, `p99`, `min`, `mean`, `max` and more. */
  get latencyMs(): Record<string, number>;
  get verdict(): "valid" | "generator_bound" | "noisy" | "failed";
  /** Whether every expectation was kept. */
  get asExpected(): boolean;
  get interrupted(): boolean;
  get notes(): string[];
  /** The tables that `tidewire load` prints. */
  tables(): string;
  /** Writes report.json, report.html and report.md to a directory, which is made; the path of the page. */
  save(directory: string): string;
  toJSON(): Record<string, any>;
}

/** Loads an HTTP or WebSocket service. A service that refuses, lies or is not there is a result and no error. */
export function load(url: string | URL, options?: LoadOptions): Promise<LoadResult>;
