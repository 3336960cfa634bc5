"use client";

/** Topics in React: the newest messages of a topic, or a state made of them. */

import {
  type TopicMessages,
  type Topics,
  type TopicValue,
  topicPlan,
  type UseMessagesOptions,
  type UseReducedOptions,
} from "@tidewire/client/stores";
import { useEffect } from "react";
import { usePlan, useShown } from "./provider.js";

/**
 * Subscribes to a topic while the component is mounted. It shows the newest messages or, with `reduce`, a state made of
 * them. Another topic, or other options for the server, begin with nothing: the old topic's data is never shown.
 */
export function useTopic<T = unknown>(topics: Topics, options?: UseMessagesOptions<T>): TopicMessages<T>;
export function useTopic<T, S>(topics: Topics, options: UseReducedOptions<T, S>): TopicValue<S>;
export function useTopic<T, S>(
  topics: Topics,
  options: UseMessagesOptions<T> | UseReducedOptions<T, S> = {},
): TopicMessages<T> | TopicValue<S> {
  const plan = topicPlan<T, S>(topics, options);
  const store = usePlan(plan);
  useEffect(() => plan.update?.(store));
  return useShown<TopicMessages<T> | TopicValue<S>>(store);
}
