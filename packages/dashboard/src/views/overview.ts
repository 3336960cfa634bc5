import type { Stats, Timing } from "../api.js";
import { bytes, facts, h, meter, short, table } from "../dom.js";
import { type Axis, type Chart, chart, PLOT_POINTS, spark } from "../plot.js";
import type { View } from "../view.js";

/** Values over time, kept while other views are shown. */
const lines = new Map<string, number[]>();
let before: Stats | undefined;

/** Takes the numbers of a second. */
export function record(stats: Stats): void {
  const { total } = stats;
  const last = before;
  before = stats;
  push("connections", total.connections_open ?? 0);
  if (stats.resident_bytes !== null) push("memory", stats.resident_bytes);
  const passed_s = last ? stats.uptime_s - last.uptime_s : 0;
  // After a restart the counters begin anew. Two snapshots of almost one moment have no rate.
  if (!last || stats.started_unix_ms !== last.started_unix_ms || passed_s < 0.1) return;
  const rate = (name: string) => Math.max(0, ((total[name] ?? 0) - (last.total[name] ?? 0)) / passed_s);
  for (const name of COUNTED) push(name, rate(name));
  for (const name of TIMED) push(name, slowest(stats, last, name));
  push(
    "refused",
    SUMMED.reduce((sum, name) => sum + rate(name), 0),
  );
}

/** The bound in seconds that 99 of 100 durations since `earlier` stayed below; NaN if there was none. */
function slowest(stats: Stats, earlier: Stats, name: Timing): number {
  const counts = stats.timings[name].counts.map(
    (count, index) => count - (earlier.timings[name].counts[index] ?? 0),
  );
  const wanted = counts.reduce((sum, count) => sum + count, 0) * 0.99;
  if (wanted <= 0) return Number.NaN;
  let sum = 0;
  const index = counts.findIndex((count) => (sum += count) >= wanted);
  return stats.timings.bounds_s[index] ?? Number.POSITIVE_INFINITY;
}

function push(name: string, value: number): void {
  const line = lines.get(name) ?? [];
  line.push(value);
  if (line.length > PLOT_POINTS) line.shift();
  lines.set(name, line);
}

function latest(name: string): number | undefined {
  return lines.get(name)?.findLast((value) => !Number.isNaN(value));
}

export function overview(): View {
  const notice = h("p", { class: "notice", role: "alert", hidden: true });
  const cards = [
    card("Connections", "connections", short, () => `${short(largest("connections"))} at most`),
    card(
      "Messages in",
      "messages_received",
      perSecond,
      ({ total }) => `${short(total.messages_received ?? 0)} in all`,
    ),
    card(
      "Messages out",
      "messages_sent",
      perSecond,
      ({ total }) => `${short(total.messages_sent ?? 0)} in all`,
    ),
    card("Delivery", "publication_delivery_duration", bound, () => "for 99 % of them"),
    card("Memory", "memory", bytes, ({ usage }) => `histories ${bytes(usage.history_bytes ?? 0)}`),
    card("Refused", "refused", perSecond, ({ total }) => `${short(refusedIn(total))} in all`),
  ];
  const charts: Chart[] = [];
  const all = (ago: number | undefined) => {
    for (const one of charts) one.point(ago);
  };
  const of = (name: string, line: string) => ({ name, values: () => lines.get(line) ?? [] });
  const draw = (title: string, axis: Axis, ...shown: [string, string][]) => {
    const made = chart(
      title,
      axis,
      shown.map(([name, line]) => of(name, line)),
      all,
    );
    charts.push(made);
    return made.root;
  };
  const rates = h(
    "div",
    { class: "columns even" },
    draw("Messages per second", { words: short }, ["out", "messages_sent"], ["in", "messages_received"]),
    draw("Bytes per second", { words: bytes }, ["out", "bytes_sent"], ["in", "bytes_received"]),
  );
  const refused = h("section");
  const times = h(
    "div",
    { class: "columns even" },
    draw(
      "Time within which 99 % are done",
      { words: bound, isLogarithmic: true },
      ["delivery", "publication_delivery_duration"],
      ["handshake", "handshake_duration"],
      ["event loop", "turn_duration"],
    ),
    refused,
  );
  const rest = h("div", { class: "stack" });
  return {
    root: h(
      "div",
      {},
      notice,
      h("div", { class: "cards" }, ...cards.map((one) => one.root)),
      rates,
      times,
      rest,
    ),
    update(stats) {
      for (const one of cards) one.update(stats);
      for (const one of charts) one.update();
      notice.textContent = problemOf(stats);
      notice.hidden = notice.textContent === "";
      refused.replaceChildren(...troubles(stats));
      // A link that has the focus keeps it.
      const focused = rest.contains(document.activeElement)
        ? document.activeElement?.getAttribute("href")
        : undefined;
      rest.replaceChildren(
        ...nodes(stats),
        h(
          "div",
          { class: "columns" },
          busiest(stats),
          h("div", { class: "stack" }, shards(stats), server(stats)),
        ),
      );
      if (focused) rest.querySelector<HTMLElement>(`[href="${CSS.escape(focused)}"]`)?.focus();
    },
  };
}

