/** The permissions of the login's key. The server checks them again; here they decide which controls are disabled. */

import type { Right, Session } from "./api.js";
import { h } from "./dom.js";

let session: Session = { name: "", rights: [] };

export function setSession(given: Session): void {
  session = given;
}

export function may(right: Right): boolean {
  return session.rights.includes(right);
}

/** Why controls are disabled, for people. */
export function reason(right: Right): string {
  return `The key ${session.name} does not have the right ${right}, which this needs.`;
}

/** Controls that need a right: disabled, with the reason before them, for a key without it. */
export function needing(right: Right, ...controls: Node[]): HTMLElement {
  const group = h("fieldset", { disabled: !may(right) }, ...controls);
  return may(right) ? group : h("div", {}, h("p", { class: "faint" }, reason(right)), group);
}
