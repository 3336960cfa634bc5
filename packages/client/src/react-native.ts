/** `@tidewire/client/react-native`: the life of an application on a telephone. */

import type { Client } from "./client.js";

/** What of React Native's `AppState` is used. */
export interface AppStateSource {
  addEventListener(type: "change", listener: (state: string) => void): { remove(): void };
}

/**
 * Closes the connection while the application is in the background, so that its user is not present there, and
 * opens it when the application is back: `followAppState(client, AppState)`. Missed publications are recovered
 * then. The result ends that.
 */
export function followAppState(client: Client, appState: AppStateSource): () => void {
  const subscription = appState.addEventListener("change", (state) => {
    if (state === "active") client.driver.wake();
    else if (state === "background") client.driver.away("the application is in the background");
  });
  return () => subscription.remove();
}
