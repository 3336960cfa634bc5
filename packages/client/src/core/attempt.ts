/** The producer of a hello, and which of this page's connections that is (PROTOCOL 20). */

import { hex } from "./bytes.js";
import { randomBytes } from "./random.js";

export interface HelloProducer {
  id: string;
  instance: string;
  attempt: number;
}

let instance = "";
let attempts = 0;

/** The field `producer` of the next hello; none without an id. */
export function helloProducer(id: string | undefined): { producer?: HelloProducer } {
  if (!id) return {};
  instance ||= hex(randomBytes(8));
  return { producer: { id, instance, attempt: ++attempts } };
}
