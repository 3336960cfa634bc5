import {
  type ConnectionInfo,
  get,
  type History,
  missing,
  type Page,
  type Presence,
  type TopicInfo,
} from "../api.js";
import { facts, h, short } from "../dom.js";
import { rows } from "../rows.js";
import type { View } from "../view.js";

/** Every topic with subscribers or with history, loaded page by page while one scrolls. */
export function topics(chosen: string | undefined): View {
  let items: TopicInfo[] = [];
  let next: string | null = null;
  let loading = false;
  let closed = false;
  let search = 0;
  let typing: ReturnType<typeof setTimeout> | undefined;
  const problem = h("p", { class: "bad", role: "alert" });
  const input = h("input", {
    type: "search",
    placeholder: "Topics that start with …",
    "aria-label": "Start of the name",
    input: () => {
      clearTimeout(typing);
      typing = setTimeout(() => void load(true), TYPING_MS);
    },
  });
  const list = rows<TopicInfo>({
    titles: ["Topic", "Publications/s", "Subscribers", "Kept"],
    cells: (topic) => [
      topic.topic,
      short(topic.per_s),
      short(topic.subscribers),
      topic.kept === undefined ? "–" : short(topic.kept),
    ],
    key: (topic) => topic.topic,
    open: (topic) => {
      location.hash = `#/topics/${encodeURIComponent(topic.topic)}`;
    },
    onEnd: () => void load(false),
  });
  const split = h("div", { class: "split" }, list.root);
  let detail: ReturnType<typeof topicDetail> | undefined;

  async function load(anew: boolean): Promise<void> {
    if (!anew && (loading || next === null)) return;
    const mine = anew ? ++search : search;
    loading = true;
    try {
      const after = anew ? undefined : (next ?? undefined);
      const page = await get<Page & { topics: TopicInfo[] }>("topics", {
        prefix: input.value,
        limit: PAGE,
        with_history: "true",
        after,
      });
      if (mine !== search || closed) return;
      if (anew) items = page.topics;
      else items.push(...page.topics);
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
    if (anew) list.toStart();
    list.set(items);
  }

  /** The list stays as it was searched and scrolled. */
  function go(topic: string | undefined): void {
    detail?.root.remove();
    detail = topic === undefined ? undefined : topicDetail(topic);
    // Before the list, where it is read first on a narrow page.
    if (detail) split.prepend(detail.root);
    list.choose(topic);
  }

  go(chosen);
  void load(true);
  let updates = 0;
  return {
    root: h(
      "div",
      {},
      h("div", { class: "bar" }, input, h("button", { click: () => void load(true) }, "Refresh")),
      problem,
      split,
    ),
    go,
    update() {
      if (updates++ % DETAIL_EVERY === 0) detail?.refresh();
    },
    close() {
      closed = true;
      clearTimeout(typing);
    },
  };
}

/** History, subscribers and presence of a topic; what one of them refuses does not hide the others. */
function topicDetail(topic: string): { root: HTMLElement; refresh(): void } {
  const path = `topics/${encodeURIComponent(topic)}`;
  let limit = VALUES;
  let isAsking = false;
  const numbers = part();
  const values = part();
  const subscribers = part();
  const older = h(
    "button",
    {
      hidden: true,
      click: () => {
        limit = Math.min(VALUES_MAX, limit * 5);
        void ask();
      },
    },
    "Older values",
  );

  async function ask(): Promise<void> {
    if (isAsking) return;
    isAsking = true;
    const failed = (error: unknown) => (error as Error).message;
    const [history, present, connections] = await Promise.all([
      get<History>(`${path}/history`, { limit, order: "newest" }).catch(failed),
      get<Presence>(`${path}/presence`, { limit: 0 }).catch(failed),
      get<Subscribers>("connections", { topic, limit: 20 }).catch(failed),
    ]);
    isAsking = false;
    older.hidden = typeof history === "string" || !history.more || limit >= VALUES_MAX;
    numbers.show([history, present], () => [facts(numbersOf(history, present))]);
    values.show(history, () => valuesOf(history));
    subscribers.show(connections, () => [subscribersOf(connections)]);
  }

  void ask();
  const root = h(
    "section",
    { "aria-label": topic },
    h(
      "div",
      { class: "bar" },
      h("h2", {}, topic),
      h("a", { href: `#/publish/${encodeURIComponent(`topic/${topic}`)}` }, "Publish"),
      h("a", { href: `#/presence/${encodeURIComponent(topic)}` }, "Presence"),
      h("a", { href: "#/topics" }, "Close"),
    ),
    numbers.root,
    h("h2", {}, "Last values"),
    values.root,
    older,
    h("h2", {}, "Subscribers"),
    subscribers.root,
  );
  return { root, refresh: () => void ask() };
}

interface Subscribers {
  connections: ConnectionInfo[];
  next: string | null;
}

/** A part of the page that is made again only when what it shows has changed. */
function part(): { root: HTMLElement; show(value: unknown, make: () => Node[]): void } {
  const root = h("div");
  let shown: string | undefined;
  return {
    root,
    show(value, make) {
      const text = JSON.stringify(value);
      if (text === shown) return;
      shown = text;
      root.replaceChildren(...make());
    },
  };
}

function numbersOf(history: History | string, present: Presence | string): [string, string][] {
  const position =
    typeof history === "string" ? "–" : `${history.offset ?? 0} (from ${history.oldest} on are kept)`;
  const presence =
    typeof present === "string" ? present : `${present.users} users, ${present.connections} connections`;
  return [
    ["offset", position],
    ["present", presence],
  ];
}

function valuesOf(history: History | string): Node[] {
  const words = (text: string) => h("p", { class: "faint" }, text);
  if (typeof history === "string") return [words(history)];
  if (!history.publications.length) return [words("none")];
  return history.publications.map((one) =>
    h(
      "div",
      {},
      h("span", { class: "faint" }, `${one.o ?? "–"} · ${one.t ?? ""}`),
      h("pre", {}, json(one.p ?? one)),
    ),
  );
}

/** JSON to be read: on one line if it is short. */
function json(value: unknown): string {
  const text = JSON.stringify(value, null, 2);
  const line = text.replaceAll(/\n */g, " ");
  return line.length <= LINE_LENGTH ? line : text;
}

function subscribersOf(found: Subscribers | string): HTMLElement {
  if (typeof found === "string") return h("p", { class: "faint" }, found);
  return h(
    "ul",
    {},
    ...found.connections.map((one) =>
      h(
        "li",
        {},
        `${one.user ?? "no user"}, ${one.address ?? ""} `,
        h("a", { href: `#/connections/${encodeURIComponent(one.connection)}` }, one.connection),
      ),
    ),
    ...(found.next === null ? [] : [h("li", {}, "and more")]),
  );
}

/** Topics in one request. */
const PAGE = 1000;

/** A search begins after this pause in typing: the server looks at all topics for each. */
const TYPING_MS = 200;

/** Values of a history that are shown at first, and at most. */
const VALUES = 10;

const VALUES_MAX = 1000;

/** The detail is asked for at each second update. */
const DETAIL_EVERY = 2;

/** Characters of a value on one line. */
const LINE_LENGTH = 80;
