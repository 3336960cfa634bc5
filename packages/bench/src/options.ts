/** The command line: one table of options, from which it is read and the help is made. */

/** A mistake in the command line; nothing was done. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

interface Option {
  /** The placeholder for the value in the help; without it the option has none. */
  value?: string;
  help: string;
  group: "Plan" | "Server" | "Report";
}

/** The options in the order of the help. Names and units are those of `tidewire bench`. */
export const OPTIONS = {
  test: {
    value: "TEST,…",
    group: "Plan",
    help: "what to run; see below (default all, without fan-out at a URL)",
  },
  connections: { value: "N,…", group: "Plan", help: "default 100,1000,10000, as open files allow" },
  processes: { value: "N", group: "Plan", help: "processes of the generator (default 1)" },
  "duration-s": { value: "S", group: "Plan", help: "one measurement (default 2)" },
  "hold-s": { value: "S", group: "Plan", help: "a sustained hold (default 30)" },
  "payload-bytes": { value: "BYTES,…", group: "Plan", help: "sizes of size-matrix and fan-out" },
  messages: {
    value: "HOW",
    group: "Plan",
    help: "made for each send, or prepared: encoded once (default made)",
  },
  "in-flight": {
    value: "N",
    group: "Plan",
    help: "fan-out: publications ahead of the slowest (default 64 KiB of them)",
  },
  "rate-per-s": {
    value: "N",
    group: "Plan",
    help: "messages a second over all connections, when their time has come",
  },
  "pings-per-connection": { value: "N", group: "Plan", help: "ping-latency (default 50)" },
  rounds: { value: "N", group: "Plan", help: "connect-latency (default 200)" },
  "connections-max": { value: "N", group: "Plan", help: "where connection-limit ends (default 1000000)" },
  "ping-timeout-s": { value: "S", group: "Plan", help: "how long a ping may be unanswered (default 10)" },
  seed: { value: "N", group: "Plan", help: "what messages are drawn from (default 1)" },
  quick: { group: "Plan", help: "a run of some seconds that shows that everything works" },
  profile: {
    value: "NAME",
    group: "Server",
    help: "v1, or raw: nothing but WebSocket pings and messages (default v1)",
  },
  token: { value: "JWT", group: "Server", help: "the token that every connection sends (TIDEWIRE_TOKEN)" },
  "jwt-secret": { value: "SECRET", group: "Server", help: "the server's HS256 secret (TIDEWIRE_JWT_SECRET)" },
  "cookie-name": { value: "NAME", group: "Server", help: "send the token as this cookie" },
  "server-pid": { value: "PID", group: "Server", help: "default the process that listens on the URL's port" },
  "stats-url": {
    value: "URL",
    group: "Server",
    help: "the operations listener, for the server's own counters",
  },
  ca: { value: "FILE", group: "Server", help: "for wss: the certificate authorities to trust, PEM" },
  "server-program": {
    value: "FILE",
    group: "Server",
    help: "without a URL: the program to start (TIDEWIRE_PROGRAM, tidewire)",
  },
  "server-shards": { value: "N", group: "Server", help: "without a URL: event loops of the server" },
  out: { value: "DIR", group: "Report", help: "for report.json (default tidewire-report)" },
  json: {
    group: "Report",
    help: "print the report as JSON on standard output; the tables go to standard error",
  },
  help: { group: "Report", help: "print this and end" },
  version: { group: "Report", help: "print the version and end" },
} as const satisfies Record<string, Option>;

export type OptionName = keyof typeof OPTIONS;

/** The given options. */
export interface Arguments {
  url: string | undefined;
  values: Map<OptionName, string>;
}

