/**
 * The snapshot file: all state as JSON, replaced as a whole, so that a crash leaves the old one or
 * the new one.
 */

import { open, readFile, rename } from "node:fs/promises";
import type { SavedHall } from "../core/hall.js";

/**
 * A save is followed by a pause of this many times its duration, so that saving costs at most 5 %
 * of the time.
 */
const PAUSE_FACTOR = 20;
const PAUSE_MIN_MS = 1_000;

/** The state in a file; `undefined` if there is no file. */
export async function loadSnapshot(path: string): Promise<SavedHall | undefined> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if ((error as { code?: string }).code === "ENOENT") return undefined;
    throw error;
  }
  try {
    return JSON.parse(text) as SavedHall;
  } catch (error) {
    throw new Error(`the snapshot ${path} is not JSON; move it away to start without it`, { cause: error });
  }
}

/** Writes the parts of a state one after another; other work runs in between. */
export async function saveSnapshot(path: string, parts: Iterable<string>): Promise<void> {
  const temporary = `${path}.new`;
  const file = await open(temporary, "w", 0o600);
  try {
    for (const part of parts) await file.writeFile(part);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
}

/** Saves again and again while there are changes. */
export class SnapshotKeeper {
  readonly #path: string;
  readonly #state: () => Iterable<string>;
  readonly #changes: () => number;
  readonly #onError: (error: unknown) => void;
  #saved = -1;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  /** When the newest snapshot was taken, on the clock of `performance`. */
  savedAtMs: number | undefined;

  constructor(
    path: string,
    state: () => Iterable<string>,
    changes: () => number,
    onError: (error: unknown) => void,
  ) {
    this.#path = path;
    this.#state = state;
    this.#changes = changes;
    this.#onError = onError;
  }

  start(): void {
    this.#plan(PAUSE_MIN_MS);
  }

  /** Saves for the last time. */
  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    await this.#running;
    await this.#save();
  }

  #plan(pauseMs: number): void {
    this.#timer = setTimeout(() => {
      const startMs = performance.now();
      this.#running = this.#save()
        .catch(this.#onError)
        .then(() => this.#plan(Math.max(PAUSE_MIN_MS, PAUSE_FACTOR * (performance.now() - startMs))));
    }, pauseMs);
    this.#timer.unref();
  }

  async #save(): Promise<void> {
    const changes = this.#changes();
    if (changes === this.#saved) return;
    await saveSnapshot(this.#path, this.#state());
    this.#saved = changes;
    this.savedAtMs = performance.now();
  }
}
