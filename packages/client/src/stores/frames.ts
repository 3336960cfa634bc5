/**
 * Coalesced updates: whatever changes within one frame is shown by one render. All stores of a page share the frame, so
 * that a framework renders them together.
 */

/** When changes are shown: once per animation frame, or at the end of the current microtasks. */
export type Updates = "frame" | "microtask";

/** A hidden page has no frames, and a busy one few: changes are shown after this time at the latest. */
const FRAME_MS_MAX = 100;

/** Calls that wait for their turn, each at most once. */
class Turn {
  readonly #waiting = new Set<() => void>();
  readonly #request: (run: () => void) => () => void;
  #cancel: (() => void) | undefined;

  constructor(request: (run: () => void) => () => void) {
    this.#request = request;
  }

  add(call: () => void): void {
    this.#waiting.add(call);
    this.#cancel ??= this.#request(() => this.#run());
  }

  delete(call: () => void): void {
    this.#waiting.delete(call);
    if (this.#waiting.size) return;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #run(): void {
    this.#cancel = undefined;
    const calls = [...this.#waiting];
    this.#waiting.clear();
    for (const call of calls) call();
  }
}

/** Requests the next frame; where there are none, or none in time, a timer replaces it. */
function requestFrame(run: () => void): () => void {
  let frame: number | undefined;
  const cancel = () => {
    clearTimeout(timer);
    if (frame !== undefined) cancelAnimationFrame(frame);
  };
  const first = () => {
    cancel();
    run();
  };
  const timer = setTimeout(first, FRAME_MS_MAX);
  if (typeof requestAnimationFrame === "function") frame = requestAnimationFrame(first);
  return cancel;
}

function requestMicrotask(run: () => void): () => void {
  let isWanted = true;
  queueMicrotask(() => {
    if (isWanted) run();
  });
  return () => {
    isWanted = false;
  };
}

const turns: Record<Updates, Turn> = {
  frame: new Turn(requestFrame),
  microtask: new Turn(requestMicrotask),
};

/** Makes a call at the next turn of `updates`, once, however often it is asked for. */
export function schedule(updates: Updates, call: () => void): void {
  turns[updates].add(call);
}

/** Cancels a scheduled call. */
export function unschedule(updates: Updates, call: () => void): void {
  turns[updates].delete(call);
}
