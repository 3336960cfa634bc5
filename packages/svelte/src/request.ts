/** Calls of the server's application in Svelte. */

import {
  type Publish,
  publisher,
  type RequestState,
  requestPlan,
  type UseRequestOptions,
} from "@tidewire/client/stores";
import { slotOf } from "./provider.js";
import { fieldsOf, given, type Live, type MaybeGetter, show } from "./shown.js";

/**
 * Asks the server's application for something while the component is mounted, and again when `type` or `payload`
 * changes; the old answer is then not shown. It is for questions: a request may be made more than once. A request
 * that changes something belongs into a handler, with `useClient()`. `null` as the type asks nothing.
 */
export function useRequest<T = unknown>(
  type: MaybeGetter<string | null | undefined | false>,
  payload: MaybeGetter<unknown> = null,
  options: MaybeGetter<UseRequestOptions> = {},
): Live<RequestState<T>> {
  const plan = () => requestPlan<T>(given(type), given(payload), given(options));
  return fieldsOf(show(slotOf(), plan).read);
}

/**
 * A function that publishes to a topic, for handlers. What the end of the client cuts off rejects with `CLOSED`, and is no
 * unhandled rejection where nobody waits for it.
 */
export function usePublish<T = unknown>(topic: MaybeGetter<string>): Publish<T> {
  const slot = slotOf();
  return (payload, options) => publisher<T>(slot, given(topic))(payload, options);
}
