/** The HTTP side: the page, `POST /login`, and `GET /health`. */

import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { hostname, networkInterfaces } from "node:os";
import type { PageFiles } from "../../../shared/page-files.js";
import { login } from "./tokens.js";

const BODY_BYTES_MAX = 4_096;

export interface SiteOptions {
  host: string;
  port: number;
  secret: string;
  /** Files of the page by their path: the content type and the content. */
  files: PageFiles;
  /** The body of `/health`; without `isHealthy` the status is 503. */
  health: () => { isHealthy: boolean } & Record<string, unknown>;
}

export interface Site {
  /** `http://HOST:PORT`, where this machine reaches it. */
  readonly origin: string;
  /** The origins of its pages, by every address and name that this machine knows of itself. */
  readonly origins: string[];
  close(): Promise<void>;
}

export async function serveSite(options: SiteOptions): Promise<Site> {
  const server = createServer((request, response) => {
    route(options, request, response).catch(() => {
      if (!response.headersSent) response.statusCode = 500;
      response.end();
    });
  });
  server.listen(options.port, options.host);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const origins = hostsOf(options.host).map((host) => `http://${host}:${port}`);
  return {
    origin: origins[0] ?? "",
    origins,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

/** The hosts in URLs of a server that listens on this address; the first one is reached from this machine. */
export function hostsOf(listening: string): string[] {
  const isAll = listening === "0.0.0.0" || listening === "::";
  if (!isAll) return [inUrl(listening), ...(LOOPBACK.includes(listening) ? ["localhost"] : [])];
  const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  const reached = own.filter(({ family }) => listening === "::" || family === "IPv4");
  const first = listening === "::" ? "[::1]" : "127.0.0.1";
  const addresses = reached.map(({ address }) => inUrl(address));
  return [...new Set([first, ...addresses, "localhost", hostname().toLowerCase()])];
}

const LOOPBACK = ["127.0.0.1", "::1"];

/** An address as the host of a URL. */
const inUrl = (address: string) => (address.includes(":") ? `[${address}]` : address);

async function route(
  options: SiteOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { pathname } = new URL(request.url ?? "/", "http://localhost");
  if (request.method === "POST" && pathname === "/login") return logIn(options, request, response);
  if (request.method !== "GET" && request.method !== "HEAD")
    return reply(response, 405, { error: "use GET" });
  if (pathname === "/health") {
    const health = options.health();
    return reply(response, health.isHealthy ? 200 : 503, health);
  }
  const file = options.files.get(pathname);
  if (!file) return reply(response, 404, { error: `there is no ${pathname}` });
  response.setHeader("content-type", file[0]);
  response.end(file[1]);
}

async function logIn(
  options: SiteOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > BODY_BYTES_MAX)
      return reply(response, 413, { error: `the body has more than ${BODY_BYTES_MAX} bytes` });
    chunks.push(chunk);
  }
  let body: { name?: unknown; token?: unknown } | null;
  try {
    body = JSON.parse(Buffer.concat(chunks).toString()) as typeof body;
  } catch {
    return reply(response, 400, { error: "the body is not JSON" });
  }
  const known = login(body?.name, body?.token, options.secret, Math.floor(Date.now() / 1000));
  if (known) return reply(response, 200, known);
  return reply(response, 400, { error: "a name has 1 to 24 letters, digits, spaces, _ - or '" });
}

function reply(response: ServerResponse, status: number, body: unknown): void {
  response.statusCode = status;
  response.setHeader("content-type", "application/json");
  response.setHeader("cache-control", "no-store");
  response.end(JSON.stringify(body));
}