/** Reads the command line. @throws {UsageError} with what to do. */
export function parseArguments(words: readonly string[]): Arguments {
  const values = new Map<OptionName, string>();
  let url: string | undefined;
  for (let index = 0; index < words.length; index += 1) {
    const word = words[index]!;
    if (!word.startsWith("-")) {
      if (url !== undefined) throw new UsageError(`two URLs were given, ${url} and ${word}`);
      url = word;
      continue;
    }
    const [shown, inline] = split(word);
    const name = optionOf(shown);
    const option: Option = OPTIONS[name];
    if (values.has(name)) throw new UsageError(`--${name} was given twice`);
    if (option.value === undefined) {
      if (inline !== undefined) throw new UsageError(`--${name} takes no value`);
      values.set(name, "");
      continue;
    }
    const value = inline ?? words[index + 1];
    if (value === undefined || (inline === undefined && value.startsWith("--"))) {
      throw new UsageError(`--${name} needs a value: ${option.value}`);
    }
    if (inline === undefined) index += 1;
    values.set(name, value);
  }
  return { url, values };
}

function split(word: string): [name: string, value: string | undefined] {
  const at = word.indexOf("=");
  return at < 0 ? [word, undefined] : [word.slice(0, at), word.slice(at + 1)];
}

function optionOf(word: string): OptionName {
  if (word === "-h") return "help";
  const name = word.slice(2);
  if (word.startsWith("--") && Object.hasOwn(OPTIONS, name)) return name as OptionName;
  const near = nearest(word.replace(/^-+/, ""), Object.keys(OPTIONS));
  throw new UsageError(
    `there is no option ${word}${near === undefined ? "; see --help" : `; did you mean --${near}?`}`,
  );
}

/** The known word that is nearest to a mistyped one, if any is near. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  const ranked = known
    .map((one) => [distance(word, one), one] as const)
    .sort((one, other) => one[0] - other[0]);
  const best = ranked[0];
  return best !== undefined && best[0] <= Math.max(2, word.length / 2) ? best[1] : undefined;
}

/** How many letters have to be added, removed or changed (Levenshtein). */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let at = 1; at <= one.length; at += 1) {
    const next = [at];
    for (let to = 1; to <= other.length; to += 1) {
      const change = row[to - 1]! + (one[at - 1] === other[to - 1] ? 0 : 1);
      next.push(Math.min(change, row[to]! + 1, next[to - 1]! + 1));
    }
    row = next;
  }
  return row[other.length]!;
}

/** A number of the command line. */
export function numberOf(
  name: OptionName,
  text: string,
  least: number,
  most = Number.MAX_SAFE_INTEGER,
  isWhole = true,
): number {
  const value = Number(text);
  const isFit =
    text.trim() !== "" && value >= least && value <= most && (!isWhole || Number.isInteger(value));
  if (isFit) return value;
  const kind = isWhole ? "a whole number" : "a number";
  const range = most === Number.MAX_SAFE_INTEGER ? `from ${least} on` : `from ${least} to ${most}`;
  throw new UsageError(`--${name}: ${JSON.stringify(text)} is not ${kind} ${range}`);
}

/** The help. */
export function help(tests: readonly string[]): string {
  const groups = ["Plan", "Server", "Report"].map((group) => {
    const lines = Object.entries<Option>(OPTIONS)
      .filter(([, option]) => option.group === group)
      .map(([name, option]) => {
        const left = `  --${name}${option.value === undefined ? "" : ` ${option.value}`}`;
        return `${left.padEnd(30)} ${option.help}`;
      });
    return `${group}:\n${lines.join("\n")}`;
  });
  return (
    "Loads a WebSocket server from Node and reports what it can take\n\n" +
    "usage: tidewire-bench-ts [OPTIONS] [URL]\n\n" +
    "Without a URL `tidewire serve` is started, loaded and stopped. With a URL, ws:// or wss://, that server is loaded;\n" +
    `load only servers that you are allowed to load.\n\n${groups.join("\n\n")}\n\nTests: ${tests.join(", ")}.\n` +
    "Exit codes: 0 valid, 1 failed, 2 a mistake in the command line, 3 the generator was the limit, 4 noisy, 130 interrupted.\n"
  );
}
