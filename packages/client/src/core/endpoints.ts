/** Several addresses of one service: which to try next, by health and by choice. */

import { Breaker, type BreakerOptions, type BreakerState } from "./breaker.js";

/** One address. */
export interface Endpoint {
  /** Such as `wss://a.example.com/ws`. */
  url: string;
  /** Its share of the load, relative to the others; at least 1. */
  weight: number;
}

/**
 * How the next endpoint is chosen among those that are healthy enough: at random by weight times
 * health; the one with the fewest connections of this program, among equals the healthier; or one
 * after another.
 */
export type EndpointChoice = "weighted" | "least_connections" | "round_robin";

/** The measured state of an endpoint. */
export interface EndpointHealth {
  url: string;
  /** From 0 (every attempt fails) to 100. */
  score: number;
  /** Milliseconds until a session was established, smoothed; undefined before the first. */
  connectMs: number | undefined;
  /** Whether attempts are let through. */
  breaker: BreakerState;
}

interface Entry extends Endpoint {
  breaker: Breaker;
  health: number;
  connectMs: number | undefined;
}

/** The endpoints of a client, with the state of each. Each has its own circuit breaker. */
export class Endpoints {
  readonly #choice: EndpointChoice;
  readonly #entries: Entry[];
  #next = 0;

  constructor(endpoints: readonly Endpoint[], choice: EndpointChoice, breaker: BreakerOptions) {
    this.#choice = choice;
    this.#entries = endpoints.map(({ url, weight }) => ({
      url,
      weight,
      breaker: new Breaker(breaker),
      health: HEALTH_MAX,
      connectMs: undefined,
    }));
  }

  /**
   * Chooses the endpoint for the next attempt, or returns how long to wait until a circuit breaker lets one
   * through. {@link succeeded} or {@link failed} then reports the end of the attempt. `random` lies in [0, 1).
   * `connections` has the connections of this program for each endpoint, by index; missing ones count as 0. Those
   * in `leftOut` are not chosen: if that leaves none, `waitMs` is infinite.
   */
  choose(
    nowMs: number,
    random: number,
    connections: readonly number[] = [],
    leftOut: readonly number[] = [],
  ): { index: number } | { waitMs: number } {
    const order = this.#order(random, connections).filter((index) => !leftOut.includes(index));
    // Endpoints in trouble follow the others, whatever the choice.
    const isPoor = (index: number) => Number(this.#entries[index]!.health < HEALTH_POOR);
    order.sort((a, b) => isPoor(a) - isPoor(b));
    let soonestMs = Infinity;
    for (const index of order) {
      const waitMs = this.#entries[index]!.breaker.acquire(nowMs);
      if (waitMs === 0) {
        this.#next = (index + 1) % this.#entries.length;
        return { index };
      }
      soonestMs = Math.min(soonestMs, waitMs);
    }
    return { waitMs: soonestMs };
  }

  /** Milliseconds until one of the circuit breakers lets an attempt through; 0 if one does now. */
  waitMs(nowMs: number): number {
    return Math.min(...this.#entries.map((entry) => entry.breaker.waitMs(nowMs)));
  }

  /** A session was established, `connectMs` milliseconds after the start of the attempt. */
  succeeded(index: number, connectMs: number): void {
    const entry = this.#entries[index];
    if (!entry) return;
    entry.breaker.succeeded();
    entry.health += (HEALTH_MAX - entry.health) * HEALTH_GAIN;
    const old = entry.connectMs ?? connectMs;
    entry.connectMs = old + (connectMs - old) * SMOOTHING;
  }

  /** An attempt failed, or the server ended a session for a reason of its own. */
  failed(index: number, nowMs: number): void {
    const entry = this.#entries[index];
    if (!entry) return;
    entry.breaker.failed(nowMs);
    entry.health *= HEALTH_LOSS;
  }

  /** The address of an endpoint. */
  url(index: number): string {
    return this.#entries[index]?.url ?? "";
  }

  /** How many there are. */
  get length(): number {
    return this.#entries.length;
  }

  health(nowMs: number): EndpointHealth[] {
    return this.#entries.map(({ url, health, connectMs, breaker }) => ({
      url,
      score: Math.round(health),
      connectMs,
      breaker: breaker.state(nowMs),
    }));
  }

  /** All endpoints, the one to try first in front. */
  #order(random: number, connections: readonly number[]): number[] {
    const count = this.#entries.length;
    const inTurn = this.#entries.map((_, step) => (this.#next + step) % count);
    if (this.#choice === "weighted") return this.#byWeight(random);
    if (this.#choice === "round_robin") return inTurn;
    const health = (index: number) => this.#entries[index]!.health;
    return inTurn.sort((a, b) => (connections[a] ?? 0) - (connections[b] ?? 0) || health(b) - health(a));
  }

  /** Draws one endpoint after another without putting it back. */
  #byWeight(random: number): number[] {
    const left = this.#entries.map((_, index) => index);
    const order: number[] = [];
    const weight = (index: number | undefined) => {
      const entry = this.#entries[index!]!;
      return Math.max(entry.weight, 1) * Math.max(entry.health, 1);
    };
    let rest = random;
    while (left.length > 0) {
      let at = rest * left.reduce((total, index) => total + weight(index), 0);
      let hit = 0;
      while (hit < left.length - 1 && at >= weight(left[hit])) {
        at -= weight(left[hit]);
        hit += 1;
      }
      // Where the number fell inside its share is as random as the number was.
      rest = at / weight(left[hit]);
      order.push(...left.splice(hit, 1));
    }
    return order;
  }
}

const HEALTH_MAX = 100;
/** Below this an endpoint is tried only after the others. */
const HEALTH_POOR = 30;
/** The share of the missing health that a success restores. */
const HEALTH_GAIN = 0.3;
/** The share that a failure leaves. */
const HEALTH_LOSS = 0.5;
const SMOOTHING = 0.3;
