import { ApiError, logIn, login, logOut, type Right, readSession, type Stats } from "./api.js";
import { h, logo } from "./dom.js";
import { help, otherTheme, restoreTheme } from "./help.js";
import { watch } from "./live.js";
import { may, reason, setSession } from "./rights.js";
import type { View } from "./view.js";
import { connections } from "./views/connections.js";
import { overview, record } from "./views/overview.js";
import { presence } from "./views/presence.js";
import { publish } from "./views/publish.js";
import { settings } from "./views/settings.js";
import { topics } from "./views/topics.js";

interface Tab {
  readonly name: string;
  readonly title: string;
  /** The right without which it shows nothing. */
  readonly right?: Right;
  open(rest: string | undefined): View;
}

const TABS: Tab[] = [
  { name: "overview", title: "Overview", right: "read", open: overview },
  { name: "topics", title: "Topics", right: "read", open: topics },
  { name: "connections", title: "Connections", right: "read", open: connections },
  { name: "presence", title: "Presence", right: "read", open: presence },
  { name: "publish", title: "Publish", open: publish },
  { name: "settings", title: "Settings", right: "read", open: settings },
];

let view: View | undefined;
let stats: Stats | undefined;
let unwatch: (() => void) | undefined;
let isOpen = false;
let shownTab = -1;
const main = h("main");
const state = h("span", { role: "status" });
const links = TABS.map(({ name, title }, index) =>
  h("a", { href: `#/${name}`, title: `Key ${index + 1}`, id: `tab-${name}` }, title),
);

function showLogin(): void {
  isOpen = false;
  unwatch?.();
  view?.close?.();
  view = undefined;
  shownTab = -1;
  stats = undefined;
  const key = h("input", { type: "password", name: "key", required: true, autocomplete: "current-password" });
  const problem = h("p", { class: "bad", role: "alert" });
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await logIn(key.value);
      key.value = "";
      setSession(await readSession());
      showTabs();
    } catch (error) {
      problem.textContent = (error as Error).message;
    }
  };
  const form = h(
    "form",
    { class: "login", submit: (event) => void submit(event) },
    h("h2", {}, logo(), "Tidewire"),
    h("label", {}, "Key of the HTTP API", key),
    h("button", { class: "main", type: "submit" }, "Log in"),
    problem,
  );
  document.body.replaceChildren(form);
  key.focus();
}

function showTabs(): void {
  isOpen = true;
  const out = h("button", { class: "plain", click: () => void leave() }, "Log out");
  const keys = h("button", { class: "plain", "aria-label": "Keys of this page", click: help }, "?");
  const end = h("div", { class: "end" }, state, keys, out);
  const head = h("header", {}, h("h1", {}, logo(), "Tidewire"), h("nav", {}, ...links), end);
  document.body.replaceChildren(head, main);
  note("");
  navigate();
  if (may("read")) unwatch = watch({ show, note });
}

function show(given: Stats): void {
  stats = given;
  record(given);
  view?.update?.(given);
}

/** Shows why the page is not live, or that it is. */
function note(text: string): void {
  const shown = text || (may("read") ? "live" : "");
  state.className = text ? "bad" : shown ? "faint is-live" : "";
  // A status that is set again is read out again.
  if (state.textContent !== shown) state.textContent = shown;
}

/** The login stays on the server if the logout did not reach it: then the tabs stay, too. */
async function leave(): Promise<void> {
  try {
    await logOut();
  } catch (error) {
    note(error instanceof Error ? error.message : String(error));
    return;
  }
  showLogin();
}

/** The page that an address names, `undefined` if it cannot be read. */
function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

function navigate(): void {
  if (!isOpen) return;
  const [, name, ...rest] = location.hash.split("/");
  const index = Math.max(
    0,
    TABS.findIndex((tab) => tab.name === name),
  );
  const { right, open, title } = TABS[index]!;
  const what = rest.length ? decoded(rest.join("/")) : undefined;
  document.title = `${what ?? title} · Tidewire`;
  if (view?.go && index === shownTab) {
    view.go(what);
    return;
  }
  shownTab = index;
  view?.close?.();
  view = right === undefined || may(right) ? open(what) : { root: h("section", {}, reason(right)) };
  links.forEach((link, at) => {
    if (at === index) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  main.replaceChildren(view.root);
  if (stats) view.update?.(stats);
}

addEventListener("hashchange", navigate);
addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
  if (!isOpen || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const tab = TABS[Number(event.key) - 1];
  if (tab) location.hash = `#/${tab.name}`;
  if (event.key === "/") {
    event.preventDefault();
    main.querySelector<HTMLInputElement>("input")?.focus();
  }
  if (event.key === "t") otherTheme();
  if (event.key === "?") help();
});

login.ended = showLogin;
restoreTheme();
readSession().then(
  (session) => {
    setSession(session);
    showTabs();
  },
  (error) => {
    showLogin();
    if (error instanceof ApiError && error.status !== 401)
      document.querySelector("[role=alert]")!.textContent = error.message;
  },
);
