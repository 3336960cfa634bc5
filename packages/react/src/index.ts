"use client";

/** `@tidewire/react`: live data of a Tidewire server in React components. */

export type { Updates } from "./frames.js";
export { type RowKey, type Rows, type UseRowsOptions, useLatest } from "./latest.js";
export { type Member, type Presence, type UsePresenceOptions, usePresence } from "./presence.js";
export { TidewireProvider, type TidewireProviderProps, useClient, useConnection } from "./provider.js";
export {
  type Publish,
  type RequestState,
  type UseRequestOptions,
  usePublish,
  useRequest,
} from "./request.js";
export {
  type TopicMessages,
  type TopicOptions,
  type TopicState,
  type Topics,
  type TopicValue,
  type UseMessagesOptions,
  type UseReducedOptions,
  useTopic,
} from "./topic.js";
export { type NamesOf, type TypedHooks, typedHooks } from "./typed.js";
