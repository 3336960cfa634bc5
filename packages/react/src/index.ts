"use client";

/** `@tidewire/react`: live data of a Tidewire server in React components. */

export type {
  Member,
  Presence,
  Publish,
  RequestState,
  RowKey,
  Rows,
  TopicMessages,
  TopicOptions,
  TopicState,
  Topics,
  TopicValue,
  Updates,
  UseMessagesOptions,
  UsePresenceOptions,
  UseReducedOptions,
  UseRequestOptions,
  UseRowsOptions,
} from "@tidewire/client/stores";
export { keyOf } from "@tidewire/client/stores";
export { useLatest } from "./latest.js";
export { usePresence } from "./presence.js";
export { TidewireProvider, type TidewireProviderProps, useClient, useConnection } from "./provider.js";
export { usePublish, useRequest } from "./request.js";
export { useTopic } from "./topic.js";
export { type NamesOf, type TypedHooks, typedHooks } from "./typed.js";
