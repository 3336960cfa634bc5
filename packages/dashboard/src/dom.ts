/**
 * Elements without a framework. Text is always set as text, so that nothing of a peer becomes markup, and what cannot be
 * seen is escaped.
 */

import { printable } from "./printable.js";

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
  element.append(...children.map((child) => (child instanceof Node ? child : printable(String(child)))));
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

/** How large a part of the largest one is, as a bar. */
export function meter(value: number, largest: number): HTMLElement {
  const bar = h("i");
  bar.style.width = `${largest > 0 ? (100 * value) / largest : 0}%`;
  return h("div", { class: "meter" }, bar);
}

/** The sign of the project. */
export function logo(): SVGSVGElement {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "logo");
  svg.setAttribute("aria-hidden", "true");
  for (const y of [7, 12, 17]) {
    const wave = document.createElementNS("http://www.w3.org/2000/svg", "path");
    wave.setAttribute("d", `M3 ${y}c3-3 6-3 9 0s6 3 9 0`);
    svg.append(wave);
  }
  return svg;
}

export function bytes(value: number): string {
  const text = short(value);
  return text.includes(" ") ? `${text}B` : `${text} B`;
}
