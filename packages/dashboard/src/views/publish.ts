import { postWithPayload } from "../api.js";
import { h } from "../dom.js";
import { printable } from "../printable.js";
import { needing } from "../rights.js";
import type { View } from "../view.js";

/** Publications and requests by hand. `chosen` is `topic/NAME` or `connection/NAME`. */
export function publish(chosen: string | undefined): View {
  const [kind, ...rest] = (chosen ?? "").split("/");
  const to = { kind, name: rest.join("/") };
  return { root: h("div", { class: "columns" }, publication(to), request(to)) };
}

interface Chosen {
  readonly kind: string | undefined;
  readonly name: string;
}

function publication({ kind, name }: Chosen): HTMLElement {
  const to = choice("Publish to", ["topic", "user", "connection"], kind);
  const target = text("Its name", name);
  const type = text("Type", "message");
  const payload = json("{}");
  return form("Publish", "Publish", "", [to, target, type, payload], async () =>
    postWithPayload(
      "publish",
      { [to.field.value]: target.field.value, type: type.field.value },
      checked(payload.field.value),
    ),
  );
}

function request({ kind, name }: Chosen): HTMLElement {
  const to = choice("Request to", ["connection", "user"], kind);
  const target = text("Name of the connection or user", kind === "connection" ? name : "");
  const type = text("Type of the request", "ping");
  const payload = json("null", "Payload of the request, JSON");
  const timeout = text("Seconds until the answer", "10", {
    type: "number",
    min: "1",
    max: "25",
    step: "any",
  });
  const words =
    "The client has to accept requests. Of several sessions of a user, the one that was opened last is asked.";
  const fields = [to, target, type, payload, timeout];
  return form("Request", "Send the request", words, fields, async () =>
    postWithPayload(
      "request",
      {
        [to.field.value]: target.field.value,
        type: type.field.value,
        timeout_ms: Math.round(Number(timeout.field.value) * 1000),
      },
      checked(payload.field.value),
    ),
  );
}

interface Labeled<F extends HTMLElement> {
  readonly label: HTMLElement;
  readonly field: F;
}

function text(
  name: string,
  value: string,
  attributes: Record<string, string> = {},
): Labeled<HTMLInputElement> {
  const field = h("input", { autocomplete: "off", required: true, value, ...attributes });
  return { label: h("label", {}, name, field), field };
}

function json(value: string, name = "Payload, JSON"): Labeled<HTMLTextAreaElement> {
  const field = h("textarea", { spellcheck: "false" }, value);
  return { label: h("label", {}, name, field), field };
}

function choice(name: string, values: string[], chosen: string | undefined): Labeled<HTMLSelectElement> {
  const options = values.map((value) => h("option", { value, selected: value === chosen }, value));
  const field = h("select", {}, ...options);
  return { label: h("label", {}, name, field), field };
}

/** The text of a payload, which has to be JSON. */
function checked(payload: string): string {
  try {
    JSON.parse(payload);
  } catch (error) {
    throw new Error(`The payload is not JSON: ${(error as Error).message}`);
  }
  return payload;
}

function form(
  title: string,
  button: string,
  words: string,
  fields: Labeled<HTMLElement>[],
  send: () => Promise<unknown>,
): HTMLElement {
  const result = h("pre", { role: "status", hidden: true });
  const submit = h("button", { class: "main", type: "submit" }, button);
  const act = async (event: Event) => {
    event.preventDefault();
    submit.disabled = true;
    result.hidden = false;
    result.className = "faint";
    result.textContent = "…";
    try {
      const answer = await send();
      result.className = "";
      result.textContent = printable(JSON.stringify(answer, null, 1));
    } catch (error) {
      result.className = "bad";
      result.textContent = (error as Error).message;
    }
    submit.disabled = false;
  };
  const controls = needing("publish", ...fields.map((one) => one.label), submit);
  return h(
    "section",
    {},
    h("h2", {}, title),
    ...(words ? [h("p", { class: "faint" }, words)] : []),
    h("form", { submit: (event) => void act(event) }, controls),
    result,
  );
}
