"use client";

/** Presence in React: who is on a topic, live. */

import { type Presence, presencePlan, type UsePresenceOptions } from "@tidewire/client/stores";
import { useEffect } from "react";
import { usePlan, useShown } from "./provider.js";

/**
 * The users on a topic, live, and this user with `data`. It subscribes to the topic: a client that does so by the topic's
 * name is present. The operator chooses which topics have presence.
 */
export function usePresence<D = unknown>(
  topic: string | null | undefined | false,
  options: UsePresenceOptions<D> = {},
): Presence<D> {
  const { data } = options;
  const store = usePlan(presencePlan<D>(topic));
  const shown = useShown(store);
  const text = data === undefined ? undefined : JSON.stringify(data);
  // After the store has begun, so that the topic is there to be added to.
  useEffect(() => (text === undefined ? undefined : store.tell(JSON.parse(text) as object)), [store, text]);
  return shown;
}
