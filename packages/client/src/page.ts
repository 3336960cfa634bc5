/** The life of a page, as far as a connection has to follow it. Does nothing outside a browser. */

import type { ResolvedOptions } from "./options.js";

/** What the page makes the connection do. */
export interface PageHost {
  /** The page, the network or the machine is back. */
  wake(): void;
  /** The network may be gone: a connection whose server does not answer is given up in seconds. */
  check(): void;
  /** The page is being frozen or cached: the connection is closed, so that the server does not keep a ghost. */
  away(reason: string): void;
}

interface NetworkInformation extends EventTarget {
  saveData?: boolean;
  effectiveType?: string;
}

/** Whether the user saves data or the network is slow. Only Chromium reports it. */
export function isNetworkPoor(): boolean {
  const connection = (globalThis.navigator as { connection?: NetworkInformation } | undefined)?.connection;
  return connection?.saveData === true || /2g/.test(connection?.effectiveType ?? "");
}

/**
 * Watches the page. A browser answers WebSocket pings outside the page, so a frozen page would stay connected for
 * as long as it is frozen. The connection is therefore closed before, and opened again afterwards. Events overlap
 * and some are missing in some versions; every handler may run any number of times. The result ends the watch.
 */
export function watchPage(host: PageHost, options: ResolvedOptions): () => void {
  const { window, document } = globalThis as { window?: Window; document?: Document };
  if (!window?.addEventListener || !document) return () => undefined;
  const off = new AbortController();
  const on = (target: EventTarget, names: string, handler: (event: Event) => void) => {
    for (const name of names.split(" ")) target.addEventListener(name, handler, { signal: off.signal });
  };
  const wake = (event: Event) => {
    options.log?.("debug", `page: ${event.type}`);
    if (document.visibilityState !== "hidden" || event.type !== "focus") host.wake();
  };
  on(window, "online focus", wake);
  on(window, "offline", () => host.check());
  on(window, "pageshow", (event) => {
    if ((event as PageTransitionEvent).persisted) wake(event);
  });
  on(document, "resume", wake);
  on(document, "visibilitychange", (event) => {
    if (document.visibilityState === "visible") wake(event);
  });
  on(window, "pagehide", () => host.away("the page was left"));
  on(document, "freeze", () => host.away("the page is frozen"));
  return () => off.abort();
}
