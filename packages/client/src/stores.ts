/**
 * `@tidewire/client/stores`: the common part of the packages for React, Vue and Svelte. Stores collect incoming
 * data, and show it once per frame. An application uses one of those packages; another framework can build on
 * this one.
 */

export { connectionPlan } from "./stores/connection.js";
export type { Updates } from "./stores/frames.js";
export { keyOf } from "./stores/key.js";
export {
  type LatestOptions,
  latestPlan,
  type RowKey,
  type Rows,
  selected,
  type UseRowsOptions,
} from "./stores/latest.js";
export { isSamePlan, type Plan } from "./stores/plan.js";
export {
  type Member,
  type Presence,
  PresenceStore,
  presencePlan,
  type UsePresenceOptions,
} from "./stores/presence.js";
export {
  type Publish,
  publisher,
  type RequestState,
  requestPlan,
  type UseRequestOptions,
} from "./stores/request.js";
export { type ClientSlot, type GivenClient, type OwnedClient, slotFor } from "./stores/slot.js";
export { Store } from "./stores/store.js";
export {
  type TopicMessages,
  type TopicOptions,
  type TopicState,
  type Topics,
  type TopicValue,
  topicPlan,
  type UseMessagesOptions,
  type UseReducedOptions,
} from "./stores/topic.js";
