import { get, type Presence } from "../api.js";
import { h, table } from "../dom.js";
import type { View } from "../view.js";

/** The users on a topic. */
export function presence(chosen: string | undefined): View {
  const topic = h("input", {
    required: true,
    placeholder: "Topic",
    "aria-label": "Topic",
    autocomplete: "off",
    value: chosen ?? "",
  });
  const result = h("div", { role: "status" });
  const ask = async () => {
    try {
      const found = await get<Presence>(`topics/${encodeURIComponent(topic.value)}/presence`, {
        limit: 1000,
      });
      const rows = found.members.map((one) => [
        one.user,
        one.data === undefined ? "" : JSON.stringify(one.data),
        one.connections,
      ]);
      const missing = found.users - found.members.length;
      const count = `${found.users} users on ${found.connections} connections`;
      result.replaceChildren(
        h("p", {}, missing > 0 ? `${count}; the first ${found.members.length} are listed` : count),
        table(["user", "data", "connections"], rows, 2),
      );
    } catch (error) {
      result.replaceChildren(h("p", { class: "bad" }, (error as Error).message));
    }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void ask();
  };
  if (chosen !== undefined) void ask();
  const form = h(
    "form",
    { class: "bar", submit },
    topic,
    h("button", { class: "main", type: "submit" }, "Show"),
  );
  return { root: h("section", {}, h("h2", {}, "Presence"), form, result) };
}
