"use client";

/** Hooks that know the types of payloads by the names of topics. At run time they are the hooks themselves. */

import type { Message, PayloadOf } from "@tidewire/client";
import type {
  Publish,
  RowKey,
  Rows,
  TopicMessages,
  TopicOptions,
  TopicValue,
  UseMessagesOptions,
  UseReducedOptions,
  UseRowsOptions,
} from "@tidewire/client/stores";
import { useLatest } from "./latest.js";
import { usePublish } from "./request.js";
import { useTopic } from "./topic.js";

/** One name or several of a map of topics, or nothing while it is not known. */
export type NamesOf<Map extends object, Name extends keyof Map & string> =
  | Name
  | readonly Name[]
  | ""
  | null
  | undefined
  | false;

/** {@link useTopic}, {@link useLatest} and {@link usePublish} for the topics of a map. Other topics are a type error. */
export interface TypedHooks<Map extends object> {
  readonly useTopic: {
    <Name extends keyof Map & string>(
      topics: NamesOf<Map, Name>,
      options?: UseMessagesOptions<PayloadOf<Map, Name>>,
    ): TopicMessages<PayloadOf<Map, Name>>;
    <Name extends keyof Map & string, S>(
      topics: NamesOf<Map, Name>,
      options: UseReducedOptions<PayloadOf<Map, Name>, S>,
    ): TopicValue<S>;
  };
  readonly useLatest: {
    <Name extends keyof Map & string>(
      topics: NamesOf<Map, Name>,
      options?: TopicOptions & { key?: undefined; select?: undefined },
    ): Message<PayloadOf<Map, Name>> | undefined;
    <Name extends keyof Map & string>(
      topics: NamesOf<Map, Name>,
      options: UseRowsOptions<PayloadOf<Map, Name>> & { select?: undefined },
    ): Rows<PayloadOf<Map, Name>>;
    <Name extends keyof Map & string, R>(
      topics: NamesOf<Map, Name>,
      options: TopicOptions & {
        key: RowKey<PayloadOf<Map, Name>>;
        rowsMax?: number;
        select: (rows: Rows<PayloadOf<Map, Name>>) => R;
      },
    ): R;
  };
  readonly usePublish: <Name extends keyof Map & string>(topic: Name) => Publish<PayloadOf<Map, Name>>;
}

/**
 * The hooks for the topics of `Map`, the interface that `connect<Map>()` of `@tidewire/client` accepts, too. Call
 * it once, outside of components.
 */
export function typedHooks<Map extends object>(): TypedHooks<Map> {
  return { useTopic, useLatest, usePublish } as TypedHooks<Map>;
}