/** One number with its line, and another number beside it. */
function card(
  title: string,
  line: string,
  words: (value: number) => string,
  more: (stats: Stats) => string,
): { root: HTMLElement; update(stats: Stats): void } {
  const value = h("b", {}, "–");
  const note = h("span", { class: "faint" });
  const drawn = spark(title);
  return {
    root: h("div", { class: "card" }, h("span", { class: "faint" }, title), value, note, drawn.root),
    update(stats) {
      const last = latest(line);
      value.textContent = last === undefined ? "–" : words(last);
      note.textContent = more(stats);
      drawn.update(lines.get(line) ?? []);
    },
  };
}

function largest(line: string): number {
  return Math.max(0, ...(lines.get(line) ?? []));
}

function perSecond(value: number): string {
  return `${short(value)}/s`;
}

/** A bound of a histogram. */
function bound(seconds: number): string {
  if (seconds === Number.POSITIVE_INFINITY) return "more than 10 s";
  if (seconds >= 1) return `${seconds} s`;
  return seconds >= 1e-3 ? `${short(seconds * 1e3)} ms` : `${short(Math.round(seconds * 1e6))} µs`;
}

/** What an operator should know before all else; empty if all is well. */
function problemOf({ ready, broker }: Stats): string {
  if (!ready) return "The server accepts no connections: it drains, or its broker is away.";
  if (broker && !broker.is_connected) {
    const away = broker.away_ms ? ` for ${Math.round(broker.away_ms / 1e3)} s` : "";
    return `The broker is unavailable${away}: ${broker.reason ?? "no reason is known"}`;
  }
  return broker?.problems[0]?.text ?? "";
}

function refusedIn(total: Stats["total"]): number {
  return SUMMED.reduce((sum, name) => sum + (total[name] ?? 0), 0);
}

/** The counters of a list that are not zero, the largest first. */
function counted(title: string, names: Record<string, string>, nothing: string, { total }: Stats): Node[] {
  const head = h("h2", {}, title);
  const found = Object.entries(names).filter(([name]) => (total[name] ?? 0) > 0);
  if (!found.length) return [head, h("p", { class: "faint" }, nothing)];
  found.sort(([a], [b]) => (total[b] ?? 0) - (total[a] ?? 0));
  const most = total[found[0]![0]] ?? 0;
  const rows = found.map(([name, words]) => [
    h("span", { title: name }, words),
    meter(total[name] ?? 0, most),
    short(total[name] ?? 0),
  ]);
  return [head, table(["reason", "", "count"], rows, 2)];
}

function troubles(stats: Stats): Node[] {
  return [
    ...counted("Refusals since the start", REFUSALS, "Nothing has been refused.", stats),
    ...counted("Connections that failed", FAILURES, "No connection has failed.", stats),
  ];
}

