/** Calls of the server's application in Vue. */

import {
  type Publish,
  publisher,
  type RequestState,
  requestPlan,
  type UseRequestOptions,
} from "@tidewire/client/stores";
import { type MaybeRefOrGetter, toValue } from "vue";
import { useSlot } from "./provider.js";
import { type Fields, fieldsOf, useShown } from "./shown.js";

/**
 * Asks the server's application for something while the component is mounted, and again when `type` or `payload`
 * changes; the old answer is then not shown. It is for questions: a request may be made more than once. A request
 * that changes something belongs into a handler, with `useClient()`. `null` as the type asks nothing.
 */
export function useRequest<T = unknown>(
  type: MaybeRefOrGetter<string | null | undefined | false>,
  payload: MaybeRefOrGetter<unknown> = null,
  options: MaybeRefOrGetter<UseRequestOptions> = {},
): Omit<Fields<RequestState<T>>, "refetch"> & Pick<RequestState<T>, "refetch"> {
  const plan = () => requestPlan<T>(toValue(type), toValue(payload), toValue(options));
  const { shown } = useShown(useSlot(), plan);
  return { ...fieldsOf(shown), refetch: () => shown.value.refetch() };
}

/**
 * A function that publishes to a topic, for handlers. What the end of the client cuts off rejects with `CLOSED`, and is no
 * unhandled rejection where nobody waits for it.
 */
export function usePublish<T = unknown>(topic: MaybeRefOrGetter<string>): Publish<T> {
  const slot = useSlot();
  return (payload, options) => publisher<T>(slot, toValue(topic))(payload, options);
}
