/** `@tidewire/client`: live data between web pages and Tidewire servers. */

export { type CallHandler, handle } from "./calls.js";
export {
  type CallOptions,
  Client,
  type Published,
  type PublishOptions,
  type SendOptions,
} from "./client.js";
export { CloseCode, ErrorCode } from "./codes.js";
export { connect, open } from "./connect.js";
export type { Quality } from "./core/quality.js";
export type { Priority } from "./core/queue-port.js";
export { debug } from "./debug.js";
export { type ClientErrorCode, type Fault, TidewireError } from "./errors.js";
export type {
  ClientEvents,
  ConnectionState,
  ConnectionStatus,
  Gap,
  Observable,
  PresenceEvent,
  Unrecovered,
} from "./events.js";
export { acknowledge } from "./groups.js";
export { Message, type Position } from "./message.js";
export type {
  ClientOptions,
  EndpointList,
  LogLevel,
  QualityPort,
  ReconnectOptions,
  Target,
  TokenPlacement,
} from "./options.js";
export { type PreparedMessage, prepare } from "./prepared.js";
export type { BufferOptions } from "./stream.js";
export {
  type SubscribeOptions,
  Subscription,
  type SubscriptionEvents,
  type SubscriptionStatus,
} from "./subscription.js";
export {
  type HistoryOptions,
  type HistoryPage,
  history,
  type PresenceInfo,
  type PresenceOptions,
  presence,
  sync,
} from "./topics.js";
export type { Transport } from "./transport.js";
export type { PayloadOf, TypedClient } from "./typed.js";
