/** From what was given to what is run: tests, target and server. */

import { type Arguments, nearest, numberOf, type OptionName, UsageError } from "./options.js";
import { PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN } from "./payload.js";
import { type Plan, type Profile, type Target, TESTS, type TestName, usualTiers } from "./plan.js";

const QUICK = { durationS: 0.3, holdS: 1, pings: 20, rounds: 20, connectionsMax: 100 };
const USUAL = { durationS: 2, holdS: 30, pings: 50, rounds: 200, connectionsMax: 1_000_000 };
const PROCESSES_MAX = 256;
const PING_TIMEOUT_S = 10;

/** Options that are for a server that is there. */
const NEED_URL: readonly OptionName[] = ["token", "jwt-secret", "server-pid", "stats-url", "ca", "profile"];
const NEED_NO_URL: readonly OptionName[] = ["server-program", "server-shards"];

/** The plan of a run. `room` gives how many connections N processes can open. */
export function planOf({ url, values }: Arguments, room: (processes: number) => number): Plan {
  const isQuick = values.has("quick");
  const usual = isQuick ? QUICK : USUAL;
  const whole = (name: OptionName, fallback: number, most?: number) => {
    const text = values.get(name);
    return text === undefined ? fallback : numberOf(name, text, 1, most);
  };
  const seconds = (name: OptionName, fallback: number) => {
    const text = values.get(name);
    return text === undefined ? fallback : numberOf(name, text, 0.01, 86_400, false);
  };
  const processes = whole("processes", 1, PROCESSES_MAX);
  const tiers = listOf(values.get("connections")).map((text) => numberOf("connections", text, 1));
  const messages = values.get("messages") ?? "made";
  if (messages !== "made" && messages !== "prepared") {
    throw new UsageError(`--messages: ${JSON.stringify(messages)} is neither made nor prepared`);
  }
  const rate = values.get("rate-per-s");
  const inFlight = values.get("in-flight");
  const seed = values.get("seed");
  return {
    tests: testsOf(values.get("test"), url, values.get("profile")),
    tiers: tiers.length > 0 ? tiers : usualTiers(isQuick, room(processes)),
    processes,
    durationS: seconds("duration-s", usual.durationS),
    holdS: seconds("hold-s", usual.holdS),
    holdPingEveryS: isQuick ? 0.2 : 5,
    payloadBytes: listOf(values.get("payload-bytes")).map((text) =>
      numberOf("payload-bytes", text, PAYLOAD_BYTES_MIN, PAYLOAD_BYTES_MAX),
    ),
    isPrepared: messages === "prepared",
    inFlight: inFlight === undefined ? undefined : numberOf("in-flight", inFlight, 1),
    ratePerS: rate === undefined ? undefined : numberOf("rate-per-s", rate, 0.001, 1e9, false),
    pings: whole("pings-per-connection", usual.pings),
    rounds: whole("rounds", usual.rounds),
    connectionsMax: whole("connections-max", usual.connectionsMax),
    seed: seed === undefined ? 1 : numberOf("seed", seed, 0, 2 ** 32),
  };
}

/** A server that is there; `undefined` for one to be started. @throws {UsageError} for options that do not fit. */
export function targetOf({ url, values }: Arguments): Target | undefined {
  for (const name of url === undefined ? NEED_URL : NEED_NO_URL) {
    const words = url === undefined ? "needs a URL" : "is for a run without a URL";
    if (values.has(name)) throw new UsageError(`--${name} ${words}`);
  }
  if (url === undefined) return undefined;
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw new UsageError(`${url} is no URL that begins with ws:// or wss://`);
  }
  if ((parsed.protocol !== "ws:" && parsed.protocol !== "wss:") || parsed.hostname === "") {
    throw new UsageError(`${redacted(url)} is no URL that begins with ws:// or wss://`);
  }
  const stats = values.get("stats-url");
  if (stats !== undefined && !/^https?:\/\//.test(stats)) {
    throw new UsageError(`--stats-url: ${stats} does not begin with http:// or https://`);
  }
  const profile = (values.get("profile") ?? "v1") as Profile;
  if (profile !== "v1" && profile !== "raw") {
    throw new UsageError(`--profile: ${JSON.stringify(profile)} is neither v1 nor raw`);
  }
  // The environment's token and secret are for servers that speak the protocol.
  const environment = profile === "v1" ? process.env : {};
  const jwtSecret =
    values.get("jwt-secret") ?? (values.has("token") ? undefined : environment.TIDEWIRE_JWT_SECRET);
  const token = values.get("token") ?? (jwtSecret === undefined ? environment.TIDEWIRE_TOKEN : undefined);
  const cookieName = values.get("cookie-name");
  const caFile = values.get("ca");
  return {
    url,
    profile,
    pingTimeoutS: pingTimeoutOf(values),
    ...(jwtSecret === undefined ? {} : { jwtSecret }),
    ...(token === undefined ? {} : { token }),
    ...(cookieName === undefined ? {} : { cookieName }),
    ...(caFile === undefined ? {} : { caFile }),
  };
}

/** How long a ping may be unanswered, in seconds. */
export function pingTimeoutOf(values: Arguments["values"]): number {
  const text = values.get("ping-timeout-s");
  return text === undefined ? PING_TIMEOUT_S : numberOf("ping-timeout-s", text, 0.1, 3600, false);
}

function testsOf(
  given: string | undefined,
  url: string | undefined,
  profile: string | undefined,
): TestName[] {
  const names = listOf(given);
  if (names.length === 0) {
    return TESTS.filter((test) => test !== "fan-out" || (url === undefined && profile !== "raw"));
  }
  for (const name of names) {
    if ((TESTS as readonly string[]).includes(name)) continue;
    const near = nearest(name, TESTS);
    throw new UsageError(
      `there is no test ${name}; ${near === undefined ? `there are ${TESTS.join(", ")}` : `did you mean ${near}?`}`,
    );
  }
  if (names.includes("fan-out") && profile === "raw") {
    throw new UsageError("fan-out needs --profile v1: there are no topics without the protocol");
  }
  return [...new Set(names)] as TestName[];
}

function listOf(text: string | undefined): string[] {
  return text === undefined ? [] : text.split(",").map((word) => word.trim());
}

/** A URL without a user name, a password and the values of its query, but for those of `format` and `version`. */
export function redacted(url: string): string {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    return "…";
  }
  const user = parsed.username === "" && parsed.password === "" ? "" : "…@";
  const query = [...parsed.searchParams]
    .map(([name, value]) => `${name}=${name === "format" || name === "version" ? value : "…"}`)
    .join("&");
  return `${parsed.protocol}//${user}${parsed.host}${parsed.pathname}${query === "" ? "" : `?${query}`}`;
}

/** The command line, without secrets. */
export function commandLine(words: readonly string[]): string {
  const shown = ["tidewire-bench-ts"];
  let isSecret = false;
  for (const word of words) {
    const secret = /^(--token|--jwt-secret)(=?)/.exec(word);
    if (isSecret) shown.push("…");
    else if (secret !== null && secret[2] === "=") shown.push(`${secret[1]}=…`);
    else if (word.includes("://"))
      shown.push(word.startsWith("--") ? word.replace(/=.*/, "=…") : redacted(word));
    else shown.push(word);
    isSecret = secret !== null && secret[2] === "";
  }
  return shown.join(" ");
}
