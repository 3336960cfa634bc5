import type { Stats, Timing } from "../api.js";
import { bytes, h, PLOT_POINTS, plot, short, table } from "../dom.js";
import type { View } from "../view.js";

/** Rates over time, kept while other views are shown. */
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
  for (const name of COUNTED)
    push(name, Math.max(0, ((total[name] ?? 0) - (last.total[name] ?? 0)) / passed_s));
  for (const name of TIMED) push(name, slowest(stats, last, name));
}

/** The bound in seconds that 99 of 100 durations since `earlier` stayed below; 0 if there was none. */
function slowest(stats: Stats, earlier: Stats, name: Timing): number {
  const counts = stats.timings[name].counts.map(
    (count, index) => count - (earlier.timings[name].counts[index] ?? 0),
  );
  const wanted = counts.reduce((sum, count) => sum + count, 0) * 0.99;
  if (wanted <= 0) return 0;
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

export function overview(): View {
  const root = h("div");
  return {
    root,
    update(stats) {
      const card = (title: string, line: string, shown: (value: number) => string) => {
        const values = lines.get(line) ?? [];
        const last = values.at(-1);
        const text = last === undefined ? "–" : shown(last);
        return h(
          "div",
          { class: "card" },
          h("span", {}, title),
          h("br"),
          h("b", {}, text),
          plot(values, title),
        );
      };
      const perSecond = (value: number) => `${short(value)}/s`;
      const cards = h(
        "div",
        { class: "cards" },
        card("Connections", "connections", short),
        card("Messages in", "messages_received", perSecond),
        card("Messages out", "messages_sent", perSecond),
        card("Bytes in", "bytes_received", (value) => `${bytes(value)}/s`),
        card("Bytes out", "bytes_sent", (value) => `${bytes(value)}/s`),
        card("Memory", "memory", bytes),
        card("Delivery, 99 % within", "publication_delivery_duration", bound),
        card("Turn of an event loop, 99 % within", "turn_duration", bound),
        card("Handshake, 99 % within", "handshake_duration", bound),
      );
      // A link that has the focus keeps it.
      const focused = root.contains(document.activeElement)
        ? document.activeElement?.getAttribute("href")
        : undefined;
      root.replaceChildren(
        cards,
        refusals(stats),
        busiest(stats),
        ...nodes(stats),
        shards(stats),
        server(stats),
      );
      if (focused) root.querySelector<HTMLElement>(`[href="${CSS.escape(focused)}"]`)?.focus();
    },
  };
}

/** A bound of a histogram. */
function bound(seconds: number): string {
  if (seconds === 0) return "–";
  if (seconds === Number.POSITIVE_INFINITY) return "more than 10 s";
  if (seconds >= 1) return `${seconds} s`;
  return seconds >= 1e-3 ? `${short(seconds * 1e3)} ms` : `${short(seconds * 1e6)} µs`;
}

function refusals({ total }: Stats): HTMLElement {
  const found = REFUSALS.filter((name) => (total[name] ?? 0) > 0);
  const rows = found.map((name) => [name.replaceAll("_", " "), short(total[name] ?? 0)]);
  const body = rows.length
    ? table(["reason", "since the start"], rows, 1)
    : h("p", { class: "faint" }, "Nothing has been refused.");
  return h("section", {}, h("h2", {}, "Refusals"), body);
}

function busiest({ topics }: Stats): HTMLElement {
  const rows = topics.slice(0, 10).map((topic) => {
    const link = h("a", { href: `#/topics/${encodeURIComponent(topic.topic)}` }, topic.topic);
    return [link, short(topic.per_s), short(topic.subscribers)];
  });
  const body = rows.length
    ? table(["topic", "publications/s", "subscribers"], rows, 1)
    : h("p", { class: "faint" }, "No topic has subscribers.");
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
  const rows = stats.shards.map((shard, index) => [index, ...names.map((name) => short(shard[name] ?? 0))]);
  const head = ["shard", "connections", "messages in", "messages out", "subscriptions"];
  return h("section", {}, h("h2", {}, "Shards"), table(head, rows, 1));
}

function server({ version, process_id, uptime_s, ready, broker, usage }: Stats): HTMLElement {
  const rows: [string, string][] = [
    ["version", version],
    ["process", String(process_id)],
    ["up", duration(uptime_s)],
    ["accepts connections", ready ? "yes" : "no: it drains"],
    ["broker", broker ? (broker.is_connected ? "connected" : `unavailable: ${broker.reason ?? ""}`) : "none"],
    ["histories", `${bytes(usage.history_bytes ?? 0)} of ${short(usage.history_topics ?? 0)} topics`],
    ["to be delivered", bytes(usage.publication_backlog_bytes ?? 0)],
  ];
  return h("section", {}, h("h2", {}, "Server"), table(["", ""], rows));
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

const REFUSALS = [
  "connections_rejected_full",
  "handshakes_failed",
  "handshake_timeouts",
  "handshakes_evicted",
  "proxy_headers_refused",
  "host_rejections",
  "origin_rejections",
  "auth_failures",
  "tokens_refused",
  "messages_refused_rate",
  "messages_refused_size",
  "messages_refused_invalid",
  "error_budgets_exhausted",
  "producers_refused",
  "protocol_errors",
  "subscriptions_forbidden",
  "publications_refused",
  "calls_refused",
  "outbox_overflows",
  "tls_failures",
];
