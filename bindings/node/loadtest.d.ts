// The types of `tidewire/loadtest`: the interface of the npm module `loadtest`.

import type { IncomingMessage, RequestOptions, ClientRequest, ServerResponse } from "node:http";

type Numeric = number | string;

/** The response as `statusCallback` and `contentInspector` see it. */
export interface StatusResult {
  host: string;
  path: string;
  method: string;
  statusCode: number;
  body: string;
  headers: Record<string, string | string[] | undefined>;
  labels?: unknown;
  /** Milliseconds, with fractions. */
  requestElapsed: number;
  requestIndex: number;
  instanceIndex: number;
  customError?: boolean;
  customErrorCode?: string | number;
}

export interface LoadTestOptions {
  url: string | URL;
  /** Requests to send. */
  maxRequests?: Numeric;
  /** How long to send. Default 10, unless `maxRequests` is given. */
  maxSeconds?: Numeric;
  /** Clients in all. Default 10. */
  concurrency?: Numeric;
  /** How long to wait for a response, in milliseconds. */
  timeout?: Numeric;
  method?: string;
  contentType?: string;
  body?: string | object | ((id: string) => string | object);
  data?: string | object;
  postBody?: string | object;
  patchBody?: string | object;
  postFile?: string;
  putFile?: string;
  patchFile?: string;
  file?: string;
  headers?: Record<string, string> | string[] | string;
  cookies?: Record<string, string> | string[] | string;
  requestsPerSecond?: Numeric;
  rps?: Numeric;
  agentKeepAlive?: boolean;
  keepalive?: boolean;
  agent?: boolean;
  indexParam?: string | RegExp;
  index?: string | RegExp;
  indexParamLiteral?: string;
  indexParamCallback?: () => unknown;
  requestGenerator?:
    | string
    | ((
        options: LoadTestOptions,
        params: RequestOptions,
        client: (params: RequestOptions, callback: (response: IncomingMessage) => void) => ClientRequest,
        callback: (response: IncomingMessage) => void,
      ) => ClientRequest);
  statusCallback?: (error: string | null, result: StatusResult | undefined) => void;
  contentInspector?: (result: StatusResult) => void;
  insecure?: boolean;
  cert?: string;
  key?: string;
  ca?: string;
  proxy?: string;
  quiet?: boolean;
  recover?: boolean;
  debug?: boolean;
  tcp?: boolean;
  cores?: Numeric;
  signal?: AbortSignal;
}

/** The result of a load. Times are in milliseconds, with fractions. */
export class Result {
  private constructor();
  url: string;
  cores: number | undefined;
  maxRequests: number | undefined;
  maxSeconds: number | undefined;
  concurrency: number;
  agent: "none" | "keepalive" | "tcp";
  requestsPerSecond: number | undefined;
  clients: number;
  startTimeMs: number;
  stopTimeMs: number;
  elapsedSeconds: number;
  totalTimeSeconds: number;
  totalRequests: number;
  totalErrors: number;
  accumulatedMs: number;
  meanLatencyMs: number;
  minLatencyMs: number;
  maxLatencyMs: number;
  effectiveRps: number;
  rps: number;
  percentiles: Record<"50" | "90" | "95" | "99", number>;
  errorCodes: Record<string, number>;
  histogramMs: Record<string, number>;
  instanceIndex: number;
  /** Prints the report. */
  show(): void;
  /** The lines of the report. */
  text(): string;
  /** Adds the figures of another result. */
  combine(other: Result): void;
}

/** Loads a URL. Rejects for mistakes in the options alone. */
export function loadTest(options: LoadTestOptions): Promise<Result>;
export function loadTest(options: LoadTestOptions, callback: (error: Error | null, result?: Result) => void): void;

export interface TestServerOptions {
  /** Default 7357; 0 takes a free one. */
  port?: Numeric;
  /** Milliseconds before each response. */
  delay?: Numeric;
  /** The status of each response, or of `percent` of them. */
  error?: Numeric;
  percent?: number;
  body?: string;
  file?: string;
  quiet?: boolean;
  logger?: (request: IncomingMessage & { body: string }, response: ServerResponse) => void;
  shouldErrorCustom?: (request: IncomingMessage & { body: string }) => boolean;
}

export interface TestServer {
  readonly port: number | undefined;
  readonly totalRequests: number;
  close(callback?: () => void): Promise<void>;
}

export function startServer(options?: TestServerOptions): Promise<TestServer>;
export function startServer(
  options: TestServerOptions,
  callback: (error: Error | null, server?: TestServer) => void,
): TestServer;
