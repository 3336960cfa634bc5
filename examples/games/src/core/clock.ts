/** Chess clock: a time budget for each side. All times are milliseconds of the caller's clock. */

export type Side = "white" | "black";

export const other = (side: Side): Side => (side === "white" ? "black" : "white");

/** The time of each side for a whole game, and what a side gains with each move. */
export interface TimeControl {
  initialMs: number;
  incrementMs: number;
}

/** The times that a clock shows. */
export interface ClockView {
  whiteMs: number;
  blackMs: number;
  /** The side whose time runs; `null` before the start and after the end. */
  running: Side | null;
}

export class Clock {
  readonly control: TimeControl;
  #remainingMs: Record<Side, number>;
  #running: Side | null = null;
  #sinceMs = 0;

  constructor(control: TimeControl) {
    this.control = control;
    this.#remainingMs = { white: control.initialMs, black: control.initialMs };
  }

  /** Continues from what a clock showed; the time of the running side counts from `nowMs` on. */
  static restore(control: TimeControl, view: ClockView, nowMs: number): Clock {
    const clock = new Clock(control);
    clock.#remainingMs = { white: view.whiteMs, black: view.blackMs };
    if (view.running) clock.start(view.running, nowMs);
    return clock;
  }

  start(side: Side, nowMs: number): void {
    this.#running = side;
    this.#sinceMs = nowMs;
  }

  /** The time left to a side, at least 0. */
  remainingMs(side: Side, nowMs: number): number {
    const elapsedMs = this.#running === side ? Math.max(0, nowMs - this.#sinceMs) : 0;
    return Math.max(0, this.#remainingMs[side] - elapsedMs);
  }

  /** When the running side has no time left. */
  get deadlineMs(): number | undefined {
    return this.#running === null ? undefined : this.#sinceMs + this.#remainingMs[this.#running];
  }

  /** Whether the running side has no time left. */
  hasExpired(nowMs: number): boolean {
    const deadlineMs = this.deadlineMs;
    return deadlineMs !== undefined && nowMs >= deadlineMs;
  }

  /** The running side has moved: it gains the increment, and the time of the other side runs. */
  press(nowMs: number): void {
    const side = this.#running;
    if (side === null) return;
    this.#remainingMs[side] = this.remainingMs(side, nowMs) + this.control.incrementMs;
    this.start(other(side), nowMs);
  }

  stop(nowMs: number): void {
    if (this.#running === null) return;
    this.#remainingMs[this.#running] = this.remainingMs(this.#running, nowMs);
    this.#running = null;
  }

  view(nowMs: number): ClockView {
    return {
      whiteMs: this.remainingMs("white", nowMs),
      blackMs: this.remainingMs("black", nowMs),
      running: this.#running,
    };
  }
}
