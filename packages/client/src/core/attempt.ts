/** The producer of a hello, and which of this page's connections that is (PROTOCOL 20). */

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
  for (const word of instance ? [] : crypto.getRandomValues(new Uint32Array(2))) {
    instance += word.toString(16).padStart(8, "0");
  }
  return { producer: { id, instance, attempt: ++attempts } };
}