function busiest({ topics }: Stats): HTMLElement {
  const most = Math.max(...topics.map((topic) => topic.per_s));
  const rows = topics.slice(0, 10).map((topic) => {
    const link = h("a", { href: `#/topics/${encodeURIComponent(topic.topic)}` }, topic.topic);
    return [link, meter(topic.per_s, most), short(topic.per_s), short(topic.subscribers)];
  });
  const body = rows.length
    ? table(["topic", "", "publications/s", "subscribers"], rows, 2)
    : h("p", { class: "faint" }, "No topic has subscribers or history.");
  return h("section", {}, h("h2", {}, "Busiest topics"), body);
}

/** The servers that share the broker. */
function nodes({ broker }: Stats): HTMLElement[] {
  if (!broker?.nodes.length) return [];
  const rows = broker.nodes.map((one) => [
    one.address || one.node,
    one.version,
    short(one.connections),
    short(one.topics),
    short(one.publications_per_s),
  ]);
  const head = ["server", "version", "connections", "topics", "publications/s"];
  return [h("section", {}, h("h2", {}, "Servers of the cluster"), table(head, rows, 2))];
}

function shards(stats: Stats): HTMLElement {
  const names = ["connections_open", "messages_received", "messages_sent", "subscriptions"];
  const most = Math.max(...stats.shards.map((shard) => shard.connections_open ?? 0));
  const rows = stats.shards.map((shard, index) => [
    index,
    meter(shard.connections_open ?? 0, most),
    ...names.map((name) => short(shard[name] ?? 0)),
  ]);
  const head = ["shard", "", "connections", "messages in", "messages out", "subscriptions"];
  return h("section", {}, h("h2", {}, "Shards"), table(head, rows, 2));
}

function server({ version, process_id, uptime_s, ready, broker, usage }: Stats): HTMLElement {
  return h(
    "section",
    {},
    h("h2", {}, "Server"),
    facts([
      ["version", version],
      ["process", String(process_id)],
      ["up", duration(uptime_s)],
      ["accepts connections", ready ? "yes" : "no"],
      [
        "broker",
        broker ? (broker.is_connected ? "connected" : `unavailable: ${broker.reason ?? ""}`) : "none",
      ],
      ["histories", `${bytes(usage.history_bytes ?? 0)} of ${short(usage.history_topics ?? 0)} topics`],
      ["to be delivered", bytes(usage.publication_backlog_bytes ?? 0)],
    ]),
  );
}

function duration(seconds: number): string {
  const parts: [number, string][] = [
    [86_400, "d"],
    [3_600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const index = parts.findIndex(([unit]) => seconds >= unit);
  if (index < 0) return "0 s";
  const [unit, name] = parts[index]!;
  const next = parts[index + 1];
  const more = next ? ` ${Math.floor((seconds % unit) / next[0])} ${next[1]}` : "";
  return `${Math.floor(seconds / unit)} ${name}${more}`;
}

const COUNTED = ["messages_received", "messages_sent", "bytes_received", "bytes_sent"];

const TIMED: Timing[] = ["publication_delivery_duration", "turn_duration", "handshake_duration"];

/** Counters of what the server refused, in words. Each counts something else. */
const REFUSALS: Record<string, string> = {
  connections_rejected_full: "the server was full",
  proxy_headers_refused: "malformed PROXY header",
  host_rejections: "host not allowed",
  origin_rejections: "origin not allowed",
  auth_failures: "token missing or not accepted",
  tokens_refused: "new token of a session not accepted",
  messages_refused_rate: "message over the rate limit",
  messages_refused_size: "message too large",
  messages_refused_invalid: "message against the protocol",
  producers_refused: "too many producers",
  subscriptions_forbidden: "subscription without access",
  publications_refused: "publication refused",
  calls_refused: "too many requests at once",
};

const SUMMED = Object.keys(REFUSALS);

/** Counters of connections that ended otherwise than one of the two sides wanted. The first has some of the others in it. */
const FAILURES: Record<string, string> = {
  handshakes_failed: "ended before it was a session, for any reason",
  handshake_timeouts: "handshake took too long",
  handshakes_evicted: "handshake ended because others waited",
  tls_failures: "TLS failed",
  protocol_errors: "violation of RFC 6455",
  error_budgets_exhausted: "session with too many errors",
  idle_timeouts: "peer was silent for too long",
  outbox_overflows: "peer did not read what waited for it",
};
