/** Faults of the test server: what it drops, delays and refuses, where a test asks for it. */

/** Where a fault can be: what a client asks for, or a publication on its way to a subscriber. */
export type FaultPoint =
  | "connect"
  | "subscribe"
  | "unsubscribe"
  | "publish"
  | "request"
  | "message"
  | "history"
  | "presence"
  | "sync"
  | "publication";

export interface FaultOptions {
  /** How often the fault happens. Default: until the function that the call has returned ends it. */
  times?: number;
  /** The topic, or the type of a request or message, that has the fault. Default: each. */
  name?: string;
}

export interface DropOptions extends FaultOptions {
  /** The server handles the request, and only the answer is lost. Default false: the request is lost. */
  answerOnly?: boolean;
}

export interface RefuseOptions extends FaultOptions {
  /** The words of the refusal. Default: that the test has refused it. */
  message?: string;
  /** When the client may ask again, in milliseconds. The protocol has whole seconds: it is rounded up. */
  retryAfterMs?: number;
}

export interface Refusal {
  readonly code: string | number;
  readonly message: string;
  readonly retryAfterMs: number | undefined;
}

/** What a fault does. */
export interface Effect {
  readonly delayMs?: number;
  /** Nothing is done, or nothing is answered. */
  readonly drops?: "request" | "answer";
  readonly refusal?: Refusal;
}

interface Fault {
  readonly point: FaultPoint;
  readonly name: string | undefined;
  readonly effect: Effect;
  left: number;
}

const NO_EFFECT: Effect = {};

export class Faults {
  readonly #faults = new Set<Fault>();

  /** The result ends the fault. */
  add(point: FaultPoint, effect: Effect, { times = Infinity, name }: FaultOptions): () => void {
    const fault: Fault = { point, name, effect, left: times };
    if (times > 0) this.#faults.add(fault);
    return () => void this.#faults.delete(fault);
  }

  clear(): void {
    this.#faults.clear();
  }

  /** The effect of the faults on something with this name. Each fault that applies counts once. */
  take(point: FaultPoint, name: string): Effect {
    let effect = NO_EFFECT;
    for (const fault of this.#faults) {
      if (fault.point !== point || (fault.name !== undefined && fault.name !== name)) continue;
      effect = { ...effect, ...fault.effect };
      if (--fault.left <= 0) this.#faults.delete(fault);
    }
    return effect;
  }
}
