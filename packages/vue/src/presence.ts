/** Presence in Vue: who is on a topic, live. */

import { type Presence, presencePlan, type UsePresenceOptions } from "@tidewire/client/stores";
import { type MaybeRefOrGetter, toValue, watch } from "vue";
import { useSlot } from "./provider.js";
import { type Fields, fieldsOf, useShown, whenMounted } from "./shown.js";

/**
 * The users on a topic, live, and this user with `data`. It subscribes to the topic: a client that does so by the topic's
 * name is present. The operator chooses which topics have presence.
 */
export function usePresence<D = unknown>(
  topic: MaybeRefOrGetter<string | null | undefined | false>,
  options: MaybeRefOrGetter<UsePresenceOptions<D>> = {},
): Fields<Presence<D>> {
  const { store, shown } = useShown(useSlot(), () => presencePlan<D>(toValue(topic)));
  const text = () => JSON.stringify(toValue(options).data) as string | undefined;
  // After the store has begun, so that the topic is there to be added to.
  whenMounted(() => {
    const tell = (
      [now, data]: readonly [typeof store.value, string | undefined],
      _: unknown,
      onEnd: (end: () => void) => void,
    ) => {
      if (data !== undefined) onEnd(now.tell(JSON.parse(data) as object));
    };
    watch([store, text] as const, tell, { immediate: true });
  });
  return fieldsOf(shown);
}
