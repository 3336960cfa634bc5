import { get, missing, type Stats, type SumOfStats, type Timing } from "../api.js";
import { bytes, facts, h, meter, short, table } from "../dom.js";
import { type Axis, type Chart, chart, PLOT_POINTS, spark } from "../plot.js";
import type { View } from "../view.js";

/** The values of one server, or of all together, over time. */
class Series {
  readonly #lines = new Map<string, number[]>();
  #before: { stats: SumOfStats; at_s: number; whose: string } | undefined;

  /** Adds the numbers of a second; `whose` identifies their source and changes with a restart. */
  record(stats: SumOfStats, at_s: number, whose: string): void {
    const { total } = stats;
    const last = this.#before;
    this.#before = { stats, at_s, whose };
    this.#push("connections", total.connections_open ?? 0);
    if (stats.resident_bytes !== null) this.#push("memory", stats.resident_bytes);
    // After a restart the counters begin anew. Two snapshots of almost one moment have no rate.
    if (!last || whose !== last.whose || at_s - last.at_s < 0.1) return;
    const rate = (name: string) =>
      Math.max(0, ((total[name] ?? 0) - (last.stats.total[name] ?? 0)) / (at_s - last.at_s));
    for (const name of COUNTED) this.#push(name, rate(name));
    for (const name of TIMED) this.#push(name, slowest(stats, last.stats, name));
    this.#push(
      "refused",
      SUMMED.reduce((sum, name) => sum + rate(name), 0),
    );
  }

  values(name: string): number[] {
    return this.#lines.get(name) ?? [];
  }

  latest(name: string): number | undefined {
    return this.values(name).findLast((value) => !Number.isNaN(value));
  }

  largest(name: string): number {
    return Math.max(0, ...this.values(name));
  }

  #push(name: string, value: number): void {
    const line = this.values(name);
    line.push(value);
    if (line.length > PLOT_POINTS) line.shift();
    this.#lines.set(name, line);
  }
}

/** By the server's name, `all`, or nothing for the server of the page. They are kept while other views are shown. */
const series = new Map<string, Series>();

function seriesOf(scope: string): Series {
  const known = series.get(scope) ?? new Series();
  series.set(scope, known);
  return known;
}

/** Adds the numbers of a second of the server of the page. */
export function record(stats: Stats): void {
  seriesOf("").record(stats, stats.uptime_s, String(stats.started_unix_ms));
}

/** The bound in seconds that 99 of 100 durations since `earlier` stayed below; NaN if there was none. */
function slowest(stats: SumOfStats, earlier: SumOfStats, name: Timing): number {
  const counts = stats.timings[name].counts.map(
    (count, index) => count - (earlier.timings[name].counts[index] ?? 0),
  );
  const wanted = counts.reduce((sum, count) => sum + count, 0) * 0.99;
  if (wanted <= 0) return Number.NaN;
  let sum = 0;
  const index = counts.findIndex((count) => (sum += count) >= wanted);
  return stats.timings.bounds_s[index] ?? Number.POSITIVE_INFINITY;
}

