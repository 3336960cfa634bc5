/** The HTTP/1.1 upgrade of the protocol's section 2, the client's side: the request, and a strict reader of the answer. */

import { createHash } from "node:crypto";
import { DEFLATE_OFFER, type DeflateParameters, readDeflateAnswer } from "./deflate.js";

/** The longest head of an answer, and of all interim responses before it, in bytes: as for any other response (PROTOCOL 2.5). */
export const HEAD_BYTES_MAX = 65_535;
/** The most header lines of an answer. */
const HEADER_LINES_MAX = 128;
/** The most interim (1xx) responses before an answer. */
const INTERIMS_MAX = 100;
const ACCEPT_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/** The longest wait that a server can ask for: a day. */
const RETRY_MS_MAX = 86_400_000;

/** Headers that the request itself sets. */
const OWN_HEADERS = new Set([
  "host",
  "upgrade",
  "connection",
  "content-length",
  "transfer-encoding",
  "sec-websocket-key",
  "sec-websocket-version",
  "sec-websocket-protocol",
  "sec-websocket-extensions",
]);

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const VISIBLE = /^[\x21-\x7e]+$/;
/** Visible characters of ISO 8859-1, spaces and tabs. */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** What a request asks for. */
export interface UpgradeRequest {
  /** `Host`, with the port unless it is the scheme's default. */
  host: string;
  /** Path and query. */
  target: string;
  /** 16 random bytes in base64. */
  key: string;
  /** Subprotocols to offer. */
  protocols: readonly string[];
  /** Whether to offer permessage-deflate. */
  offersDeflate?: boolean;
  headers: Readonly<Record<string, string>>;
}

/** What the answer depends on. */
export type Asked = Pick<UpgradeRequest, "key" | "protocols" | "offersDeflate">;

/** An answer that accepts the upgrade. */
export interface Acceptance {
  kind: "accepted";
  /** Bytes of the head, with the empty line; frames follow it. */
  headBytes: number;
  protocol: string | undefined;
  /** The header `Server`, if the server sends it. */
  server: string | undefined;
  /** What was agreed on, with permessage-deflate. */
  deflate: DeflateParameters | undefined;
}

/** Why an answer is none: it was refused, is not HTTP, is too long, or does not fit the request. */
export type RefusalError =
  | "refused"
  | "malformed"
  | "head_too_large"
  | "too_many_interims"
  | "not_accepted"
  | "extensions";

/** An answer that does not accept the upgrade. */
export interface Refusal {
  kind: "refused";
  error: RefusalError;
  /** The error in words. */
  reason: string;
  /** The HTTP status, if the error is `refused`. */
  status?: number;
  /** `Retry-After` in milliseconds, a day at most. */
  retryAfterMs?: number;
}

/**
 * The bytes of a request, in ISO 8859-1.
 *
 * @throws {TypeError} for a host, target, subprotocol or header with characters that a request cannot carry, and for a
 * header that the request sets itself.
 */
