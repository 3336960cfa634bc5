"use client";

/** Calls of the server's application in React. */

import {
  type Publish,
  publisher,
  type RequestState,
  requestPlan,
  type UseRequestOptions,
} from "@tidewire/client/stores";
import { useMemo } from "react";
import { usePlan, useShown, useSlot } from "./provider.js";

/**
 * Asks the server's application for something while the component is mounted, and again when `type` or `payload`
 * changes; the old answer is then not shown. It is for questions: a request may be made more than once. A request
 * that changes something belongs into a handler, with `useClient()`. `null` as the type asks nothing.
 */
export function useRequest<T = unknown>(
  type: string | null | undefined | false,
  payload: unknown = null,
  options: UseRequestOptions = {},
): RequestState<T> {
  return useShown(usePlan(requestPlan<T>(type, payload, options)));
}

/**
 * A function that publishes to a topic, for handlers and effects. It stays the same while the topic does. What the end of the
 * client cuts off rejects with `CLOSED`, and is no unhandled rejection where nobody waits for it.
 */
export function usePublish<T = unknown>(topic: string): Publish<T> {
  const slot = useSlot();
  return useMemo(() => publisher<T>(slot, topic), [slot, topic]);
}
