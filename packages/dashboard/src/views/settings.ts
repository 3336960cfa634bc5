import { get } from "../api.js";
import { h, table } from "../dom.js";
import type { View } from "../view.js";

interface Setting {
  name: string;
  value: string;
  source: string;
  default: string | null;
}

/** The options that were given; all others are at their defaults. */
export function settings(): View {
  const root = h("section", {}, h("h2", {}, "Configuration"));
  void get<{ settings: Setting[] }>("settings").then(
    (answer) => {
      const words = h(
        "p",
        { class: "faint" },
        "These options were given; bold ones differ from their default. All others have their defaults.",
      );
      const rows = answer.settings.map((one) => [
        one.name,
        one.value === one.default ? one.value : h("b", {}, one.value),
        one.default ?? "–",
        one.source,
      ]);
      const head = ["option", "value", "default", "given by"];
      root.append(words, rows.length ? table(head, rows) : h("p", {}, "No option was given."));
    },
    (error: Error) => root.append(h("p", { class: "bad" }, error.message)),
  );
  return { root };
}
