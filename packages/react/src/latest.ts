"use client";

/** Latest values in React: the last message of a topic, or of each row of a table. */

import type { Message } from "@tidewire/client";
import {
  type LatestOptions,
  latestPlan,
  type Rows,
  selected,
  type TopicOptions,
  type Topics,
  type UseRowsOptions,
} from "@tidewire/client/stores";
import { useMemo, useSyncExternalStore } from "react";
import { usePlan } from "./provider.js";

type Select = ((snapshot: unknown) => unknown) | undefined;

/**
 * The last message of a topic or, with `key`, of each row of a table. Components share the stored messages. With
 * `select` a component renders only when the selected value changes: `select: (rows) => rows.get(id)` is one row.
 */
export function useLatest<T = unknown>(
  topics: Topics,
  options?: TopicOptions & { key?: undefined; select?: undefined },
): Message<T> | undefined;
export function useLatest<T>(topics: Topics, options: UseRowsOptions<T> & { select?: undefined }): Rows<T>;
export function useLatest<T, R = Message<T> | undefined>(
  topics: Topics,
  options: UseRowsOptions<T> & { select: (rows: Rows<T>) => R },
): R;
export function useLatest<T>(topics: Topics, options: LatestOptions = {}): unknown {
  const store = usePlan(latestPlan<T>(topics, options));
  const { select } = options;
  const [get, getServer] = useMemo(
    () => [selected(store.get, select as Select), selected(store.getServer, select as Select)],
    [store, select],
  );
  return useSyncExternalStore(store.subscribe, get, getServer);
}