/** The numbers of one server or, where several share a broker, of all together. */
export function overview(node: string | undefined): View {
  let wanted = node;
  /** The name of a server, `all`, or nothing for the server of the page. */
  let scope = "";
  let isAsking = false;
  let latest: Stats | undefined;
  const shown = () => seriesOf(scope);
  const whose = h("h2", { hidden: true });
  const notice = h("p", { class: "notice", role: "alert", hidden: true });
  const cards = [
    card("Connections", "connections", short, () => `${short(shown().largest("connections"))} at most`),
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
  const of = (name: string, line: string) => ({ name, values: () => shown().values(line) });
  const plot = (title: string, axis: Axis, ...named: [string, string][]) => {
    const made = chart(
      title,
      axis,
      named.map(([name, line]) => of(name, line)),
      all,
    );
    charts.push(made);
    return made.root;
  };
  const rates = h(
    "div",
    { class: "columns even" },
    plot("Messages per second", { words: short }, ["out", "messages_sent"], ["in", "messages_received"]),
    plot("Bytes per second", { words: bytes }, ["out", "bytes_sent"], ["in", "bytes_received"]),
  );
  const refused = h("section");
  const times = h(
    "div",
    { class: "columns even" },
    plot(
      "Time within which 99 % are done",
      { words: bound, isLogarithmic: true },
      ["delivery", "publication_delivery_duration"],
      ["handshake", "handshake_duration"],
      ["event loop", "turn_duration"],
    ),
    refused,
  );
  const rest = h("div", { class: "stack" });

  /** Shows numbers; `own` are those of the server of the page, `one` those of a single server. */
  function draw(own: Stats, sum: SumOfStats, one: Stats | undefined): void {
    whose.textContent = scope === "" ? "" : titleOf(scope, own);
    whose.hidden = scope === "";
    for (const card of cards) card.update(sum, shown());
    for (const chart of charts) chart.update();
    notice.textContent = missing(sum) || (one || sum.ready ? problemOf(one ?? own) : SOME_NOT_READY);
    notice.hidden = notice.textContent === "";
    refused.replaceChildren(...troubles(sum));
    // A link that has the focus keeps it.
    const focused = rest.contains(document.activeElement)
      ? document.activeElement?.getAttribute("href")
      : undefined;
    const ofOne = one ? [h("div", { class: "stack" }, shards(one), server(one))] : [];
    rest.replaceChildren(
      ...nodes(own, scope),
      h("div", { class: one ? "columns" : "" }, busiest(sum), ...ofOne),
    );
    if (focused) rest.querySelector<HTMLElement>(`[href="${CSS.escape(focused)}"]`)?.focus();
  }

  /** Asks for the numbers of another server, or of all. */
  async function ask(own: Stats): Promise<void> {
    if (isAsking) return;
    isAsking = true;
    const asked = scope;
    try {
      const given = await get<Stats | SumOfStats>("stats", { node: asked });
      const one = "shards" in given ? given : undefined;
      const who = one ? String(one.started_unix_ms) : (given.nodes?.join() ?? "");
      seriesOf(asked).record(given, performance.now() / 1e3, who);
      if (asked === scope) draw(own, given, one);
    } catch (error) {
      if (asked === scope) {
        notice.textContent = `${titleOf(asked, own)}: ${(error as Error).message}`;
        notice.hidden = false;
      }
    } finally {
      isAsking = false;
    }
  }

  /** Shows the numbers of the server of the page. */
  function update(stats: Stats): void {
    latest = stats;
    const isShared = (stats.broker?.nodes.length ?? 0) > 1;
    scope = isShared ? (wanted ?? ALL) : "";
    if (scope === "") draw(stats, stats, stats);
    else void ask(stats);
  }

  return {
    root: h(
      "div",
      {},
      whose,
      notice,
      h("div", { class: "cards" }, ...cards.map((one) => one.root)),
      rates,
      times,
      rest,
    ),
    update,
    go(node) {
      wanted = node;
      if (latest) update(latest);
    },
  };
}

/** Whose numbers are shown, where several servers share a broker. */
function titleOf(scope: string, { broker }: Stats): string {
  const all = broker?.nodes ?? [];
  if (scope === ALL) return `All ${all.length} servers`;
  return `Server ${all.find((one) => one.node === scope)?.address || scope}`;
}

/** One number with its line, and another number beside it. */
function card(
  title: string,
  line: string,
  words: (value: number) => string,
  more: (stats: SumOfStats) => string,
): { root: HTMLElement; update(stats: SumOfStats, shown: Series): void } {
  const value = h("b", {}, "–");
  const note = h("span", { class: "faint" });
  const drawn = spark(title);
  return {
    root: h("div", { class: "card" }, h("span", { class: "faint" }, title), value, note, drawn.root),
    update(stats, shown) {
      const last = shown.latest(line);
      value.textContent = last === undefined ? "–" : words(last);
      note.textContent = more(stats);
      drawn.update(shown.values(line));
    },
  };
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
function counted(
  title: string,
  names: Record<string, string>,
  nothing: string,
  { total }: SumOfStats,
): Node[] {
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

function troubles(stats: SumOfStats): Node[] {
  return [
    ...counted("Refusals since the start", REFUSALS, "Nothing has been refused.", stats),
    ...counted("Connections that failed", FAILURES, "No connection has failed.", stats),
  ];
}

function busiest({ topics }: SumOfStats): HTMLElement {
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

/** The servers that share the broker, each with a link to its own numbers. */
function nodes({ broker }: Stats, scope: string): HTMLElement[] {
  if (!broker?.nodes.length) return [];
  const link = (to: string, name: string, text: string) =>
    h("a", { href: to, ...(name === scope ? { "aria-current": "true" } : {}) }, text);
  const rows = broker.nodes.map((one) => [
    link(`#/overview/${encodeURIComponent(one.node)}`, one.node, one.address || one.node),
    one.version,
    short(one.connections),
    short(one.topics),
    short(one.publications_per_s),
  ]);
  const head = ["server", "version", "connections", "topics", "publications/s"];
  const all = scope === "" ? [] : [h("p", {}, link("#/overview", ALL, "All together"))];
  return [h("section", {}, h("h2", {}, "Servers of the cluster"), ...all, table(head, rows, 2))];
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

/** Names all servers to the HTTP API. */
const ALL = "all";

const SOME_NOT_READY = "A server accepts no connections: it drains, or its broker is away.";

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
