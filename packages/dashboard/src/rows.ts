/** A list of any length, of which only the visible rows are elements. */

import { h } from "./dom.js";

export interface Rows<T> {
  readonly root: HTMLElement;
  /** Shows these items, and calls `onEnd` when the last ones come into sight. */
  set(items: T[]): void;
}

export function rows<T>(show: (item: T) => Node[], open: (item: T) => void, onEnd: () => void): Rows<T> {
  const filler = h("div");
  const root = h("div", { class: "rows", tabindex: "0", role: "group", "aria-label": "list" }, filler);
  let items: T[] = [];
  const draw = () => {
    const first = Math.max(0, Math.floor(root.scrollTop / ROW_PX) - 5);
    const last = Math.min(items.length, Math.ceil((root.scrollTop + root.clientHeight) / ROW_PX) + 5);
    const focused = filler.contains(document.activeElement)
      ? (document.activeElement as HTMLElement).dataset.index
      : undefined;
    const made = items.slice(first, last).map((item, index) => {
      const row = h("button", { class: "row", type: "button", click: () => open(item) }, ...show(item));
      row.style.top = `${(first + index) * ROW_PX}px`;
      row.dataset.index = String(first + index);
      return row;
    });
    filler.replaceChildren(...made);
    if (focused !== undefined)
      made.find((row) => row.dataset.index === focused)?.focus({ preventScroll: true });
    if (last >= items.length) onEnd();
  };
  root.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  root.addEventListener("keydown", (event) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    const active = document.activeElement as HTMLElement | null;
    if (!step || !active?.dataset.index) return;
    event.preventDefault();
    const next = Number(active.dataset.index) + step;
    filler.querySelector<HTMLElement>(`[data-index="${next}"]`)?.focus();
  });
  return {
    root,
    set(given) {
      items = given;
      filler.style.height = `${items.length * ROW_PX}px`;
      draw();
    },
  };
}

/** The height of `.row` in the style sheet. */
const ROW_PX = 32;
