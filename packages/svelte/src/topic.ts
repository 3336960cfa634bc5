/** Topics in Svelte: the newest messages of a topic, or a state made of them; the last message, and tables. */

import type { Message } from "@tidewire/client";
import {
  type LatestOptions,
  latestPlan,
  type Rows,
  type TopicMessages,
  type TopicOptions,
  type Topics,
  type TopicValue,
  topicPlan,
  type UseMessagesOptions,
  type UseReducedOptions,
  type UseRowsOptions,
} from "@tidewire/client/stores";
import { slotOf } from "./provider.js";
import { type Current, current, fieldsOf, given, type Live, type MaybeGetter, show } from "./shown.js";

/**
 * Subscribes to a topic while the component is mounted. It shows the newest messages or, with `reduce`, a state made of
 * them. Another topic, or other options for the server, begin with nothing: the old topic's data is never shown.
 */
export function useTopic<T = unknown>(
  topics: MaybeGetter<Topics>,
  options?: MaybeGetter<UseMessagesOptions<T>>,
): Live<TopicMessages<T>>;
export function useTopic<T, S>(
  topics: MaybeGetter<Topics>,
  options: MaybeGetter<UseReducedOptions<T, S>>,
): Live<TopicValue<S>>;
export function useTopic<T, S>(
  topics: MaybeGetter<Topics>,
  options: MaybeGetter<UseMessagesOptions<T> | UseReducedOptions<T, S>> = {},
): Live<TopicMessages<T>> | Live<TopicValue<S>> {
  const { read } = show(slotOf(), () => topicPlan<T, S>(given(topics), given(options)));
  return fieldsOf(read) as Live<TopicMessages<T>> | Live<TopicValue<S>>;
}

/** The last message of a topic or, with `key`, of each row of a table. Components share the stored messages. */
export function useLatest<T = unknown>(
  topics: MaybeGetter<Topics>,
  options?: MaybeGetter<TopicOptions & { key?: undefined }>,
): Current<Message<T> | undefined>;
export function useLatest<T>(
  topics: MaybeGetter<Topics>,
  options: MaybeGetter<UseRowsOptions<T>>,
): Current<Rows<T>>;
export function useLatest<T>(
  topics: MaybeGetter<Topics>,
  options: MaybeGetter<LatestOptions> = {},
): Current<unknown> {
  return current(show(slotOf(), () => latestPlan<T>(given(topics), given(options))).read);
}
