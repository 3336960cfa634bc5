/**
 * Sequencer: lets each message of a topic through once and in order, and reports the gaps between them.
 */

/** A place in a topic's history. */
export interface Position {
  /** Which history; another value means that counting began anew. */
  epoch: string;
  /** Which message of it, from 1; 0 is the place before the first. */
  offset: number;
}

/** Messages of a topic that have not arrived: those from `from` to `to`, both included. */
export interface Gap {
  topic: string;
  epoch: string;
  from: number;
  to: number;
}

/** What a sequencer lets through, in the order in which the application should see it. */
export type Sequenced<T> = { message: T; gap?: undefined } | { gap: Gap; message?: undefined };

/**
 * Result for a message: let through; held until those before it have arrived; dropped, because it has arrived
 * before or its place was reported as a gap; or let through as the first of another history of its topic.
 */
export type SequencerOutcome = "delivered" | "held" | "duplicate" | "new_epoch";

export interface SequencerLimits {
  /** Topics; the one that was seen first is forgotten for a further one. Default 10,000. */
  topicsMax: number;
  /** Messages that are held because others are missing, of all topics together. Default 1,024. */
  heldMax: number;
  /**
   * How long a message waits for those before it, in milliseconds; 0 to hold none. Default 1,000.
   */
  windowMs: number;
}

export const defaultSequencerLimits: SequencerLimits = { topicsMax: 10_000, heldMax: 1_024, windowMs: 1_000 };

interface Topic<T> {
  epoch: string;
  offset: number;
  held: Map<number, T> | undefined;
}

/**
 * Orders the messages of many topics by their positions. A message that arrives before its turn is held until
 * those before it have arrived, until the window is over, or until too many are held. Then the messages that are
 * still missing are a gap, and the held messages follow it. Results are appended to `out` of the constructor.
 * `nowMs` is on a clock that never goes back.
 */
export class Sequencer<T> {
  readonly #out: Sequenced<T>[];
  readonly #limits: SequencerLimits;
  /** By when they were first seen. */
  readonly #topics = new Map<string, Topic<T>>();
  /** Topics that hold messages, with the time when they give up; the earliest is the first. */
  readonly #waiting = new Map<string, number>();
  #held = 0;

  constructor(out: Sequenced<T>[], limits: SequencerLimits = defaultSequencerLimits) {
    this.#out = out;
    this.#limits = limits;
  }

  /** Topics that are known. */
  get topics(): number {
    return this.#topics.size;
  }

  /** Messages that are held. */
  get held(): number {
    return this.#held;
  }

  /** The last message of a topic that was let through; undefined if nothing is known of it. */
  position(topic: string): Position | undefined {
    const known = this.#topics.get(topic);
    return known && { epoch: known.epoch, offset: known.offset };
  }

  /**
   * The usual case without allocation: whether this is the next message of a known topic of which
   * nothing is held. If so, it counts as let through; otherwise nothing changes, and {@link handle}
   * decides.
   */
  pass(topic: string, epoch: string, offset: number): boolean {
    const known = this.#topics.get(topic);
    if (!known || known.held || known.epoch !== epoch || known.offset + 1 !== offset) return false;
    known.offset = offset;
    return true;
  }

  /** Handles a message. The first one of an unknown topic is let through, whatever its position. */
  handle(topic: string, position: Position, message: T, nowMs: number): SequencerOutcome {
    const { epoch, offset } = position;
    const known = this.#topics.get(topic) ?? this.#insert(topic, { epoch, offset: offset - 1 });
    if (known.epoch !== epoch) {
      this.#restart(topic, known, position);
      this.#out.push({ message });
      return "new_epoch";
    }
    if (offset <= known.offset || known.held?.has(offset)) return "duplicate";
    if (offset > known.offset + 1) return this.#hold(topic, known, offset, message, nowMs);
    known.offset = offset;
    this.#out.push({ message });
    this.#drain(topic, known, nowMs);
    return "delivered";
  }

