import { type ConnectionDetails, type ConnectionInfo, get, post } from "../api.js";
import { bytes, facts, h } from "../dom.js";
import { may, reason } from "../rights.js";
import { rows } from "../rows.js";
import type { View } from "../view.js";

interface Page {
  connections: ConnectionInfo[];
  next: string | null;
}

/** Sessions, by user or address, loaded page by page while one scrolls. */
export function connections(chosen: string | undefined): View {
  let items: ConnectionInfo[] = [];
  let next: string | null = null;
  let loading = false;
  let search = 0;
  const problem = h("p", { class: "bad", role: "alert" });
  const note = h("p", { class: "faint", role: "status" });
  const detail = h("section", { "aria-live": "polite", hidden: true });
  const field = (label: string) =>
    h("input", { type: "search", placeholder: label, "aria-label": label, change: () => void load(true) });
  const user = field("User");
  const address = field("Start of the address");
  const list = rows<ConnectionInfo>(
    (one) => [
      h("span", {}, `${one.user ?? "no user"} · ${one.address ?? one.connection}`),
      h("span", {}, `${one.topics} topics`),
      h("span", {}, bytes(one.queued_bytes)),
    ],
    (one) => void show(one.connection),
    () => void load(false),
  );

  async function load(anew: boolean): Promise<void> {
    if (!anew && (loading || next === null)) return;
    const mine = anew ? ++search : search;
    loading = true;
    try {
      const page: Page = await get("connections", {
        user: user.value.trim(),
        address: address.value.trim(),
        limit: PAGE,
        after: anew ? undefined : (next ?? undefined),
      });
      if (mine !== search) return;
      items = anew ? page.connections : [...items, ...page.connections];
      next = page.next;
      problem.textContent = "";
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
    if (anew) list.root.scrollTop = 0;
    list.set(items);
  }

  async function show(connection: string): Promise<void> {
    try {
      const found = await get<ConnectionDetails>(`connections/${encodeURIComponent(connection)}`);
      detail.replaceChildren(...details(found, end, () => (detail.hidden = true)));
      problem.textContent = "";
      detail.hidden = false;
      detail.querySelector("button")?.focus();
    } catch (error) {
      problem.textContent = (error as Error).message;
    }
  }

  async function end(connection: string): Promise<void> {
    if (!confirm(`End the connection ${connection}?`)) return;
    try {
      await post("disconnect", { connection, reason: "ended by an operator" });
      detail.hidden = true;
      await load(true);
    } catch (error) {
      problem.textContent = (error as Error).message;
    }
  }

  void load(true);
  if (chosen !== undefined) void show(chosen);
  const refresh = h("button", { click: () => void load(true) }, "Refresh");
  return {
    root: h("div", {}, h("div", { class: "bar" }, user, address, refresh), problem, detail, note, list.root),
    close() {
      search++;
    },
  };
}

function details(
  found: ConnectionDetails,
  end: (connection: string) => Promise<void>,
  close: () => void,
): Node[] {
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
      h("button", { click: close }, "Close"),
    ),
    ...(may("admin") ? [] : [h("p", { class: "faint" }, reason("admin"))]),
  ];
}

/** Connections in one request. */
const PAGE = 1000;
