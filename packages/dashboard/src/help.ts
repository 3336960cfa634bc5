/** The keys of the page, and its theme. */

import { h } from "./dom.js";

/** Shows the keys; Escape closes. */
export function help(): void {
  const rows = KEYS.flatMap(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)]);
  const dialog = h(
    "dialog",
    { "aria-label": "Keys", close: () => dialog.remove() },
    h("h2", {}, "Keys"),
    h("dl", {}, ...rows),
    h("button", { click: () => dialog.close() }, "Close"),
  );
  document.body.append(dialog);
  dialog.showModal();
}

/** From light to dark or back. Without it the page follows the system. */
export function otherTheme(): void {
  const { dataset } = document.documentElement;
  const isDark = dataset.theme
    ? dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem(THEME, dataset.theme);
  } catch {
    // A browser that keeps nothing forgets it with the page.
  }
}

/** The theme that was chosen before. */
export function restoreTheme(): void {
  try {
    const theme = localStorage.getItem(THEME);
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // The system's theme it is.
  }
}

const THEME = "theme";

const KEYS: [string, string][] = [
  ["1 – 6", "the tabs"],
  ["/", "the search field"],
  ["↑ ↓", "the rows of a list"],
  ["← →", "the seconds of a chart that has the focus"],
  ["t", "light or dark"],
  ["?", "these keys"],
];
