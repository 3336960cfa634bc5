/** Lines over the latest values: small ones for cards, and charts with axes and a cursor. */

import { h } from "./dom.js";

/** One line of a chart. A value that is not finite leaves a gap. */
export interface Line {
  readonly name: string;
  values(): number[];
}

export interface Chart {
  readonly root: HTMLElement;
  update(): void;
  /** Shows the values of a point, counted back from the last one; `undefined` shows the last ones. */
  point(ago: number | undefined): void;
}

export interface Axis {
  /** A value in words. */
  words(value: number): string;
  /** Each line of the grid is ten times the one below. */
  readonly isLogarithmic?: boolean;
}

/** A line with its area, over the whole width of a card. */
export function spark(label: string): { root: SVGSVGElement; update(values: number[]): void } {
  const root = picture();
  root.classList.add("c0");
  root.setAttribute("role", "img");
  root.setAttribute("aria-label", label);
  const [area, line] = [path("area"), path("line")];
  root.append(area, line);
  return {
    root,
    update(values) {
      const top = Math.max(...values.filter(Number.isFinite), 1e-9) * 1.1;
      draw(area, line, values, (value) => 1 - value / top);
    },
  };
}

/** A chart of two minutes. `onPoint` hears which point the pointer or the arrow keys are at. */
export function chart(
  title: string,
  axis: Axis,
  lines: Line[],
  onPoint: (ago: number | undefined) => void,
): Chart {
  const svg = picture();
  const drawn = lines.map((line, index) => {
    const [area, stroke] = [path(`area c${index}`), path(`line c${index}`)];
    svg.append(...(axis.isLogarithmic ? [] : [area]), stroke);
    const value = h("b", {}, "–");
    const key = h("span", { class: `key c${index}` }, line.name, value);
    return { line, area, stroke, value, key };
  });
  const ticks = h("div");
  const cursor = h("div", { class: "cursor", hidden: true });
  const times = [h("span", { class: "time" }), h("span", { class: "time" }, "now")];
  const plot = h(
    "div",
    { class: "plot", tabindex: "0", role: "img", "aria-label": title },
    ticks,
    svg,
    cursor,
    ...times,
  );
  const head = h("div", { class: "head" }, h("h2", {}, title), h("div", {}, ...drawn.map(({ key }) => key)));
  let pointed: number | undefined;
  let shownTicks = "";

  function update(): void {
    const values = drawn.map(({ line }) => line.values());
    const count = Math.max(...values.map((one) => one.length));
    const scale = scaleOf(values.flat().filter(Number.isFinite), axis);
    for (const [index, { area, stroke }] of drawn.entries()) draw(area, stroke, values[index]!, scale.y);
    const words = scale.ticks.map((tick) => axis.words(tick));
    if (words.join() !== shownTicks) {
      shownTicks = words.join();
      ticks.replaceChildren(
        ...scale.ticks.map((tick, index) => {
          const one = h("div", { class: "tick" }, words[index]!);
          one.style.bottom = `${(1 - scale.y(tick)) * 100}%`;
          return one;
        }),
      );
    }
    times[0]!.textContent = `${span(count) - 1} s ago`;
    const ago = pointed ?? 0;
    for (const [index, { value }] of drawn.entries()) {
      const found = values[index]!.at(-1 - ago);
      value.textContent = found === undefined || Number.isNaN(found) ? "–" : axis.words(found);
    }
    cursor.hidden = pointed === undefined;
    cursor.style.left = `${100 * (1 - ago / (span(count) - 1))}%`;
    const spoken = drawn.map(({ line, value }) => `${line.name} ${value.textContent}`).join(", ");
    plot.setAttribute("aria-label", `${title}, ${pointed ? `${pointed} s ago` : "now"}: ${spoken}`);
  }

  plot.addEventListener("pointermove", (event) => {
    const { left, width } = plot.getBoundingClientRect();
    const count = Math.max(...lines.map((line) => line.values().length));
    const ago = Math.round((1 - (event.clientX - left) / width) * (span(count) - 1));
    onPoint(Math.max(0, Math.min(count - 1, ago)));
  });
  plot.addEventListener("pointerleave", () => onPoint(undefined));
  plot.addEventListener("blur", () => onPoint(undefined));
  plot.addEventListener("keydown", (event) => {
    const step = event.key === "ArrowLeft" ? 1 : event.key === "ArrowRight" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const count = Math.max(...lines.map((line) => line.values().length));
    onPoint(Math.max(0, Math.min(count - 1, (pointed ?? 0) + step)));
  });
  return {
    root: h("section", { class: "chart" }, head, plot),
    update,
    point(ago) {
      pointed = ago;
      update();
    },
  };
}

interface Scale {
  readonly ticks: number[];
  /** The height of a value, from 0 at the top to 1 at the bottom. */
  y(value: number): number;
}

function scaleOf(values: number[], { isLogarithmic }: Axis): Scale {
  if (!isLogarithmic) {
    const top = nice(Math.max(...values, 1e-9));
    return { ticks: [0, top / 2, top], y: (value) => 1 - value / top };
  }
  const positive = values.filter((value) => value > 0);
  const low = Math.floor(Math.log10(Math.min(...positive, 1e-4)) + 1e-9);
  const high = Math.max(low + 2, Math.ceil(Math.log10(Math.max(...positive, 1e-9)) - 1e-9));
  const ticks = Array.from({ length: high - low + 1 }, (_, index) => 10 ** (low + index));
  return { ticks, y: (value) => 1 - (Math.log10(value) - low) / (high - low) };
}

/** The next of 1, 2, 3, 4, 5, 6, 8, 10 … that is not smaller: its half is a short number, too. */
function nice(value: number): number {
  const unit = 10 ** Math.floor(Math.log10(value));
  return unit * ([1, 2, 3, 4, 5, 6, 8, 10].find((step) => step * unit >= value * 0.999) ?? 10);
}

/** Points from the left edge to the right one: a chart that has just begun is not drawn to its whole width at once. */
function span(count: number): number {
  return Math.max(SPAN_MIN, Math.min(PLOT_POINTS, count));
}

/** Draws the values up to the right edge. */
function draw(
  area: SVGPathElement,
  line: SVGPathElement,
  values: number[],
  y: (value: number) => number,
): void {
  const last = span(values.length) - 1;
  const parts: string[][] = [];
  let part: string[] | undefined;
  values.forEach((value, index) => {
    if (!Number.isFinite(value)) {
      part = undefined;
      return;
    }
    if (!part) parts.push((part = []));
    part.push(`${((last - (values.length - 1 - index)) * 100) / last} ${(y(value) * 100).toFixed(2)}`);
  });
  // A point alone is a short line.
  const strokes = parts.map((points) => `M${points.join("L")}${points.length === 1 ? "h.5" : ""}`);
  line.setAttribute("d", strokes.join(""));
  const x = (point: string | undefined) => point?.split(" ")[0];
  area.setAttribute("d", parts.map((p) => `M${x(p[0])} 100L${p.join("L")}L${x(p.at(-1))} 100Z`).join(""));
}

function picture(): SVGSVGElement {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  return svg;
}

function path(name: string): SVGPathElement {
  const made = document.createElementNS(SVG, "path");
  made.setAttribute("class", name);
  return made;
}

/** Points of a line: two minutes at one a second. */
export const PLOT_POINTS = 120;

const SPAN_MIN = 31;

const SVG = "http://www.w3.org/2000/svg";