  /**
   * The messages of a topic up to `position` have been seen, whoever delivered them: the answer to
   * a subscription names a position, and a publisher knows that of its own message.
   */
  advance(topic: string, position: Position, nowMs: number): void {
    const known = this.#topics.get(topic) ?? this.#insert(topic, position);
    if (known.epoch !== position.epoch) {
      this.#restart(topic, known, position);
    } else if (known.offset < position.offset) {
      for (const offset of [...(known.held?.keys() ?? [])].sort((a, b) => a - b)) {
        if (offset <= position.offset) this.#take(known, offset);
      }
      known.offset = position.offset;
      this.#drain(topic, known, nowMs);
    }
  }

  /**
   * The server reports that the messages of a topic from `from` to `to` of `epoch` will not arrive, so those
   * behind them need not wait. Those of them that have arrived are let through. No effect while messages before
   * `from` are missing.
   */
  skip(topic: string, epoch: string, from: number, to: number, nowMs: number): void {
    const known = this.#topics.get(topic);
    if (known?.epoch === epoch && from <= known.offset + 1) {
      this.advance(topic, { epoch, offset: to }, nowMs);
    }
  }

  /** Forgets a topic. Held messages are let through first, with the gaps. */
  forget(topic: string): void {
    const known = this.#topics.get(topic);
    if (known) this.#release(topic, known);
    this.#topics.delete(topic);
  }

  /** When {@link handleTimeout} wants to be called; undefined for never. */
  nextTimeout(): number | undefined {
    for (const deadlineMs of this.#waiting.values()) return deadlineMs;
    return undefined;
  }

  /** Gives up waiting where the window is over. */
  handleTimeout(nowMs: number): void {
    for (const [topic, deadlineMs] of [...this.#waiting]) {
      if (deadlineMs > nowMs) return;
      this.#giveUp(topic, this.#topics.get(topic)!, nowMs);
    }
  }

  #hold(topic: string, known: Topic<T>, offset: number, message: T, nowMs: number): SequencerOutcome {
    known.held ??= new Map();
    known.held.set(offset, message);
    this.#held += 1;
    const { windowMs, heldMax } = this.#limits;
    if (windowMs > 0 && this.#held <= heldMax) {
      if (!this.#waiting.has(topic)) this.#waiting.set(topic, nowMs + windowMs);
      return "held";
    }
    this.#giveUp(topic, known, nowMs);
    return known.offset >= offset ? "delivered" : "held";
  }

  /** Reports the first gap of a topic and lets the messages behind it through. */
  #giveUp(topic: string, known: Topic<T>, nowMs: number): void {
    let to = Infinity;
    for (const offset of known.held?.keys() ?? []) to = Math.min(to, offset - 1);
    this.#out.push({ gap: { topic, epoch: known.epoch, from: known.offset + 1, to } });
    known.offset = to;
    this.#drain(topic, known, nowMs);
  }

  /** Lets through what follows without a gap, and sets the time for the rest. */
  #drain(topic: string, known: Topic<T>, nowMs: number): void {
    if (!known.held) return;
    while (known.held.has(known.offset + 1)) {
      known.offset += 1;
      this.#take(known, known.offset);
    }
    // Deleted first, so that the order stays that of the deadlines.
    this.#waiting.delete(topic);
    if (known.held.size > 0) this.#waiting.set(topic, nowMs + this.#limits.windowMs);
    else known.held = undefined;
  }

  /** Lets through all that a topic holds, with the gaps between. */
  #release(topic: string, known: Topic<T>): void {
    while (known.held) this.#giveUp(topic, known, 0);
  }

  #restart(topic: string, known: Topic<T>, position: Position): void {
    this.#release(topic, known);
    known.epoch = position.epoch;
    known.offset = position.offset;
  }

  #take(known: Topic<T>, offset: number): void {
    this.#out.push({ message: known.held!.get(offset)! });
    known.held!.delete(offset);
    this.#held -= 1;
  }

  #insert(topic: string, { epoch, offset }: Position): Topic<T> {
    for (const oldest of this.#topics.keys()) {
      if (this.#topics.size < Math.max(this.#limits.topicsMax, 1)) break;
      this.forget(oldest);
    }
    const known: Topic<T> = { epoch, offset, held: undefined };
    this.#topics.set(detached(topic), known);
    return known;
  }
}

/**
 * The same text with memory of its own, to be kept for long. Engines cut a text out of a message as a view, which keeps
 * the whole message in memory.
 */
export function detached(text: string): string {
  return ` ${text}`.slice(1);
}
