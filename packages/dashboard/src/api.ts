/** The HTTP API below `/dashboard/api/`, with the cookie of the login. */

import { printable } from "./printable.js";

export class ApiError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Called when the login has ended. */
export const login: { ended: () => void } = { ended: () => {} };

export async function get<T>(
  path: string,
  query: Record<string, string | number | undefined> = {},
): Promise<T> {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const words = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return send<T>("GET", `/dashboard/api/v1/${path}${given.length ? `?${words}` : ""}`);
}

export function post<T>(path: string, body: unknown): Promise<T> {
  return send<T>("POST", `/dashboard/api/v1/${path}`, JSON.stringify(body));
}

/** Posts fields and a payload, whose text is sent as it is: numbers of any size keep their digits. */
export function postWithPayload<T>(path: string, fields: object, payload: string): Promise<T> {
  const given = JSON.stringify(fields).slice(0, -1);
  return send<T>("POST", `/dashboard/api/v1/${path}`, `${given},"payload":${payload}}`);
}

/** Posts the key once; the answer sets the cookie. */
export function logIn(key: string): Promise<unknown> {
  return send("POST", "/dashboard/login", JSON.stringify({ key }));
}

export function logOut(): Promise<unknown> {
  return send("POST", "/dashboard/logout", "{}");
}

/** The key of the login, and what it permits. */
export function readSession(): Promise<Session> {
  return send<Session>("GET", "/dashboard/session");
}

async function send<T>(method: string, path: string, body?: string): Promise<T> {
  const init: RequestInit = { method, credentials: "same-origin" };
  if (body !== undefined) init.body = body;
  const answer = await fetch(path, init);
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text) as T;
  if (answer.status === 401 && path.startsWith("/dashboard/api/")) login.ended();
  let message = text || answer.statusText;
  try {
    message = JSON.parse(text).error.message;
  } catch {
    // The answer of a proxy, as it is.
  }
  throw new ApiError(answer.status, printable(message));
}

export type Right = "read" | "publish" | "admin";

export interface Session {
  name: string;
  rights: Right[];
}

/** The numbers that several servers have together. */
export interface SumOfStats {
  ready: boolean;
  total: Record<string, number>;
  usage: Record<string, number>;
  timings: { bounds_s: number[] } & Record<Timing, { counts: number[]; sum_s: number }>;
  resident_bytes: number | null;
  topics: TopicInfo[];
  /** The servers whose numbers are added up, if it is a sum. */
  nodes?: string[];
  /** Servers that did not answer. */
  silent?: string[];
}

/** The numbers of one server. */
export interface Stats extends SumOfStats {
  version: string;
  process_id: number;
  uptime_s: number;
  started_unix_ms: number;
  shards: Record<string, number>[];
  broker: Broker | null;
}

export type Timing = "publication_delivery_duration" | "turn_duration" | "handshake_duration";

export interface TopicInfo {
  topic: string;
  pattern: boolean;
  subscribers: number;
  publications: number;
  per_s: number;
  /** Publications that its history keeps. */
  kept?: number;
  /** The servers that have subscribers of it, where several share a broker. */
  nodes?: string[];
}

export interface ConnectionInfo {
  connection: string;
  id?: string;
  user?: string;
  address?: string;
  format: string;
  topics: number;
  queued_bytes: number;
  connected_unix_ms?: number;
  /** The name of its server, where several share a broker. */
  nodes?: string[];
}

/** A page of a list over all servers. */
export interface Page {
  next: string | null;
  /** Servers that did not answer. */
  silent?: string[];
}

/** The note about the servers whose data is missing in a page. */
export function missing({ silent }: { silent?: string[] }): string {
  return silent?.length ? `Without what these servers have, which do not answer: ${silent.join(", ")}` : "";
}

export interface ConnectionDetails {
  connection: ConnectionInfo;
  subscriptions: string[];
  more: boolean;
}

export interface History {
  epoch?: string;
  offset?: number;
  oldest: number;
  publications: { t?: string; o?: number; p?: unknown; [name: string]: unknown }[];
  more: boolean;
}

export interface Presence {
  users: number;
  connections: number;
  members: { user: string; connections: number; data?: unknown }[];
}

/** The broker that servers share. */
export interface Broker {
  is_connected: boolean;
  reason?: string | null;
  /** How long it has not answered. */
  away_ms: number;
  /** Problems that exist although it answers. */
  problems: { kind: string; is_fatal: boolean; text: string }[];
  nodes: ClusterNode[];
}

export interface ClusterNode {
  node: string;
  address: string;
  version: string;
  connections: number;
  topics: number;
  publications_per_s: number;
}
