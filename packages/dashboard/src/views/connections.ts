import { type ConnectionDetails, type ConnectionInfo, get, missing, type Page, post } from "../api.js";
import { bytes, facts, h, short } from "../dom.js";
import { may, reason } from "../rights.js";
import { rows } from "../rows.js";
import type { View } from "../view.js";

/** Sessions, by user or address, loaded page by page while one scrolls. */
export function connections(chosen: string | undefined): View {
  let items: ConnectionInfo[] = [];
  let next: string | null = null;
  let loading = false;
  let search = 0;
  const problem = h("p", { class: "bad", role: "alert" });
  const note = h("span", { class: "faint", role: "status" });
  const detail = h("section", { "aria-live": "polite", hidden: true });
  let wanted: string | undefined;
  const field = (label: string) =>
    h("input", { type: "search", placeholder: label, "aria-label": label, change: () => void load(true) });
  const user = field("User");
  const address = field("Start of the address");
  const list = rows<ConnectionInfo>({
    titles: ["User and address", "Topics", "Waiting"],
    cells: (one) => [
      [one.user ?? "no user", one.address ?? one.connection, ...(one.nodes ?? [])].join(" · "),
      short(one.topics),
      bytes(one.queued_bytes),
    ],
    key: (one) => one.connection,
    open: (one) => {
      location.hash = `#/connections/${encodeURIComponent(one.connection)}`;
    },
    onEnd: () => void load(false),
  });

  async function load(anew: boolean): Promise<void> {
    if (!anew && (loading || next === null)) return;
    const mine = anew ? ++search : search;
    loading = true;
    try {
      const page = await get<Page & { connections: ConnectionInfo[] }>("connections", {
        user: user.value.trim(),
        address: address.value.trim(),
        limit: PAGE,
        after: anew ? undefined : (next ?? undefined),
      });
      if (mine !== search) return;
      if (anew) items = page.connections;
      else items.push(...page.connections);
      next = page.next;
      problem.textContent = missing(page);
    } catch (error) {
      if (mine !== search) return;
      problem.textContent = (error as Error).message;
      // The next page is requested when one scrolls on; after a failed search there is none.
      if (anew) next = null;
      return;
    } finally {
      if (mine === search) loading = false;
    }
    note.textContent =
      next === null ? `${items.length} connections` : `The first ${items.length} connections`;
    if (anew) list.toStart();
    list.set(items);
  }

  async function show(connection: string): Promise<void> {
    try {
      const found = await get<ConnectionDetails>(`connections/${encodeURIComponent(connection)}`);
      if (wanted !== connection) return;
      detail.replaceChildren(...details(found, end));
      problem.textContent = "";
      detail.hidden = false;
    } catch (error) {
      problem.textContent = (error as Error).message;
    }
  }

  async function end(connection: string): Promise<void> {
    if (!confirm(`End the connection ${connection}?`)) return;
    try {
      await post("disconnect", { connection, reason: "ended by an operator" });
      location.hash = "#/connections";
      await load(true);
    } catch (error) {
      problem.textContent = (error as Error).message;
    }
  }

  /** The list stays as it was searched and scrolled. */
  function go(connection: string | undefined): void {
    wanted = connection;
    list.choose(connection);
    if (connection === undefined) detail.hidden = true;
    else void show(connection);
  }

  void load(true);
  go(chosen);
  const refresh = h("button", { click: () => void load(true) }, "Refresh");
  return {
    root: h(
      "div",
      {},
      h("div", { class: "bar" }, user, address, refresh, note),
      problem,
      h("div", { class: "split" }, detail, list.root),
    ),
    go,
    close() {
      search++;
    },
  };
}

function details(found: ConnectionDetails, end: (connection: string) => Promise<void>): Node[] {
  const { connection: one, subscriptions, more } = found;
  const since = one.connected_unix_ms;
  const ending = h(
    "button",
    { disabled: !may("admin"), click: () => void end(one.connection) },
    "End this connection",
  );
  const topics = subscriptions.map((topic) =>
    h("li", {}, h("a", { href: `#/topics/${encodeURIComponent(topic)}` }, topic)),
  );
  return [
    h("h2", {}, one.connection),
    facts([
      ["user", one.user ?? "–"],
      ["address", one.address ?? "–"],
      ["id", one.id ?? "–"],
      ["format", one.format],
      ["waiting", bytes(one.queued_bytes)],
      ["connected", since === undefined ? "–" : new Date(since).toLocaleString()],
    ]),
    h("h2", {}, `${one.topics} topics`),
    h("ul", {}, ...topics, ...(more ? [h("li", {}, "and more")] : [])),
    h(
      "div",
      { class: "bar" },
      ending,
      h(
        "a",
        { href: `#/publish/${encodeURIComponent(`connection/${one.connection}`)}` },
        "Publish or request",
      ),
      h("a", { href: "#/connections" }, "Close"),
    ),
    ...(may("admin") ? [] : [h("p", { class: "faint" }, reason("admin"))]),
  ];
}

/** Connections in one request. */
const PAGE = 1000;
