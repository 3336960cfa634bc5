/**
 * `@tidewire/client/testing`: a server in memory for tests of applications, and a transport by which a test plays the server
 * message by message.
 */

export {
  type Action,
  TestConnection,
  type TestMessage,
  type TestPublication,
  type TestRequest,
} from "./testing/connection.js";
export { CallError } from "./testing/errors.js";
export type { DropOptions, FaultOptions, FaultPoint, RefuseOptions } from "./testing/faults.js";
export {
  type Handshake,
  type StopOptions,
  type TestMessageOptions,
  type TestPublishOptions,
  TestServer,
  type TestServerOptions,
} from "./testing/server.js";
export type { Member, TopicSettings } from "./testing/topics.js";
export { FakeConnection, FakeTransport } from "./transport/memory.js";
