/** Topics in Vue: the newest messages of a topic, or a state made of them; the last message, and tables. */

import type { Message } from "@tidewire/client";
import {
  type LatestOptions,
  latestPlan,
  type Rows,
  selected,
  type TopicMessages,
  type TopicOptions,
  type Topics,
  type TopicValue,
  topicPlan,
  type UseMessagesOptions,
  type UseReducedOptions,
  type UseRowsOptions,
} from "@tidewire/client/stores";
import { type ComputedRef, computed, type MaybeRefOrGetter, toValue } from "vue";
import { useSlot } from "./provider.js";
import { type Fields, fieldsOf, useShown } from "./shown.js";

/**
 * Subscribes to a topic while the component is mounted. It shows the newest messages or, with `reduce`, a state made of
 * them. Another topic, or other options for the server, begin with nothing: the old topic's data is never shown.
 */
export function useTopic<T = unknown>(
  topics: MaybeRefOrGetter<Topics>,
  options?: MaybeRefOrGetter<UseMessagesOptions<T>>,
): Fields<TopicMessages<T>>;
export function useTopic<T, S>(
  topics: MaybeRefOrGetter<Topics>,
  options: MaybeRefOrGetter<UseReducedOptions<T, S>>,
): Fields<TopicValue<S>>;
export function useTopic<T, S>(
  topics: MaybeRefOrGetter<Topics>,
  options: MaybeRefOrGetter<UseMessagesOptions<T> | UseReducedOptions<T, S>> = {},
): Fields<TopicMessages<T>> | Fields<TopicValue<S>> {
  const { shown } = useShown(useSlot(), () => topicPlan<T, S>(toValue(topics), toValue(options)));
  return fieldsOf(shown) as Fields<TopicMessages<T>> | Fields<TopicValue<S>>;
}

/**
 * The last message of a topic or, with `key`, of each row of a table. Components share the stored messages. With
 * `select` a component renders only when the selected value changes: `select: (rows) => rows.get(id)` is one row.
 */
export function useLatest<T = unknown>(
  topics: MaybeRefOrGetter<Topics>,
  options?: MaybeRefOrGetter<TopicOptions & { key?: undefined; select?: undefined }>,
): ComputedRef<Message<T> | undefined>;
export function useLatest<T>(
  topics: MaybeRefOrGetter<Topics>,
  options: MaybeRefOrGetter<UseRowsOptions<T> & { select?: undefined }>,
): ComputedRef<Rows<T>>;
export function useLatest<T, R = Message<T> | undefined>(
  topics: MaybeRefOrGetter<Topics>,
  options: MaybeRefOrGetter<UseRowsOptions<T> & { select: (rows: Rows<T>) => R }>,
): ComputedRef<R>;
export function useLatest<T>(
  topics: MaybeRefOrGetter<Topics>,
  options: MaybeRefOrGetter<LatestOptions> = {},
): ComputedRef<unknown> {
  const { shown } = useShown(useSlot(), () => latestPlan<T>(toValue(topics), toValue(options)));
  const select = computed(() => toValue(options).select as ((snapshot: unknown) => unknown) | undefined);
  const value = computed(() => selected(() => shown.value, select.value));
  return computed(() => value.value());
}
