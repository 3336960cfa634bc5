/** `@tidewire/svelte`: live data of a Tidewire server in Svelte components. */

export type {
  GivenClient,
  Member,
  OwnedClient,
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
export { usePresence } from "./presence.js";
export { setTidewire, type TidewireOptions, useClient, useConnection } from "./provider.js";
export { usePublish, useRequest } from "./request.js";
export type { Current, Live, MaybeGetter } from "./shown.js";
export { useLatest, useTopic } from "./topic.js";
