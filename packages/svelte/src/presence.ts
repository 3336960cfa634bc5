/** Presence in Svelte: who is on a topic, live. */

import { type Presence, presencePlan, type UsePresenceOptions } from "@tidewire/client/stores";
import { slotOf } from "./provider.js";
import { fieldsOf, given, type Live, type MaybeGetter, show, whileMounted } from "./shown.js";

/**
 * The users on a topic, live, and this user with `data`. It subscribes to the topic: a client that does so by the topic's
 * name is present. The operator chooses which topics have presence.
 */
export function usePresence<D = unknown>(
  topic: MaybeGetter<string | null | undefined | false>,
  options: MaybeGetter<UsePresenceOptions<D>> = {},
): Live<Presence<D>> {
  const { store, read } = show(slotOf(), () => presencePlan<D>(given(topic)));
  let last: { store: ReturnType<typeof store>; text: string | undefined } | undefined;
  const told = () => {
    const next = { store: store(), text: JSON.stringify(given(options).data) as string | undefined };
    if (last?.store !== next.store || last.text !== next.text) last = next;
    return last;
  };
  whileMounted(told, (now) =>
    now.text === undefined ? () => {} : now.store.tell(JSON.parse(now.text) as object),
  );
  return fieldsOf(read);
}