export function writeRequest(request: UpgradeRequest): string {
  const { host, target, protocols, headers } = request;
  requireAllowed(VISIBLE.test(host), "host");
  requireAllowed(VISIBLE.test(target) && target.startsWith("/"), "target");
  for (const protocol of protocols) requireAllowed(TOKEN.test(protocol), "subprotocol");
  let text =
    `GET ${target} HTTP/1.1\r\nHost: ${host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
    `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${request.key}\r\n`;
  if (protocols.length > 0) text += `Sec-WebSocket-Protocol: ${protocols.join(", ")}\r\n`;
  if (request.offersDeflate) text += `Sec-WebSocket-Extensions: ${DEFLATE_OFFER}\r\n`;
  for (const [name, value] of Object.entries(headers)) {
    requireAllowed(TOKEN.test(name) && HEADER_VALUE.test(value), `header ${JSON.stringify(name)}`);
    if (OWN_HEADERS.has(name.toLowerCase())) {
      throw new TypeError(`the header ${name} is part of the opening handshake; remove it from the options`);
    }
    text += `${name}: ${value}\r\n`;
  }
  return `${text}\r\n`;
}

function requireAllowed(isAllowed: boolean, what: string): void {
  if (!isAllowed) throw new TypeError(`the ${what} has characters that a request cannot carry`);
}

/** `Sec-WebSocket-Accept` for a key (RFC 6455, section 4.2.2). */
export function acceptValue(key: string): string {
  return createHash("sha1")
    .update(key + ACCEPT_GUID)
    .digest("base64");
}

/**
 * Reads the answer to a request from the received bytes, as ISO 8859-1; `undefined` if its end is not among them
 * and it can still become an acceptance. Interim responses (1xx, but 101) before it are skipped. `nowMs` is the
 * time for a `Retry-After` with a date but no `Date`.
 */
export function parseResponse(
  text: string,
  request: Asked,
  nowMs: number,
  headBytesMax = HEAD_BYTES_MAX,
): Acceptance | Refusal | undefined {
  let start = 0;
  for (let interims = 0; ; interims += 1) {
    if (interims > INTERIMS_MAX || start > headBytesMax) return tooManyInterims();
    const head = readHead(text.slice(start), headBytesMax);
    if (head === undefined || "kind" in head) return head;
    const { status, words, headers, bytes } = head;
    start += bytes;
    if (status === 101) return acceptance(headers, request, start);
    if (status < 100 || status >= 200) return refusedWith(status, words, headers, nowMs);
  }
}

interface Head {
  status: number;
  words: string;
  headers: Header[];
  /** With the empty line. */
  bytes: number;
}

/** The head that a text begins with; `undefined` if its end is not there yet. */
function readHead(text: string, headBytesMax: number): Head | Refusal | undefined {
  const window = text.slice(0, headBytesMax);
  const end = window.indexOf("\r\n\r\n");
  const head = end < 0 ? window : window.slice(0, end);
  // A line that begins with white space continues the header before it (RFC 9112, section 5.2).
  const lines = head.replace(/(?<=\r\n[^\r]*)\r\n[ \t]+/g, " ").split("\r\n");
  // The last line of a head without an end may be cut anywhere.
  const isWhole = end >= 0;
  const broken = findBroken(lines, isWhole);
  if (broken !== undefined) return broken;
  if (lines.length - (isWhole ? 1 : 2) > HEADER_LINES_MAX) return tooLarge();
  if (!isWhole) return text.length >= headBytesMax ? tooLarge() : undefined;
  const [status, ...headers] = lines;
  return {
    status: Number(status!.slice(9, 12)),
    words: status!.slice(13),
    headers: headers.map(splitHeader),
    bytes: end + 4,
  };
}

type Header = readonly [name: string, value: string];

const STATUS_LINE = /^HTTP\/1\.1 [0-9]{3}( [\t\x20-\x7e\x80-\xff]*)?$/;
const STATUS_START = "HTTP/1.1 ";
const HEADER_LINE = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*$/;
const HEADER_START = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]*(:[\t\x20-\x7e\x80-\xff]*)?\r?$/;

/** The first line that cannot be part of an answer. */
function findBroken(lines: readonly string[], isWhole: boolean): Refusal | undefined {
  const first = lines[0]!;
  const isOnly = lines.length === 1 && !isWhole;
  const isStatus = isOnly ? isStatusStart(first) : STATUS_LINE.test(first);
  if (!isStatus) return refusal("malformed", "the answer is not HTTP/1.1");
  for (let index = 1; index < lines.length; index += 1) {
    const isCut = !isWhole && index === lines.length - 1;
    if (!(isCut ? HEADER_START : HEADER_LINE).test(lines[index]!)) {
      return refusal("malformed", "a header of the answer is broken");
    }
  }
  return undefined;
}

/** Whether a text can become a status line. */
function isStatusStart(text: string): boolean {
  if (text.length <= STATUS_START.length) return STATUS_START.startsWith(text);
  return (
    text.startsWith(STATUS_START) &&
    /^[0-9]{1,3}$|^[0-9]{3}(\r| [\t\x20-\x7e\x80-\xff]*\r?)$/.test(text.slice(9))
  );
}

function splitHeader(line: string): Header {
  const colon = line.indexOf(":");
  return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).replace(/^[ \t]+|[ \t]+$/g, "")];
}

function acceptance(headers: readonly Header[], request: Asked, headBytes: number): Acceptance | Refusal {
  const all = (name: string) => headers.filter((header) => header[0] === name).map((header) => header[1]);
  if (!all("upgrade").some((value) => value.toLowerCase() === "websocket")) {
    return refusal("not_accepted", "Upgrade is not websocket");
  }
  const connection = all("connection").flatMap((value) => value.split(","));
  if (!connection.some((value) => value.trim().toLowerCase() === "upgrade")) {
    return refusal("not_accepted", "Connection does not upgrade");
  }
  const accepts = all("sec-websocket-accept");
  if (accepts.length !== 1 || accepts[0] !== acceptValue(request.key)) {
    return refusal("not_accepted", "Sec-WebSocket-Accept does not match");
  }
  const extensions = all("sec-websocket-extensions");
  if (extensions.length > (request.offersDeflate ? 1 : 0)) {
    return refusal("extensions", "the server chose an extension that was not offered");
  }
  const deflate = extensions[0] === undefined ? undefined : readDeflateAnswer(extensions[0]);
  if (extensions.length > 0 && deflate === undefined) {
    return refusal("extensions", "the server answered the offer of permessage-deflate with something else");
  }
  const protocols = all("sec-websocket-protocol");
  const protocol = protocols[0];
  if (protocols.length > 1 || (protocol !== undefined && !request.protocols.includes(protocol))) {
    return refusal("not_accepted", "the server chose a subprotocol that was not offered");
  }
  return { kind: "accepted", headBytes, protocol, server: all("server")[0], deflate };
}

function refusedWith(status: number, words: string, headers: readonly Header[], nowMs: number): Refusal {
  const first = (name: string) => headers.find((header) => header[0] === name)?.[1];
  const detail = status === 401 ? tokenProblem(first("www-authenticate") ?? "") : "";
  const reason = `the server refused the connection: ${status} ${words}`.trimEnd() + detail;
  const retryAfterMs = waitOf(first("retry-after"), first("date"), nowMs);
  return { ...refusal("refused", reason), status, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
}

/** The text of a challenge for a bearer token (RFC 6750, section 3); without an error there was no token. */
function tokenProblem(challenge: string): string {
  if (!/^bearer( |$)/i.test(challenge)) return "";
  const description = /error_description="([^"]*)"/.exec(challenge)?.[1];
  if (description !== undefined) return `: ${description}`;
  return challenge.includes("error=") ? "" : ": a token is needed";
}

/** `Retry-After` as milliseconds. A date counts from the server's own `Date`, as this clock may be wrong. */
function waitOf(value: string | undefined, date: string | undefined, nowMs: number): number | undefined {
  if (value === undefined) return undefined;
  if (/^[0-9]+$/.test(value)) return Math.min(Number(value) * 1000, RETRY_MS_MAX);
  const until = httpDate(value);
  if (until === undefined) return undefined;
  const now = (date === undefined ? undefined : httpDate(date)) ?? nowMs;
  return Math.min(Math.max(0, until - now), RETRY_MS_MAX);
}

/** A date as RFC 9110, section 5.6.7 writes it, in milliseconds since 1970. */
function httpDate(value: string): number | undefined {
  if (!/^[A-Za-z]{3,9},? .*GMT$|^[A-Z][a-z]{2} [A-Z][a-z]{2} .*[0-9]{4}$/.test(value)) return undefined;
  const time = Date.parse(value.endsWith("GMT") ? value : `${value} GMT`);
  return Number.isNaN(time) ? undefined : time;
}

function refusal(error: RefusalError, reason: string): Refusal {
  return { kind: "refused", error, reason };
}

function tooManyInterims(): Refusal {
  return refusal("too_many_interims", "the server sent too many interim (1xx) responses and no answer");
}

function tooLarge(): Refusal {
  return refusal("head_too_large", "the head of the answer is too large");
}
