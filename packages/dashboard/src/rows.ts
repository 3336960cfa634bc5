/** A list of any length, of which only the visible rows are elements. Scrolling moves these; it makes no new ones. */

import { h } from "./dom.js";
import { printable } from "./printable.js";

export interface Rows<T> {
  readonly root: HTMLElement;
  /** Shows these items; `onEnd` is called when the last ones are visible. An array that has only grown keeps its place. */
  set(items: T[]): void;
  toStart(): void;
  /** Marks the row of this key. */
  choose(key: string | undefined): void;
}

export interface RowsOptions<T> {
  readonly titles: string[];
  /** The texts of the cells. */
  cells(item: T): string[];
  key(item: T): string;
  open(item: T): void;
  onEnd(): void;
}

export function rows<T>({ titles, cells, key, open, onEnd }: RowsOptions<T>): Rows<T> {
  const filler = h("div");
  const list = h("div", { class: "rows", tabindex: "0", role: "group", "aria-label": "list" }, filler);
  const made: HTMLButtonElement[] = [];
  /** The item of each row. */
  const shown = new Map<HTMLButtonElement, T>();
  let items: T[] = [];
  let chosen: string | undefined;
  let isWaiting = false;

  function draw(): void {
    isWaiting = false;
    const first = Math.max(0, Math.floor(list.scrollTop / ROW_PX) - MORE);
    const last = Math.min(items.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW_PX) + MORE);
    // Item i is in row i modulo their number, so that a row that stays in sight keeps its item. The number grows
    // only.
    grow(last - first);
    for (let index = first; index < first + made.length; index++) {
      const row = made[index % made.length]!;
      if (index < last) fill(row, index);
      else clear(row);
    }
    if (last >= items.length) onEnd();
  }

  function grow(count: number): void {
    if (count <= made.length) return;
    for (const row of made) clear(row);
    while (made.length < count) {
      const row = h("button", { class: "row", type: "button" }, ...titles.map(() => h("span")));
      row.addEventListener("click", () => {
        const item = shown.get(row);
        if (item !== undefined) open(item);
      });
      made.push(row);
    }
  }

  function fill(row: HTMLButtonElement, index: number): void {
    const item = items[index]!;
    const place = String(index);
    if (row.dataset.index !== place) {
      // The focus does not jump to another item: it stays with the list.
      if (row === document.activeElement) list.focus({ preventScroll: true });
      row.dataset.index = place;
      row.style.top = `${index * ROW_PX}px`;
    }
    if (shown.get(row) !== item) {
      shown.set(row, item);
      for (const [at, text] of cells(item).entries()) row.children[at]!.textContent = printable(text);
      row.title = row.children[0]!.textContent ?? "";
    }
    if (key(item) === chosen) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
    if (!row.parentNode) filler.append(row);
  }

  function clear(row: HTMLButtonElement): void {
    row.remove();
    shown.delete(row);
    delete row.dataset.index;
  }

  list.addEventListener(
    "scroll",
    () => {
      // Of all scroll events of a frame one is enough.
      if (!isWaiting) requestAnimationFrame(draw);
      isWaiting = true;
    },
    { passive: true },
  );
  list.addEventListener("keydown", (event) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!step) return;
    const active = document.activeElement as HTMLElement | null;
    const next = active?.dataset.index
      ? Number(active.dataset.index) + step
      : Math.ceil(list.scrollTop / ROW_PX);
    event.preventDefault();
    filler.querySelector<HTMLElement>(`[data-index="${next}"]`)?.focus();
  });
  new ResizeObserver(draw).observe(list);
  const head = h("div", { class: "titles" }, ...titles.map((title) => h("span", {}, title)));
  return {
    root: h("div", { class: "listing" }, head, list),
    set(given) {
      items = given;
      filler.style.height = `${items.length * ROW_PX}px`;
      draw();
    },
    toStart() {
      list.scrollTop = 0;
    },
    choose(given) {
      chosen = given;
      draw();
    },
  };
}

/** The height of `.row` in the style sheet. */
const ROW_PX = 32;

/** Rows above and below those in sight. */
const MORE = 8;
