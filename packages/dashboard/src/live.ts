/** The numbers of the server once a second: over the WebSocket, or by requests while there is none. */

import { get, type Stats } from "./api.js";

export interface Listener {
  show(stats: Stats): void;
  /** Why the page is not live; empty when it is. */
  note(text: string): void;
}

/** Starts it, and returns what ends it. A page that is not seen receives nothing. */
export function watch(listener: Listener): () => void {
  let socket: WebSocket | undefined;
  let isLive = false;
  let isPolling = false;
  let isOver = false;
  let attempts = 0;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let silence: ReturnType<typeof setTimeout> | undefined;

  function open(): void {
    clearTimeout(retry);
    if (isOver || document.hidden || socket) return;
    const mine = new WebSocket(`${location.origin.replace(/^http/, "ws")}/dashboard/ws`);
    socket = mine;
    expect(mine);
    mine.addEventListener("message", (event) => {
      if (mine !== socket) return;
      isLive = true;
      attempts = 0;
      expect(mine);
      listener.note("");
      listener.show(JSON.parse(event.data as string) as Stats);
    });
    mine.addEventListener("close", () => lose(mine));
  }

  /** A server that sends nothing for a while is as good as gone. */
  function expect(mine: WebSocket): void {
    clearTimeout(silence);
    silence = setTimeout(() => lose(mine), isLive ? SILENCE_MS : OPENING_MS);
  }

  function lose(mine: WebSocket): void {
    if (mine !== socket) return;
    leave();
    if (isOver || document.hidden) return;
    retry = setTimeout(open, Math.min(RETRY_MS_MAX, RETRY_MS * 2 ** attempts++));
    void poll();
  }

  function leave(): void {
    const old = socket;
    socket = undefined;
    isLive = false;
    clearTimeout(retry);
    clearTimeout(silence);
    old?.close();
  }

  /** Asks until the WebSocket delivers. A login that has ended is noticed here. */
  async function poll(): Promise<void> {
    if (isPolling) return;
    isPolling = true;
    while (!isOver && !isLive && !document.hidden) {
      try {
        const stats = await get<Stats>("stats");
        if (isOver || isLive) break;
        listener.note(POLLING);
        listener.show(stats);
      } catch (error) {
        if (!isOver && !isLive) listener.note(`no answer: ${(error as Error).message}`);
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
    isPolling = false;
  }

  function look(): void {
    if (document.hidden) leave();
    else {
      attempts = 0;
      open();
    }
  }

  document.addEventListener("visibilitychange", look);
  open();
  return () => {
    isOver = true;
    document.removeEventListener("visibilitychange", look);
    leave();
  };
}

const POLLING = "not live: the WebSocket is not open, so the page asks once a second";

const POLL_MS = 1000;

const SILENCE_MS = 10_000;

/** Maximum wait for the first numbers. */
const OPENING_MS = 5_000;

const RETRY_MS = 1000;

const RETRY_MS_MAX = 30_000;
