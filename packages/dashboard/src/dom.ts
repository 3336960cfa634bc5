/** Elements without a framework. Text is always set as text, so that nothing of a peer becomes markup. */

type Attributes = Record<string, string | boolean | ((event: Event) => void)>;
type Child = Node | string | number;

/** Makes an element; an attribute that is a function listens to the event of its name. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, value);
  }
  element.append(...children.map((child) => (typeof child === "number" ? String(child) : child)));
  return element;
}

/** A table with a head; the columns from `numbers` on are aligned right. */
export function table(head: string[], rows: Child[][], numbers = head.length): HTMLTableElement {
  const cell = (tag: "th" | "td") => (child: Child, index: number) =>
    h(tag, index >= numbers ? { class: "number" } : {}, child);
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, ...head.map(cell("th")))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map(cell("td"))))),
  );
}

/** Names and values of one thing. */
export function facts(pairs: [string, Child][]): HTMLElement {
  return h(
    "dl",
    {},
    ...pairs.flatMap(([name, value]) => [h("dt", { class: "faint" }, name), h("dd", {}, value)]),
  );
}

/** A line over the latest values, from zero to the largest. */
export function plot(given: number[], label: string): SVGSVGElement {
  const values = given.map((value) => (Number.isFinite(value) ? value : 0));
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("viewBox", `0 0 ${PLOT_POINTS - 1} 40`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const line = document.createElementNS(ns, "polyline");
  const top = Math.max(...values, 1e-9);
  const left = PLOT_POINTS - values.length;
  const points = values.map((value, index) => `${left + index},${(39 - (38 * value) / top).toFixed(2)}`);
  line.setAttribute("points", points.join(" "));
  svg.append(line);
  return svg;
}

/** 1234567 as `1.23 M`. */
export function short(value: number): string {
  const units = ["", " k", " M", " G", " T"];
  let index = 0;
  let left = value;
  while (left >= 1000 && index < units.length - 1) {
    left /= 1000;
    index++;
  }
  const digits = index === 0 && Number.isInteger(left) ? 0 : left < 10 ? 2 : left < 100 ? 1 : 0;
  return `${left.toFixed(digits)}${units[index]}`;
}

export function bytes(value: number): string {
  const text = short(value);
  return text.includes(" ") ? `${text}B` : `${text} B`;
}

/** Points of a plot: two minutes at one a second. */
export const PLOT_POINTS = 120;
